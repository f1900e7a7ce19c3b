// plain-http-guest: the agent's file read behind plain HTTP, and nothing else of SPACE: the
// yardstick of `./dev bench chain`. GET /PATH answers with the file, read with the rights of
// "user" (else root), as the agent would. Runs as root in a sandbox.
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "adapters/asio/loop.h"
#include "adapters/crypto/system_entropy.h"
#include "adapters/guest_linux/files.h"
#include "adapters/http/server.h"
#include "adapters/telemetry/json_log.h"
#include "base/bytes.h"
#include "core/wire/path.h"

namespace {

using namespace space;

class FileHandler final : public HttpHandler {
 public:
  explicit FileHandler(GuestFiles& files) : files_(files) {}

  Task<void> handle(HttpExchange& exchange) override {
    const auto& request = exchange.request();
    if (request.method != "GET" || !wire::is_guest_path(request.path)) {
      static_cast<void>(co_await exchange.respond(400, {}, "GET /PATH only\n"));
      co_return;
    }
    const auto reader = files_.open(request.path, {}, 0);
    if (!reader) {
      static_cast<void>(co_await exchange.respond(404, {}, reader.error().message + "\n"));
      co_return;
    }
    co_await send(exchange, **reader);
  }

 private:
  static Task<void> send(HttpExchange& exchange, GuestFileReader& reader) {
    HttpHeaders headers{{"content-type", "application/octet-stream"},
                        {"cache-control", "no-store"}};
    auto left = reader.size();
    if (left <= wire::hop::kMaxDataBytes) {
      std::string body(static_cast<std::size_t>(left), '\0');
      const auto count = reader.read(std::as_writable_bytes(std::span(body)));
      if (count && *count == left) {
        static_cast<void>(co_await exchange.respond(200, std::move(headers), std::move(body)));
      }
      co_return;
    }
    if (!co_await exchange.begin(200, std::move(headers), left)) co_return;
    Bytes buffer(wire::hop::kMaxDataBytes);
    while (left > 0) {
      const auto count = reader.read(std::span(buffer).first(
          static_cast<std::size_t>(std::min<std::uint64_t>(left, buffer.size()))));
      if (!count || *count == 0) co_return;  // the body breaks off
      if (!co_await exchange.write(std::span(buffer).first(*count))) co_return;
      left -= *count;
    }
    static_cast<void>(co_await exchange.finish());
  }

  GuestFiles& files_;
};

Task<int> serve(http::Server& server) {
  co_await server.run();
  co_await server.stop();
  co_return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: plain-http-guest HOST:PORT|unix:PATH\n");
    return 2;
  }
  ::signal(SIGPIPE, SIG_IGN);
  telemetry::JsonLog log("plain-http-guest");
  asio::Loop loop;
  crypto::SystemEntropy entropy;
  guest_linux::LinuxFiles files(loop, entropy);
  FileHandler handler(files);
  http::Server server(loop, handler, log);
  if (const auto bound = server.listen(argv[1]); !bound) {
    std::fprintf(stderr, "plain-http-guest: %s: %s\n", argv[1], bound.error().message().c_str());
    return 1;
  }
  std::puts("listening");
  std::fflush(stdout);
  return loop.run(serve(server), [&server] { server.close(); });
}
