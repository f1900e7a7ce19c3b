#include "adapters/tls/engine.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "adapters/tls/error.h"
#include "adapters/tls/openssl.h"
#include "adapters/tls/verification.h"

namespace space::tls {
namespace {

// The application protocols as ALPN carries them: a length, then the name.
std::string_view alpn(Protocol protocol) {
  switch (protocol) {
    case Protocol::kHop:
      return "\x0bspace-hop/1";
    case Protocol::kEnrolment:
      return "\x11space-enrolment/1";
  }
  std::unreachable();
}

std::error_code system_error(int error) { return {error, std::system_category()}; }

// Why the last call of OpenSSL failed.
std::error_code library_error() {
  const auto code = ERR_peek_error();
  const int reason = ERR_GET_REASON(code);
  ERR_clear_error();
  if (ERR_GET_LIB(code) != ERR_LIB_SSL) return Error::kProtocol;
  constexpr std::array kRefusals{SSL_AD_BAD_CERTIFICATE,     SSL_AD_UNSUPPORTED_CERTIFICATE,
                                 SSL_AD_CERTIFICATE_REVOKED, SSL_AD_CERTIFICATE_EXPIRED,
                                 SSL_AD_CERTIFICATE_UNKNOWN, SSL_AD_UNKNOWN_CA,
                                 SSL_AD_ACCESS_DENIED,       SSL_AD_CERTIFICATE_REQUIRED};
  for (const int alert : kRefusals) {
    if (reason == SSL_AD_REASON_OFFSET + alert) return Error::kRefused;
  }
  if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) return Error::kNoCertificate;
  // The peer left without an orderly end, as one that crashed does.
  if (reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) return system_error(ECONNRESET);
  return Error::kProtocol;
}

// The transport below OpenSSL.
struct Wire {
  int socket;
  Bytes out;             // encrypted and not yet sent: a chunk with its overhead at most
  std::size_t sent = 0;  // of it
  int receive_error = 0;
};

int wire_read(BIO* bio, char* buffer, int size) {
  auto* wire = static_cast<Wire*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  for (;;) {
    const auto count = ::recv(wire->socket, buffer, static_cast<std::size_t>(size), MSG_DONTWAIT);
    if (count >= 0) return static_cast<int>(count);
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      BIO_set_retry_read(bio);
    } else {
      wire->receive_error = errno;
    }
    return -1;
  }
}

int wire_write(BIO* bio, const char* data, int size) {
  auto* wire = static_cast<Wire*>(BIO_get_data(bio));
  const auto bytes = as_bytes(std::string_view(data, static_cast<std::size_t>(size)));
  wire->out.insert(wire->out.end(), bytes.begin(), bytes.end());
  return size;
}

long wire_control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

const BIO_METHOD* wire_method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "space wire");
    SPACE_ASSERT(made != nullptr && BIO_meth_set_read(made, &wire_read) == 1 &&
                 BIO_meth_set_write(made, &wire_write) == 1 &&
                 BIO_meth_set_ctrl(made, &wire_control) == 1);
    return made;
  }();
  return method;
}

}  // namespace

struct Engine::State {
  Verification verification;
  Wire wire;
  Owned<SSL> ssl;

  // After a call of OpenSSL that returned `status`: its error; nullopt when it waits for input.
  std::optional<std::error_code> failure(int status) {
    switch (SSL_get_error(ssl.get(), status)) {
      case SSL_ERROR_WANT_READ:
        return std::nullopt;
      case SSL_ERROR_SYSCALL:
        ERR_clear_error();
        return system_error(wire.receive_error != 0 ? wire.receive_error : ECONNRESET);
      default:
        if (!verification.error) return library_error();
        ERR_clear_error();
        return make_error_code(*verification.error);
    }
  }
};

Engine::Engine(const Party& party, Protocol protocol, bool dialled, int socket)
    : state_(new State{.verification = {.party = party,
                                        .alpn = alpn(protocol),
                                        .must_be_current = dialled || protocol == Protocol::kHop,
                                        .peer = {},
                                        .error = {}},
                       .wire = {.socket = socket, .out = {}},
                       .ssl = Owned<SSL>(SSL_new(party.native()))}) {
  SSL* ssl = state_->ssl.get();
  BIO* bio = BIO_new(wire_method());
  SPACE_ASSERT(ssl != nullptr && bio != nullptr);
  BIO_set_data(bio, &state_->wire);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl, bio, bio);
  state_->verification.attach(ssl);
  if (dialled) {
    const auto offer = as_bytes(alpn(protocol));
    SPACE_ASSERT(SSL_set_alpn_protos(ssl, raw(offer), static_cast<unsigned>(offer.size())) == 0);
    SSL_set_verify(ssl, SSL_VERIFY_PEER, nullptr);
    SSL_set_connect_state(ssl);
  } else {
    const int need = protocol == Protocol::kHop ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0;
    SSL_set_verify(ssl, SSL_VERIFY_PEER | need, nullptr);
    SSL_set_accept_state(ssl);
  }
}

Engine::~Engine() = default;

Engine::Result<Engine::Next> Engine::handshake() {
  ERR_clear_error();
  const int status = SSL_do_handshake(state_->ssl.get());
  auto failed = status == 1 ? std::nullopt : state_->failure(status);
  // Also after a failure: the alert tells the peer.
  const auto flushed = flush();
  if (failed) return std::unexpected(*failed);
  if (!flushed) return std::unexpected(flushed.error());
  if (*flushed == Next::kWaitWritable) return Next::kWaitWritable;
  if (status != 1) return Next::kWaitReadable;
  const unsigned char* name = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(state_->ssl.get(), &name, &size);
  const std::string_view selected(reinterpret_cast<const char*>(name), size);
  if (selected != state_->verification.alpn.substr(1)) {
    return std::unexpected(make_error_code(Error::kProtocol));
  }
  return Next::kDone;
}

const std::optional<identity::PeerIdentity>& Engine::peer() const {
  return state_->verification.peer;
}

Engine::Result<std::optional<std::size_t>> Engine::read(std::span<std::byte> buffer) {
  SSL* ssl = state_->ssl.get();
  std::size_t filled = 0;
  // One record a call: go on while more is here already.
  while (filled < buffer.size() && (filled == 0 || SSL_has_pending(ssl) == 1)) {
    ERR_clear_error();
    std::size_t count = 0;
    const auto rest = buffer.subspan(filled);
    const int status = SSL_read_ex(ssl, rest.data(), rest.size(), &count);
    if (status == 1) {
      filled += count;
      continue;
    }
    if (filled > 0) break;  // what is wrong comes with the next call
    if (SSL_get_error(ssl, status) == SSL_ERROR_ZERO_RETURN) return 0U;
    if (const auto failed = state_->failure(status)) return std::unexpected(*failed);
    return std::optional<std::size_t>();
  }
  return filled;
}

Engine::Result<void> Engine::encrypt(ByteView bytes) {
  SPACE_ASSERT(bytes.size() <= kMaxChunk);
  ERR_clear_error();
  std::size_t written = 0;
  const int status = SSL_write_ex(state_->ssl.get(), bytes.data(), bytes.size(), &written);
  if (status != 1 || written != bytes.size()) {
    // It waits for nothing: the wire takes everything.
    return std::unexpected(state_->failure(status).value_or(make_error_code(Error::kProtocol)));
  }
  return {};
}

Engine::Result<Engine::Next> Engine::flush() {
  auto& wire = state_->wire;
  while (wire.sent < wire.out.size()) {
    const auto rest = ByteView(wire.out).subspan(wire.sent);
    const auto count = ::send(wire.socket, rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      wire.sent += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return Next::kWaitWritable;
    } else if (errno != EINTR) {
      return std::unexpected(system_error(errno));
    }
  }
  wire.out.clear();
  wire.sent = 0;
  return Next::kDone;
}

void Engine::end() {
  ERR_clear_error();
  static_cast<void>(SSL_shutdown(state_->ssl.get()));
  ERR_clear_error();
  static_cast<void>(flush());
}

}  // namespace space::tls
