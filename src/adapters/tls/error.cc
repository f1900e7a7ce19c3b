#include "adapters/tls/error.h"

#include <string>
#include <utility>

namespace space::tls {
namespace {

class Category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "tls"; }
  std::string message(int value) const override {
    switch (static_cast<Error>(value)) {
      case Error::kUntrusted:
        return "unauthenticated: the peer's certificate is not of our CA";
      case Error::kNoCertificate:
        return "unauthenticated: the peer shows no certificate";
      case Error::kNotYetValid:
        return "unauthenticated: the peer's certificate is not valid yet";
      case Error::kExpired:
        return "unauthenticated: the peer's certificate has expired";
      case Error::kWrongIdentity:
        return "unauthenticated: the peer's certificate names no part of this platform";
      case Error::kRefused:
        return "unauthenticated: the peer does not accept our certificate";
      case Error::kNotEnrolled:
        return "unauthenticated: this part has no certificate yet";
      case Error::kProtocol:
        return "the peer does not speak our protocol over TLS 1.3";
    }
    std::unreachable();
  }
  std::error_condition default_error_condition(int value) const noexcept override {
    return std::make_error_condition(static_cast<Error>(value) == Error::kProtocol
                                         ? std::errc::protocol_error
                                         : std::errc::permission_denied);
  }
};

}  // namespace

std::error_code make_error_code(Error error) {
  static const Category category;
  return {static_cast<int>(error), category};
}

}  // namespace space::tls
