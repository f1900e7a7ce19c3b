#pragma once
#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>

#include "base/bytes.h"
#include "base/check.h"

// Owners of OpenSSL's objects. Included by .cc files of this folder only.
namespace space::tls {

struct Free {
  void operator()(BIO* p) const { BIO_free_all(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(X509_REQ* p) const { X509_REQ_free(p); }
  void operator()(X509_EXTENSION* p) const { X509_EXTENSION_free(p); }
  void operator()(GENERAL_NAMES* p) const { GENERAL_NAMES_free(p); }
  void operator()(SSL* p) const { SSL_free(p); }
  void operator()(SSL_CTX* p) const { SSL_CTX_free(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

// The DER form, by one of OpenSSL's i2d functions. Those fail for want of memory alone.
template <class T>
Bytes to_der(T* object, int (*encode)(T*, unsigned char**)) {
  unsigned char* out = nullptr;
  const int size = encode(object, &out);
  SPACE_ASSERT(size > 0);
  const auto* begin = reinterpret_cast<const std::byte*>(out);
  Bytes der(begin, begin + size);
  OPENSSL_free(out);
  return der;
}

inline const unsigned char* raw(ByteView bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

// Whether the key is on P-256, named, not by its parameters.
bool is_p256(EVP_PKEY* key);

}  // namespace space::tls
