#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "ports/http.h"

namespace space::node_api::testing {

// One request with an API key, and what it is answered.
class FakeExchange final : public HttpExchange {
 public:
  FakeExchange(std::string method, const std::string& target, std::string body = {}) {
    request_.method = std::move(method);
    const auto question = target.find('?');
    request_.path = target.substr(0, question);
    if (question != std::string::npos) request_.query = target.substr(question + 1);
    request_.headers.push_back({"x-api-key", "e2b_aa"});
    request_.has_body = !body.empty();
    if (!body.empty()) request_.content_length = body.size();
    body_ = std::move(body);
  }
  HttpRequest& head() { return request_; }
  const HttpRequest& request() const override { return request_; }
  Task<IoResult<std::size_t>> read_body(std::span<std::byte> buffer) override {
    if (on_read) on_read();
    if (break_at && read_ >= *break_at) co_return io_error(std::errc::connection_reset);
    const auto count = std::min(buffer.size(), body_.size() - read_);
    std::copy_n(as_bytes(body_).begin() + static_cast<std::ptrdiff_t>(read_), count,
                buffer.begin());
    read_ += count;
    co_return count;
  }
  Task<IoResult<void>> respond(unsigned code, HttpHeaders list, std::string text) override {
    EXPECT_FALSE(answered());
    status = code;
    headers = std::move(list);
    out = std::move(text);
    finished = true;
    co_return IoResult<void>{};
  }
  Task<IoResult<void>> begin(unsigned code, HttpHeaders list,
                             std::optional<std::uint64_t>) override {
    EXPECT_FALSE(answered());
    status = code;
    headers = std::move(list);
    co_return IoResult<void>{};
  }
  Task<IoResult<void>> write(ByteView bytes) override {
    out += as_text(bytes);
    co_return IoResult<void>{};
  }
  Task<IoResult<void>> finish() override {
    finished = true;
    co_return IoResult<void>{};
  }
  bool answered() const override { return status != 0; }
  void on_gone(std::move_only_function<void()> action) override { gone = std::move(action); }

  std::string header(std::string_view name) const {
    return std::string(single_header(headers, name).value_or(""));
  }

  std::function<void()> on_read;
  std::optional<std::size_t> break_at;  // the client leaves after so many bytes
  std::move_only_function<void()> gone;
  unsigned status = 0;
  HttpHeaders headers;
  std::string out;
  bool finished = false;

 private:
  HttpRequest request_;
  std::string body_;
  std::size_t read_ = 0;
};

}  // namespace space::node_api::testing
