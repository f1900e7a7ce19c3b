#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/strong_id.h"
#include "base/text.h"

namespace space {
namespace {

using TestName = StrongName<struct TestNameTag, 32>;

TEST(ByteReader, ReadsBackWhatTheWriterWrote) {
  ByteWriter out;
  out.u8(1);
  out.u16(0x0203);
  out.u32(0x04050607);
  out.u64(0x08090a0b0c0d0e0f);
  out.text16("hello");
  ByteReader in(out.view());
  EXPECT_EQ(in.u8(), 1);
  EXPECT_EQ(in.u16(), 0x0203);
  EXPECT_EQ(in.u32(), 0x04050607U);
  EXPECT_EQ(in.u64(), 0x08090a0b0c0d0e0fU);
  EXPECT_EQ(in.text16(), "hello");
  EXPECT_TRUE(in.complete());
}

TEST(ByteReader, StaysFailedAfterAReadPastTheEnd) {
  const auto bytes = to_bytes("ab");
  ByteReader in(bytes);
  EXPECT_EQ(in.u32(), 0U);
  EXPECT_EQ(in.u8(), 0U);
  EXPECT_FALSE(in.complete());
}

TEST(ByteReader, LeftoverBytesAreNotComplete) {
  const auto bytes = to_bytes("ab");
  ByteReader in(bytes);
  in.u8();
  EXPECT_FALSE(in.complete());
}

TEST(Hex, RoundTripsAndRefusesOtherForms) {
  EXPECT_EQ(to_hex(to_bytes("\x01\xab")), "01ab");
  EXPECT_EQ(from_hex("01ab"), to_bytes("\x01\xab"));
  EXPECT_FALSE(from_hex("01AB"));
  EXPECT_FALSE(from_hex("01a"));
  EXPECT_FALSE(from_hex("0g"));
}

TEST(Base64, C015_EveryOtherSpellingOfTheSameBytesIsRefused) {
  for (const std::string text : {"", "f", "fo", "foo", "foob"}) {
    EXPECT_EQ(from_base64(to_base64(to_bytes(text))), to_bytes(text));
  }
  EXPECT_EQ(to_base64(to_bytes("foob")), "Zm9vYg==");
  EXPECT_FALSE(from_base64("Zm9vYh=="));
  EXPECT_FALSE(from_base64("Zm9vYg"));
  EXPECT_FALSE(from_base64("Zm9v\n"));
  EXPECT_FALSE(from_base64("Zm==vYg="));
  EXPECT_FALSE(from_base64("===="));
}

TEST(Decimal, IsStrict) {
  EXPECT_EQ(parse_decimal("0"), 0U);
  EXPECT_EQ(parse_decimal("18446744073709551615"), UINT64_MAX);
  for (const char* bad : {"", "01", "+1", "-1", " 1", "1 ", "18446744073709551616", "1e3", "0x1"}) {
    EXPECT_FALSE(parse_decimal(bad)) << bad;
  }
}

TEST(PercentDecode, C082_DecodesOnceAndRefusesBadEscapesAndNul) {
  EXPECT_EQ(percent_decode("a%2Fb"), "a/b");
  EXPECT_EQ(percent_decode("%252e"), "%2e");
  EXPECT_FALSE(percent_decode("%zz"));
  EXPECT_FALSE(percent_decode("%0"));
  EXPECT_FALSE(percent_decode("%00"));
  EXPECT_EQ(percent_decode(percent_encode("ö %/\n")), "ö %/\n");
}

TEST(StrongName, AcceptsOnlyDnsLabels) {
  EXPECT_TRUE(TestName::parse("a1-b"));
  for (const char* bad : {"", "A", "-a", "a-", "a.b", "a_b", "a b"})
    EXPECT_FALSE(TestName::parse(bad));
  EXPECT_FALSE(TestName::parse(std::string(33, 'a')));
}

}  // namespace
}  // namespace space
