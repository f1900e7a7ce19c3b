#pragma once
#include "adapters/asio/loop.h"
#include "ports/http.h"

namespace space::http {

// HTTP/1.1 over TCP ("http://HOST:PORT") or a Unix socket ("unix:PATH"), one connection per
// request. Answers whose end can't be told from a broken connection (neither length nor chunks) are
// refused: bad_message.
class Client final : public HttpClient {
 public:
  explicit Client(asio::Loop& loop) : loop_(loop) {}
  Task<IoResult<std::unique_ptr<HttpResponse>>> send(HttpClientRequest request,
                                                     HttpBodySource* body) override;

 private:
  asio::Loop& loop_;
};

}  // namespace space::http
