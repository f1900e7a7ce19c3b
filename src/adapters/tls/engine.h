#pragma once
#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>

#include "adapters/tls/party.h"

struct ssl_st;

namespace space::tls {

// What a connection is for. Told apart by ALPN, so that a connection made for one is no use to the
// other.
enum class Protocol : std::uint8_t {
  kHop,        // between enrolled parts: both certificates are current
  kEnrolment,  // a machine asks for a certificate: it may show none, or one that has expired
};

inline constexpr std::size_t kMaxChunk = 64U << 10;  // encrypted, or read from the kernel, at once

// One TLS connection over a connected non-blocking socket, without waiting: the caller waits for
// the socket. Received bytes go from the kernel into OpenSSL's own buffer, sent ones are collected
// to one chunk a system call. Not thread-safe.
class Engine {
 public:
  // What the caller does next.
  enum class Next : std::uint8_t { kDone, kWaitReadable, kWaitWritable };
  template <class T>
  using Result = std::expected<T, std::error_code>;

  // `party` outlives the engine; `socket` stays the caller's.
  Engine(const Party& party, Protocol protocol, bool dialled, int socket);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  // To be repeated after each wait until kDone: then the peer is who `peer` says.
  Result<Next> handshake();
  // Absent: the peer showed no certificate (Protocol::kEnrolment).
  const std::optional<identity::PeerIdentity>& peer() const;

  // Bytes read; 0: the peer ended in order. nullopt: wait until readable.
  Result<std::optional<std::size_t>> read(std::span<std::byte> buffer);
  // Takes at most kMaxChunk bytes, which `flush` sends. Only after a flush that was kDone.
  Result<void> encrypt(ByteView bytes);
  // Sends what was encrypted: kDone or kWaitWritable.
  Result<Next> flush();
  // Queues the orderly end and sends what the socket takes at once.
  void end();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace space::tls
