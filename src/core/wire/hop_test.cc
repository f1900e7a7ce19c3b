#include "core/wire/hop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/wire/testing/two_ends.h"

namespace space::wire::hop {
namespace {

using testing::kAllTypes;
using testing::sample_payload;

class Seeded {
 public:
  explicit Seeded(std::uint64_t seed) : random_(seed) {}
  std::uint32_t operator()(std::uint32_t bound) {
    return static_cast<std::uint32_t>(random_() % bound);
  }

 private:
  std::mt19937_64 random_;
};

Bytes encoded(const Frame& frame) {
  Bytes out;
  encode(frame, out);
  return out;
}

std::expected<std::optional<Frame>, FrameError> decode_one(ByteView bytes) {
  Decoder decoder;
  decoder.feed(bytes);
  return decoder.next();
}

// Small frames of every type.
std::vector<Frame> one_of_each() {
  Seeded choose(1);
  std::vector<Frame> frames;
  for (const auto type : kAllTypes) {
    Frame frame{static_cast<StreamId>(frames.size()), sample_payload(type, choose)};
    if (auto* data = std::get_if<Data>(&frame.payload)) data->bytes = to_bytes("some bytes");
    frames.push_back(std::move(frame));
  }
  return frames;
}

// The payload with its length changed to `bytes`, in a valid header.
Bytes with_payload(const Bytes& frame, ByteView payload) {
  ByteWriter out;
  out.u32(static_cast<std::uint32_t>(payload.size()));
  out.raw(ByteView(frame).subspan(4, kHeaderBytes - 4));
  out.raw(payload);
  return out.take();
}

TEST(HopCodec, EveryTypeIsKnownNamedAndSampled) {
  std::size_t known = 0;
  for (unsigned n = 0; n <= UINT8_MAX; ++n) {
    const auto type = static_cast<FrameType>(n);
    EXPECT_EQ(is_known(type), std::ranges::find(kAllTypes, type) != kAllTypes.end()) << n;
    if (is_known(type)) ++known;
  }
  EXPECT_EQ(known, std::variant_size_v<Payload>);
  Seeded choose(1);
  for (const auto type : kAllTypes) {
    EXPECT_EQ(type_of(sample_payload(type, choose)), type) << to_string(type);
  }
}

TEST(HopCodec, EveryFrameRoundTrips) {
  Seeded choose(2);
  for (int i = 0; i < 20; ++i) {
    for (const auto type : kAllTypes) {
      const Frame frame{choose(UINT32_MAX), sample_payload(type, choose)};
      const auto bytes = encoded(frame);
      const auto again = decode_one(bytes);
      ASSERT_TRUE(again && *again) << to_string(type);
      EXPECT_EQ((*again)->stream, frame.stream);
      EXPECT_EQ(type_of((*again)->payload), type);
      EXPECT_EQ(encoded(**again), bytes) << to_string(type);
    }
  }
}

TEST(HopCodec, EverySplitPointYieldsTheSameFrames) {
  const auto frames = one_of_each();
  Bytes stream;
  for (const auto& frame : frames) encode(frame, stream);
  for (std::size_t split = 0; split <= stream.size(); ++split) {
    Decoder decoder;
    Bytes again;
    std::size_t count = 0;
    for (const auto part : {ByteView(stream).first(split), ByteView(stream).subspan(split)}) {
      decoder.feed(part);
      for (;;) {
        const auto next = decoder.next();
        ASSERT_TRUE(next) << split;
        if (!*next) break;
        encode(**next, again);
        ++count;
      }
    }
    ASSERT_EQ(count, frames.size()) << split;
    ASSERT_EQ(again, stream) << split;
    ASSERT_EQ(decoder.buffered(), 0U);
  }
}

TEST(HopCodec, FedByteByByteALongStreamKeepsTheBufferSmall) {
  Bytes stream;
  for (std::uint64_t i = 0; i < 8; ++i) encode_data(1, i * 60'000, Bytes(60'000), stream);
  Decoder decoder;
  std::size_t frames = 0;
  for (std::size_t at = 0; at < stream.size(); at += 999) {
    decoder.feed(ByteView(stream).subspan(at, std::min<std::size_t>(999, stream.size() - at)));
    for (auto next = decoder.next(); next && *next; next = decoder.next()) ++frames;
    ASSERT_LT(decoder.buffered(), kHeaderBytes + kMaxPayloadBytes);
  }
  EXPECT_EQ(frames, 8U);
}

TEST(HopCodec, EveryTruncatedOrExtendedPayloadIsRefused) {
  for (const auto& frame : one_of_each()) {
    const auto type = type_of(frame.payload);
    const auto bytes = encoded(frame);
    const auto payload = ByteView(bytes).subspan(kHeaderBytes);
    for (std::size_t n = 0; n < payload.size(); ++n) {
      const auto judged = decode_one(with_payload(bytes, payload.first(n)));
      if (type == FrameType::kData && n > 8) {
        EXPECT_TRUE(judged);  // fewer bytes of data are data
      } else {
        ASSERT_FALSE(judged) << to_string(type) << " " << n;
        EXPECT_EQ(judged.error(), FrameError::kMalformed);
      }
    }
    if (type == FrameType::kData) continue;
    Bytes longer(payload.begin(), payload.end());
    longer.push_back(std::byte{0});
    EXPECT_FALSE(decode_one(with_payload(bytes, longer))) << to_string(type);
  }
}

TEST(HopCodec, AnyChangeOfTheHeaderIsRefusedAndTheDecoderStaysFailed) {
  const auto good = encoded(Frame{3, Ping{5}});
  const auto with = [&](std::size_t at, std::uint8_t value) {
    auto bytes = good;
    bytes[at] = std::byte{value};
    return bytes;
  };
  const auto error = [](const Bytes& bytes) {
    Decoder decoder;
    decoder.feed(bytes);
    const auto first = decoder.next();
    EXPECT_FALSE(first);
    decoder.feed(encoded(Frame{3, Ping{5}}));
    EXPECT_EQ(decoder.buffered(), 0U);
    const auto second = decoder.next();
    EXPECT_FALSE(second);
    EXPECT_EQ(first.error(), second.error());
    return first.error();
  };
  EXPECT_EQ(error(with(4, 0)), FrameError::kUnknownType);
  EXPECT_EQ(error(with(4, 31)), FrameError::kUnknownType);
  EXPECT_EQ(error(with(4, 255)), FrameError::kUnknownType);
  EXPECT_EQ(error(with(5, 1)), FrameError::kBadFlags);
  EXPECT_EQ(error(with(6, 1)), FrameError::kBadFlags);
  EXPECT_EQ(error(with(7, 0x80)), FrameError::kBadFlags);
  EXPECT_EQ(error(with(0, 1)), FrameError::kTooLarge);
}

TEST(HopCodec, ALengthBeyondTheBoundIsRefusedFromTheHeaderAlone) {
  ByteWriter header;
  header.u32(kMaxPayloadBytes + 1);
  header.u8(static_cast<std::uint8_t>(FrameType::kBundle));
  header.u8(0);
  header.u16(0);
  header.u32(1);
  const auto judged = decode_one(header.view());
  ASSERT_FALSE(judged);
  EXPECT_EQ(judged.error(), FrameError::kTooLarge);
}

// A payload that the record codec reads, but whose sizes are out of bounds.
template <class T>
void expect_out_of_bounds(FrameType type, const T& payload) {
  const auto bytes = wire::encode(payload);
  ByteWriter out;
  out.u32(static_cast<std::uint32_t>(bytes.size()));
  out.u8(static_cast<std::uint8_t>(type));
  out.u8(0);
  out.u16(0);
  out.u32(1);
  out.raw(bytes);
  const auto judged = decode_one(out.view());
  ASSERT_FALSE(judged) << to_string(type);
  EXPECT_EQ(judged.error(), FrameError::kMalformed);
  Bytes unused;
  EXPECT_DEATH(encode(Frame{1, payload}, unused), "") << to_string(type);
}

TEST(HopCodecDeathTest, SizesBeyondTheBoundsAreRefusedAndNeverWritten) {
  Hello hello;
  hello.peer_id = std::string(65, 'a');
  expect_out_of_bounds(FrameType::kHello, hello);
  expect_out_of_bounds(FrameType::kProof, Proof{{}, std::string(65, 'a'), {}});
  const auto route = testing::sample_route();
  expect_out_of_bounds(FrameType::kRekey, Rekey{route, Bytes(31), 1, {}});
  Open open;
  open.attempt = 2;
  expect_out_of_bounds(FrameType::kOpen, open);
  open.attempt = 1;
  open.metadata = Bytes(kMaxMetadataBytes + 1);
  expect_out_of_bounds(FrameType::kOpen, open);
  open.metadata.clear();
  open.authority = Capability{Bytes(identity::kMaxSealedBytes + 1)};
  expect_out_of_bounds(FrameType::kOpen, open);
  expect_out_of_bounds(FrameType::kAdmitted, Admitted{route, 1, {1}, {}, kMaxWindow + 1});
  expect_out_of_bounds(FrameType::kCredit, Credit{0});
  End end;
  end.message = std::string(1025, 'a');
  expect_out_of_bounds(FrameType::kEnd, end);
  end.message.clear();
  end.result = Bytes(kMaxMetadataBytes + 1);
  expect_out_of_bounds(FrameType::kEnd, end);
  expect_out_of_bounds(FrameType::kRenew, Renew{{Bytes(identity::kMaxSealedBytes + 1)}});
  expect_out_of_bounds(FrameType::kInstall, Install{{}, Bytes(33), 1});
  expect_out_of_bounds(FrameType::kActivate, Activate{route, 1, {}, {}});
  expect_out_of_bounds(FrameType::kActivate,
                       Activate{route, 1, Bytes(32), Rekey{route, Bytes(0), 1, {}}});
  expect_out_of_bounds(FrameType::kActivateAck,
                       ActivateAck{ActivateOutcome::kReady, std::string(65, 'a')});
}

TEST(HopCodecDeathTest, DataHasOneToMaxBytes) {
  Bytes out;
  EXPECT_DEATH(encode_data(1, 0, {}, out), "");
  EXPECT_DEATH(encode_data(1, 0, Bytes(kMaxDataBytes + 1), out), "");
  EXPECT_DEATH(encode(Frame{1, Data{}}, out), "");
  encode_data(1, 77, Bytes(kMaxDataBytes), out);
  const auto whole = decode_one(out);
  ASSERT_TRUE(whole && *whole);
  EXPECT_EQ(std::get<Data>((*whole)->payload).offset, 77U);

  const auto one = encoded(Frame{1, Data{0, Bytes(1)}});
  EXPECT_FALSE(decode_one(with_payload(one, Bytes(8))));
  EXPECT_FALSE(decode_one(with_payload(one, Bytes(8 + kMaxDataBytes + 1))));
}

}  // namespace
}  // namespace space::wire::hop
