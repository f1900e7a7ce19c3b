#include "base/text.h"

#include <array>

namespace space {
namespace {

constexpr std::string_view kHex = "0123456789abcdef";
constexpr std::string_view kBase32 = "abcdefghijklmnopqrstuvwxyz234567";
constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::optional<unsigned> digit(std::string_view alphabet, char c) {
  const auto at = alphabet.find(c);
  if (at == std::string_view::npos || c == '\0') return std::nullopt;
  return static_cast<unsigned>(at);
}

std::optional<unsigned> any_case_hex(char c) {
  if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
  return digit(kHex, c);
}

std::string to_base(ByteView bytes, std::string_view alphabet, unsigned bits) {
  std::string out;
  unsigned buffer = 0;
  unsigned held = 0;
  for (const auto b : bytes) {
    buffer = ((buffer << 8) | std::to_integer<unsigned>(b)) & 0xffff;
    held += 8;
    while (held >= bits) {
      held -= bits;
      out += alphabet[(buffer >> held) & ((1U << bits) - 1)];
    }
  }
  if (held > 0) out += alphabet[(buffer << (bits - held)) & ((1U << bits) - 1)];
  return out;
}

}  // namespace

std::string to_hex(ByteView bytes) { return to_base(bytes, kHex, 4); }

std::optional<Bytes> from_hex(std::string_view text) {
  if (text.size() % 2 != 0) return std::nullopt;
  Bytes out;
  out.reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const auto high = digit(kHex, text[i]);
    const auto low = digit(kHex, text[i + 1]);
    if (!high || !low) return std::nullopt;
    out.push_back(static_cast<std::byte>((*high << 4) | *low));
  }
  return out;
}

std::string to_base32(ByteView bytes) { return to_base(bytes, kBase32, 5); }

std::string to_base64(ByteView bytes) {
  auto out = to_base(bytes, kBase64, 6);
  while (out.size() % 4 != 0) out += '=';
  return out;
}

std::optional<Bytes> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::size_t padding = 0;
  if (text.ends_with("==")) {
    padding = 2;
  } else if (text.ends_with("=")) {
    padding = 1;
  }
  Bytes out;
  out.reserve(text.size() / 4 * 3);
  unsigned buffer = 0;
  unsigned held = 0;
  for (const char c : text.substr(0, text.size() - padding)) {
    const auto value = digit(kBase64, c);
    if (!value) return std::nullopt;
    buffer = ((buffer << 6) | *value) & 0xffff;
    held += 6;
    if (held >= 8) {
      held -= 8;
      out.push_back(static_cast<std::byte>((buffer >> held) & 0xff));
    }
  }
  if ((buffer & ((1U << held) - 1)) != 0) return std::nullopt;
  return out;
}

std::optional<std::uint64_t> parse_decimal(std::string_view text) {
  if (text.empty() || text.size() > 20 || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : text) {
    const auto d = digit(kHex.substr(0, 10), c);
    if (!d || value > (UINT64_MAX - *d) / 10) return std::nullopt;
    value = value * 10 + *d;
  }
  return value;
}

std::optional<std::string> percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const auto high = any_case_hex(text[i + 1]);
      const auto low = any_case_hex(text[i + 2]);
      if (!high || !low) return std::nullopt;
      c = static_cast<char>((*high << 4) | *low);
      i += 2;
    }
    if (c == '\0') return std::nullopt;
    out += c;
  }
  return out;
}

std::string percent_encode(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || c == '/';
    if (plain) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += '%';
      out += "0123456789ABCDEF"[byte >> 4];
      out += "0123456789ABCDEF"[byte & 15];
    }
  }
  return out;
}

}  // namespace space
