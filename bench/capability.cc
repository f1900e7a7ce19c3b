// bench-capability: what the manager's check of an opening costs (P-4, P-7, P-8), beside
// libsodium's own verification of an equal message. Prints the CPU time per check of every round as
// JSON.
#include <sodium.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "adapters/asio/loop.h"
#include "adapters/crypto/ed25519_signer.h"
#include "adapters/crypto/sodium_verifier.h"
#include "adapters/crypto/system_entropy.h"
#include "base/check.h"
#include "core/identity/comparator.h"
#include "core/identity/key_bundle.h"
#include "core/identity/lease.h"
#include "core/identity/testing/samples.h"

namespace {

using namespace space;
using namespace space::identity;

constexpr std::size_t kSandboxes = 64;
constexpr std::size_t kTokens = 2048;  // different ones; the manager's cache takes more

double cpu_ns() {
  timespec now{};
  SPACE_ASSERT(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// What a manager has when an opening arrives, and the openings.
class Manager {
 public:
  Manager() {
    const crypto::Ed25519Signer signer({1}, seed());
    key_ = signer.public_key();
    identity::testing::SplitMix random(1);
    const auto now = clock_.now();
    auto bundle = identity::testing::sample_bundle();
    bundle.valid_until = now + kBundleValidity;
    bundle.keys.front().key = key_;
    SPACE_ASSERT(!ring_.install(bundle, now));
    std::vector<RouteIdentity> routes;
    for (std::size_t i = 0; i < kSandboxes; ++i) {
      auto record = identity::testing::sample_record();
      record.route.sandbox = random.name<SandboxId>();
      record.route.activation = random.id<ActivationId>();
      routes.push_back(record.route);
      records_.emplace(record.route.sandbox, record);
    }
    for (std::size_t i = 0; i < kTokens; ++i) {
      auto claims = identity::testing::sample_claims();
      claims.route = routes[i % routes.size()];
      claims.issued_at = now;
      claims.expires_at = now + kCapabilityLifetime;
      claims.id = random.id<CapabilityId>();
      const auto bytes = encode_claims(claims);
      const auto message = signature_message(bytes);
      const auto signature = signer.sign(message);
      tokens_.push_back({claims.route.sandbox, seal(bytes, signature), message, signature});
    }
    context_.demand = identity::testing::demand_of(identity::testing::sample_claims());
    context_.demand.access = AccessSet{}.with(Access::kFilesRead);
  }

  // Everything that admission asks of an opening before it takes the lease; then that, too, if
  // `with_lease`, and its release.
  bool check(std::size_t token, SignatureCache& cache, bool with_lease) {
    const auto& open = tokens_[token];
    context_.now = clock_.now();
    const auto verified = verify(open.sealed, ring_, verifier_, &cache, context_);
    if (!verified) return false;
    const auto at = records_.find(open.sandbox);
    Receiver receiver;
    if (at != records_.end()) receiver.record = &at->second;
    const auto comparison = compare(open.sandbox, verified->claims(), receiver);
    if (!std::holds_alternative<Match>(comparison)) return false;
    if (with_lease) leases_.release(leases_.take(verified->claims(), epoch_, kMaxClockTolerance));
    return true;
  }
  bool check_seen(std::size_t token) { return check(token, seen_, false); }
  bool check_seen_and_lease(std::size_t token) { return check(token, seen_, true); }
  bool check_new(std::size_t token) { return check(token, empty_, false); }
  // Makes every token new again.
  void forget() { empty_.clear(); }
  bool libsodium(std::size_t token) const {
    const auto& open = tokens_[token];
    return ::crypto_sign_verify_detached(as_sodium(open.signature), as_sodium(open.message),
                                         open.message.size(), as_sodium(key_.view())) == 0;
  }
  std::size_t message_bytes() const { return tokens_.front().message.size(); }

 private:
  struct Opening {
    SandboxId sandbox;
    SealedCapability sealed;
    Bytes message;
    std::array<std::byte, kSignatureBytes> signature;
  };
  static crypto::SigningSeed seed() {
    std::array<std::byte, 32> bytes{};
    crypto::SystemEntropy().fill(bytes);
    return crypto::SigningSeed(bytes);
  }

  static const unsigned char* as_sodium(ByteView bytes) {
    return reinterpret_cast<const unsigned char*>(bytes.data());
  }

  asio::SystemClock clock_;
  crypto::SodiumVerifier verifier_;
  KeyRing ring_;
  PublicKey key_;
  SignatureCache seen_{7};
  SignatureCache empty_{7};
  LeaseTable leases_;
  Epoch epoch_;
  VerifyContext context_;
  std::map<SandboxId, RuntimeRecord> records_;
  std::vector<Opening> tokens_;
};

// CPU time of one call, over `calls` of them with the tokens `first`, `first` + `step`, ...
template <class Call>
double each_ns(std::size_t calls, std::size_t first, std::size_t step, Call call) {
  const auto begin = cpu_ns();
  for (std::size_t i = 0; i < calls; ++i) SPACE_ASSERT(call((first + i * step) % kTokens));
  return (cpu_ns() - begin) / static_cast<double>(calls);
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t rounds = 51;
  CLI::App app("Prints the CPU time of the manager's capability check as JSON");
  app.add_option("--rounds", rounds)->check(CLI::Range(1, 100'000));
  CLI11_PARSE(app, argc, argv);

  Manager manager;
  const auto seen = [&](std::size_t token) { return manager.check_seen(token); };
  const auto leased = [&](std::size_t token) { return manager.check_seen_and_lease(token); };
  const auto fresh = [&](std::size_t token) { return manager.check_new(token); };
  const auto libsodium = [&](std::size_t token) { return manager.libsodium(token); };
  each_ns(kTokens, 0, 1, seen);

  constexpr std::size_t kStep = 769;  // from token to token, as requests of many sandboxes come
  constexpr std::size_t kSlow = 64;   // calls of what takes tens of microseconds
  std::printf("{\"message_bytes\":%zu,\"tokens\":%zu,\"sandboxes\":%zu,\"rounds\":[",
              manager.message_bytes(), kTokens, kSandboxes);
  for (std::size_t round = 0; round < rounds; ++round) {
    const auto first = round * kSlow % kTokens;
    manager.forget();
    const auto one = each_ns(kTokens, first, 0, seen);
    const auto many = each_ns(kTokens, first, kStep, seen);
    const auto with_lease = each_ns(kTokens, first, kStep, leased);
    const auto of_libsodium = each_ns(kSlow, first, 1, libsodium);
    const auto of_new = each_ns(kSlow, first, 1, fresh);
    std::printf(
        "%s{\"seen_same_ns\":%.1f,\"seen_ns\":%.1f,\"seen_lease_ns\":%.1f,"
        "\"new_ns\":%.1f,\"libsodium_ns\":%.1f}",
        round == 0 ? "" : ",", one, many, with_lease, of_new, of_libsodium);
  }
  std::printf("]}\n");
}
