#include "core/wire/record.h"

#include <gtest/gtest.h>

#include "core/wire/messages.h"
#include "core/wire/testing/two_ends.h"

namespace space::wire {
namespace {

struct Everything {
  bool flag = true;
  FileType type = FileType::kSymlink;
  std::int32_t negative = -5;
  std::uint64_t large = 0x0102030405060708;
  WallTime time{std::chrono::milliseconds{-1}};
  std::string text = "text";
  Bytes bytes = to_bytes("bytes");
  std::optional<std::uint16_t> absent;
  std::optional<std::string> present = "here";
  std::vector<std::uint32_t> numbers{3, 1, 2};
  std::map<std::string, std::string> map{{"a", "1"}, {"b", "2"}};
  std::variant<std::monostate, std::string> variant = "second";
  identity::SandboxId sandbox = *identity::SandboxId::parse("s1");
  identity::Generation generation{7};
  identity::AccessSet access = identity::AccessSet{}.with(identity::Access::kWatch);
  identity::RouteIdentity route = hop::testing::sample_route();
  static void fields(auto& r, auto& f) {
    f(r.flag, r.type, r.negative, r.large, r.time, r.text, r.bytes, r.absent, r.present, r.numbers,
      r.map, r.variant, r.sandbox, r.generation, r.access, r.route);
  }
  friend bool operator==(const Everything&, const Everything&) = default;
};

template <class T>
struct Only {
  T value{};
  static void fields(auto& r, auto& f) { f(r.value); }
};

template <class T>
std::optional<T> read(std::initializer_list<std::uint8_t> raw) {
  Bytes bytes;
  for (const auto b : raw) bytes.push_back(std::byte{b});
  const auto record = decode<Only<T>>(bytes);
  if (!record) return std::nullopt;
  return record->value;
}

TEST(Record, EveryKindOfFieldRoundTrips) {
  const Everything record;
  EXPECT_EQ(decode<Everything>(encode(record)), record);
}

TEST(Record, EveryTruncationAndExtensionIsRefused) {
  auto bytes = encode(Everything{});
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(decode<Everything>(ByteView(bytes).first(n))) << n;
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode<Everything>(bytes));
}

TEST(Record, EveryBitFlipIsRefusedOrReadAsItsOnlyEncoding) {
  const auto bytes = encode(Everything{});
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    auto changed = bytes;
    changed[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    if (const auto record = decode<Everything>(changed)) {
      EXPECT_EQ(encode(*record), changed) << bit;
    }
  }
}

TEST(Record, OnlyKnownValuesAreRead) {
  EXPECT_EQ(read<bool>({0}), false);
  EXPECT_EQ(read<bool>({1}), true);
  EXPECT_FALSE(read<bool>({2}));
  EXPECT_EQ(read<FileType>({4}), FileType::kOther);
  EXPECT_FALSE(read<FileType>({0}));
  EXPECT_FALSE(read<FileType>({5}));
  EXPECT_TRUE(read<policy::Operation>({0, 1}));
  EXPECT_FALSE(read<policy::Operation>({0, 8}));
  EXPECT_FALSE(read<std::optional<bool>>({2, 1}));
  EXPECT_FALSE((read<std::variant<bool, bool>>({2, 1})));
  EXPECT_FALSE(read<identity::AccessSet>({0, 0x40}));
  EXPECT_FALSE(read<identity::SandboxId>({1, 'A'}));
  EXPECT_FALSE(read<identity::SandboxId>({0}));
}

TEST(Record, MapKeysAscendStrictly) {
  using Map = std::map<std::uint8_t, std::uint8_t>;
  EXPECT_EQ(read<Map>({0, 0, 0, 2, 1, 9, 2, 9}), (Map{{1, 9}, {2, 9}}));
  EXPECT_FALSE(read<Map>({0, 0, 0, 2, 2, 9, 1, 9}));
  EXPECT_FALSE(read<Map>({0, 0, 0, 2, 1, 9, 1, 9}));
}

TEST(Record, CountsAndLengthsBeyondTheInputAreRefused) {
  EXPECT_FALSE(read<std::vector<std::uint64_t>>({0xff, 0xff, 0xff, 0xff, 1, 2}));
  EXPECT_FALSE(read<std::vector<std::string>>({0, 0, 0, 3, 0, 0}));
  EXPECT_FALSE((read<std::map<std::uint8_t, std::uint8_t>>({0xff, 0xff, 0xff, 0xff, 1, 2})));
  EXPECT_FALSE(read<std::string>({0xff, 0xff, 0xff, 0xff, 'a'}));
  EXPECT_FALSE(read<Bytes>({0, 0, 0, 2, 'a'}));
}

TEST(Messages, SandboxStatesHaveNames) {
  EXPECT_EQ(to_string(SandboxState::kCreating), "creating");
  EXPECT_EQ(to_string(SandboxState::kLost), "lost");
}

TEST(Messages, ProcessEventsOfEveryKindRoundTrip) {
  for (const auto& event : {ProcessEvent{ProcessStarted{42}},
                            ProcessEvent{ProcessOutput{OutputChannel::kStderr, to_bytes("out")}},
                            ProcessEvent{ProcessExited{137, 9, false, true, false}}}) {
    const auto bytes = encode(event);
    const auto again = decode<ProcessEvent>(bytes);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->event.index(), event.event.index());
    EXPECT_EQ(encode(*again), bytes);
  }
}

}  // namespace
}  // namespace space::wire
