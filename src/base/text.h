#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"

// Text forms of bytes and numbers: one canonical form each, everything else refused.
namespace space {

// Lower-case hexadecimal. `from_hex` refuses upper case, odd length and anything else.
std::string to_hex(ByteView bytes);
std::optional<Bytes> from_hex(std::string_view text);

// RFC 4648 base32 alphabet in lower case (a-z2-7), without padding.
std::string to_base32(ByteView bytes);

// RFC 4648 base64 with padding. `from_base64` refuses any other form, unused bits set included
// (C015).
std::string to_base64(ByteView bytes);
std::optional<Bytes> from_base64(std::string_view text);

// Strict decimal: digits only, no sign, no leading zero, fits 64 bits.
std::optional<std::uint64_t> parse_decimal(std::string_view text);

// Percent-decoding of one URL component, once. Refuses a bad escape and NUL (C082). '+' stays '+'.
std::optional<std::string> percent_decode(std::string_view text);
// Escapes everything but unreserved characters and '/'.
std::string percent_encode(std::string_view text);

}  // namespace space
