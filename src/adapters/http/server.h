#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "adapters/asio/loop.h"
#include "ports/http.h"
#include "ports/log.h"
#include "ports/task_scope.h"

namespace space::http {

// HTTP/1.1 over TCP or a Unix socket. Strict (head.h, body.h): one request at a time per
// connection, kept alive and pipelined; after any malformed request, and at each time limit, the
// connection is closed. What is refused before a handler sees it is answered with {"code": status,
// "message": ...}.
class Server {
 public:
  struct Limits {
    std::size_t head_bytes = 64U << 10;         // beyond: 431
    std::size_t connections = 2048;             // beyond: they wait in the kernel's queue
    std::size_t connections_per_client = 1024;  // of one address; beyond: 429
    // Between requests. Longer than the clients' own (300 s in the Python SDK), so that it is they
    // who close an idle connection, and no request meets a closing one.
    BootClock::duration keep_alive_time = std::chrono::seconds(330);
    BootClock::duration head_time = std::chrono::seconds(15);  // first byte to the end of the head
    BootClock::duration idle_time = std::chrono::seconds(60);  // per read of a body, per write
  };
  // All outlive the server.
  Server(asio::Loop& loop, HttpHandler& handler, Log& log);
  Server(asio::Loop& loop, HttpHandler& handler, Log& log, Limits limits);
  ~Server();

  // Binds "HOST:PORT" (an IP address; port 0: any free one) or "unix:PATH" (where nothing is yet;
  // the umask decides who may connect). The port in use, 0 for a Unix socket.
  IoResult<std::uint16_t> listen(const std::string& address);
  // Serves until `close`.
  Task<void> run();
  // Refuses new connections. Idempotent.
  void close();
  // Breaks off the connections there are, and completes when none is left.
  Task<void> stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace space::http
