// A request head from a hostile client: a head that passes has one reading, without the bytes that
// let two parsers disagree (C075).
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "adapters/http/head_check.h"

using namespace space;

namespace {

// The header lines of a head that passed, names in lower case.
HttpHeaders headers_of(std::string_view head) {
  HttpHeaders headers;
  auto rest = head.substr(head.find("\r\n") + 2);
  while (!rest.starts_with("\r\n") && !rest.empty()) {
    const auto end = rest.find("\r\n");
    const auto line = rest.substr(0, end);
    const auto colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0) __builtin_trap();
    HttpHeader header{std::string(line.substr(0, colon)), std::string(line.substr(colon + 1))};
    for (char& c : header.name) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    while (header.value.starts_with(' ') || header.value.starts_with('\t'))
      header.value.erase(0, 1);
    while (header.value.ends_with(' ') || header.value.ends_with('\t')) header.value.pop_back();
    headers.push_back(std::move(header));
    rest = rest.substr(end == std::string_view::npos ? rest.size() : end + 2);
  }
  return headers;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string head(reinterpret_cast<const char*>(data), size);
  if (http::check_raw_head(head)) return 0;
  if (head.find('\0') != std::string::npos) __builtin_trap();
  const auto headers = headers_of(head);
  if (http::check_framing(headers)) return 0;
  std::size_t hosts = 0;
  std::size_t lengths = 0;
  std::size_t encodings = 0;
  for (const auto& header : headers) {
    hosts += header.name == "host" ? 1 : 0;
    lengths += header.name == "content-length" ? 1 : 0;
    encodings += header.name == "transfer-encoding" ? 1 : 0;
  }
  if (hosts != 1 || lengths + encodings > 1) __builtin_trap();
  return 0;
}
