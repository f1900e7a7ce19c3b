#include "core/wire/multipart.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace space::wire {
namespace {

constexpr std::string_view kLineEnd = "\r\n";

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool same_word(std::string_view text, std::string_view word) {
  return std::ranges::equal(text, word, {}, lower);
}

bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }

bool is_boundary_char(char c) {
  constexpr std::string_view kOthers = "'()+_,-./:=? ";
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         kOthers.contains(c);
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// A quoted parameter as HTML's form encoding writes it.
std::optional<std::string> form_decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto following = text.substr(i + 1);
    if (c == '\\' && (following.starts_with('\\') || following.starts_with('"'))) {
      return std::nullopt;
    }
    if (c == '%' && following.size() >= 2 && (following[0] == '0' || following[0] == '1')) {
      const auto byte = percent_decode(text.substr(i, 3));
      if (byte && (*byte == "\r" || *byte == "\n")) {
        out += *byte;
        i += 2;
        continue;
      }
      if (!byte || is_control(byte->front())) return std::nullopt;
    }
    if (following.starts_with("22") && c == '%') {
      out += '"';
      i += 2;
      continue;
    }
    out += c;
  }
  return out;
}

// `form-data; name="..."; filename="..."`, nothing else.
std::optional<MultipartReader::PartBegin> parse_disposition(std::string_view value) {
  const auto semicolon = value.find(';');
  if (!same_word(trim(value.substr(0, semicolon)), "form-data")) return std::nullopt;
  value.remove_prefix(std::min(semicolon, value.size()));
  std::optional<std::string> name;
  std::optional<std::string> filename;
  while (!value.empty()) {
    value = trim(value.substr(1));  // behind the semicolon
    const auto equals = value.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const auto key = value.substr(0, equals);
    value.remove_prefix(equals + 1);
    if (!value.starts_with('"')) return std::nullopt;
    const auto quote = value.find('"', 1);
    if (quote == std::string_view::npos) return std::nullopt;
    auto decoded = form_decode(value.substr(1, quote - 1));
    auto& target = same_word(key, "filename") ? filename : name;
    if (!decoded || target || (&target == &name && !same_word(key, "name"))) return std::nullopt;
    target = std::move(decoded);
    value = trim(value.substr(quote + 1));
    if (!value.empty() && !value.starts_with(';')) return std::nullopt;
  }
  if (!name) return std::nullopt;
  return MultipartReader::PartBegin{*std::move(name), std::move(filename)};
}

}  // namespace

std::optional<std::string> multipart_boundary(std::string_view content_type) {
  const auto semicolon = content_type.find(';');
  if (semicolon == std::string_view::npos) return std::nullopt;
  if (!same_word(trim(content_type.substr(0, semicolon)), kMultipartType)) return std::nullopt;
  auto parameter = trim(content_type.substr(semicolon + 1));
  constexpr std::string_view kName = "boundary=";
  if (!same_word(parameter.substr(0, kName.size()), kName)) return std::nullopt;
  parameter.remove_prefix(kName.size());
  if (parameter.size() >= 2 && parameter.starts_with('"') && parameter.ends_with('"')) {
    parameter = parameter.substr(1, parameter.size() - 2);
  }
  if (parameter.empty() || parameter.size() > kMaxBoundaryBytes || parameter.ends_with(' ') ||
      !std::ranges::all_of(parameter, is_boundary_char)) {
    return std::nullopt;
  }
  return std::string(parameter);
}

MultipartReader::MultipartReader(std::string_view boundary)
    // The first delimiter has no line end before it; with this one it looks like all the others.
    : delimiter_(std::string(kLineEnd) + "--" + std::string(boundary)), buffer_(kLineEnd) {}

void MultipartReader::feed(ByteView bytes) {
  buffer_.erase(0, std::exchange(read_, 0));
  buffer_ += as_text(bytes);
}

MultipartReader::Event MultipartReader::malformed(std::string_view problem) {
  state_ = State::kMalformed;
  problem_ = problem;
  return Malformed{problem};
}

MultipartReader::Event MultipartReader::next() {
  switch (state_) {
    case State::kOpening:
      if (rest().size() < delimiter_.size()) {
        if (delimiter_.starts_with(rest())) return NeedMore{};
      } else if (rest().starts_with(delimiter_)) {
        read_ += delimiter_.size();
        state_ = State::kAfterDelimiter;
        return after_delimiter();
      }
      return malformed("the body does not begin with its boundary");
    case State::kHeader:
      return header();
    case State::kData:
      return data();
    case State::kAfterDelimiter:
      return after_delimiter();
    case State::kFinished:
      if (!kLineEnd.starts_with(rest())) return malformed("bytes behind the closing boundary");
      return Finished{};
    case State::kMalformed:
      return Malformed{problem_};
  }
  std::unreachable();
}

MultipartReader::Event MultipartReader::after_delimiter() {
  const auto bytes = rest();
  if (bytes.size() < 2) return NeedMore{};
  const bool last = bytes.starts_with("--");
  if (!last && !bytes.starts_with(kLineEnd)) {
    return malformed("a boundary that is followed by something else");
  }
  read_ += 2;
  state_ = last ? State::kFinished : State::kHeader;
  if (std::exchange(in_part_, false)) return PartEnd{};
  return next();
}

MultipartReader::Event MultipartReader::header() {
  const auto bytes = rest();
  const auto end = bytes.find("\r\n\r\n");
  if (end == std::string_view::npos || end > kMaxPartHeaderBytes) {
    if (bytes.size() < kMaxPartHeaderBytes + 2 * kLineEnd.size()) return NeedMore{};
    return malformed("the head of a part is larger than 16 KiB");
  }
  auto lines = bytes.substr(0, end);
  std::optional<PartBegin> begin;
  while (!lines.empty()) {
    const auto line = lines.substr(0, lines.find(kLineEnd));
    lines.remove_prefix(std::min(line.size() + kLineEnd.size(), lines.size()));
    const auto colon = line.find(':');
    if (colon == std::string_view::npos || std::ranges::any_of(line, is_control)) {
      return malformed("a line in the head of a part that is no header");
    }
    const auto name = line.substr(0, colon);
    if (same_word(name, "content-disposition")) {
      if (begin) return malformed("a part with two Content-Disposition lines");
      begin = parse_disposition(trim(line.substr(colon + 1)));
      if (!begin) {
        return malformed(
            "a Content-Disposition that is not form-data with a quoted name and filename, or whose "
            "filename can be read in two ways; upload such a file alone, with its path in the "
            "query");
      }
    } else if (!same_word(name, "content-type")) {
      return malformed("a part with a header other than Content-Disposition and Content-Type");
    }
  }
  if (!begin) return malformed("a part without Content-Disposition");
  read_ += end + 2 * kLineEnd.size();
  state_ = State::kData;
  in_part_ = true;
  return *std::move(begin);
}

MultipartReader::Event MultipartReader::data() {
  const auto bytes = rest();
  const auto found = bytes.find(delimiter_);
  if (found == 0) {
    read_ += delimiter_.size();
    state_ = State::kAfterDelimiter;
    return after_delimiter();
  }
  // Without a delimiter, its beginning may be at the end.
  const auto sure = found != std::string_view::npos
                        ? found
                        : bytes.size() - std::min(bytes.size(), delimiter_.size() - 1);
  if (sure == 0) return NeedMore{};
  read_ += sure;
  return PartData{as_bytes(bytes.substr(0, sure))};
}

}  // namespace space::wire
