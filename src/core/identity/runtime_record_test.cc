#include "core/identity/runtime_record.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/identity/testing/samples.h"

namespace space::identity {
namespace {

using testing::sample_record;

TEST(RuntimeRecord, RCV6_RandomRecordsReadBackAsWritten) {
  testing::SplitMix random(3);
  for (int i = 0; i < 500; ++i) {
    const auto record = testing::random_record(random);
    ASSERT_EQ(decode_record(encode_record(record)), record);
  }
}

TEST(RuntimeRecord, EveryTruncationAndExtensionIsRefused) {
  auto bytes = encode_record(sample_record());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_record(ByteView(bytes).first(size))) << size;
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode_record(bytes));
}

TEST(RuntimeRecord, EveryAcceptedByteStringIsTheOneEncoding) {
  const auto good = encode_record(sample_record());
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      auto bytes = good;
      bytes[at] = static_cast<std::byte>(value);
      if (const auto record = decode_record(bytes)) ASSERT_EQ(encode_record(*record), bytes);
    }
  }
}

TEST(RuntimeRecord, APidThatKillWouldTakeForAGroupIsRefused) {
  const auto record = sample_record();
  const auto good = encode_record(record);
  ByteWriter pid;
  pid.u32(4242);
  const auto at = std::ranges::search(good, pid.view()).begin();
  ASSERT_NE(at, good.end());
  for (const auto first : {std::byte{0x80}, std::byte{0xff}}) {
    auto bytes = good;
    bytes[static_cast<std::size_t>(at - good.begin())] = first;
    EXPECT_FALSE(decode_record(bytes));
  }
  auto bytes = good;
  std::ranges::fill_n(bytes.begin() + (at - good.begin()), 4, std::byte{0});
  EXPECT_FALSE(decode_record(bytes));
  auto zero = record;
  zero.guest_process->pid = 0;
  EXPECT_DEATH(encode_record(zero), "pid");
}

TEST(RuntimeRecord, LimitsHoldInBothDirections) {
  auto record = sample_record();
  record.runtime_handle = std::string(4097, 'x');
  EXPECT_DEATH(encode_record(record), "runtime_handle");
  record = sample_record();
  record.transport->socket_path = std::string(1025, 'x');
  EXPECT_DEATH(encode_record(record), "socket_path");
}

}  // namespace
}  // namespace space::identity
