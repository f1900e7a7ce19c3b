#pragma once
#include <system_error>

namespace space::tls {

// Why a connection was not made or went on no longer. All but kProtocol compare equal to
// std::errc::permission_denied: somebody is not authenticated. kProtocol to protocol_error.
enum class Error {
  kUntrusted = 1,  // the peer's certificate is not one of our CA
  kNoCertificate,  // the peer showed none
  kNotYetValid,    // its certificate, by our clock
  kExpired,        // its certificate, by our clock
  kWrongIdentity,  // its certificate names nobody, or not in our form
  kRefused,        // the peer does not accept our certificate
  kNotEnrolled,    // this process has no certificate yet
  kProtocol,       // not TLS 1.3, not our protocol, or broken
};
std::error_code make_error_code(Error error);

}  // namespace space::tls

template <>
struct std::is_error_code_enum<space::tls::Error> : std::true_type {};
