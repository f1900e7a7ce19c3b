#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <variant>

#include "adapters/tls/certificate.h"
#include "ports/clock.h"

struct ssl_ctx_st;

namespace space::tls {

// Whose certificates are believed: those of this CA. Its fingerprint alone is enough for dialling
// an enrolment listener, which shows the CA's certificate too.
using Trust = std::variant<Certificate, Fingerprint>;

// What this process is to its peers: its credentials, the CA it believes, its clock. Shared by its
// dialler and listeners, and outlives them.
class Party {
 public:
  // The CA's certificate names the issuer; one that does not is believed by nobody.
  Party(const WallClock& clock, Trust trust,
        std::chrono::milliseconds tolerance = std::chrono::seconds(15));
  Party(const Party&) = delete;
  Party& operator=(const Party&) = delete;
  ~Party();

  // New connections use these from now on; those that exist go on. False, and nothing changed, when
  // the certificate is not one for this key.
  bool use(const Credentials& credentials);
  // Those in use, also when they have expired.
  const std::optional<Credentials>& credentials() const { return credentials_; }

  const WallClock& clock() const { return clock_; }
  const Trust& trust() const { return trust_; }
  std::chrono::milliseconds tolerance() const { return tolerance_; }
  ssl_ctx_st* native() const { return context_.get(); }

 private:
  std::shared_ptr<ssl_ctx_st> make_context(const Credentials* credentials) const;

  const WallClock& clock_;
  Trust trust_;
  std::chrono::milliseconds tolerance_;
  std::optional<Credentials> credentials_;
  std::shared_ptr<ssl_ctx_st> context_;
};

}  // namespace space::tls
