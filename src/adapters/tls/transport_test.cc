#include "adapters/tls/transport.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "adapters/tls/error.h"
#include "adapters/tls/testing/forge.h"
#include "base/text.h"
#include "ports/task_scope.h"

namespace space::tls {
namespace {

using identity::PeerRole;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::forge;
using testing::leaf_extensions;
using testing::OpenAuthority;

const WallTime kNow{seconds(1'800'000'000)};
constexpr auto kCap = seconds(60);

class SetClock final : public WallClock {
 public:
  WallTime now() const override { return time; }
  WallTime time = kNow;
};

class Recorder final : public Log {
 public:
  void event(Level, std::string_view name, std::initializer_list<Field> fields) override {
    for (const auto& field : fields) {
      if (name == "tls.refused" && field.name == "reason") refusals.push_back(field.value);
    }
  }
  std::vector<std::string> refusals;
};

// What came of one connection: who each side saw, or why not.
struct Outcome {
  std::optional<identity::PeerIdentity> client_saw;
  std::error_code client_error;
  std::optional<identity::PeerIdentity> server_saw;
  std::string server_refusal;
};

class Tls : public ::testing::Test {
 public:
  Credentials credentials(PeerRole role, const char* id, WallTime from = kNow,
                          seconds validity = hours(24)) {
    return credentials_of(ca_, role, id, from, validity);
  }
  static Credentials credentials_of(OpenAuthority& ca, PeerRole role, const char* id,
                                    WallTime from = kNow, seconds validity = hours(24)) {
    auto key = PrivateKey::generate();
    auto certificate = *ca.authority.issue(key.public_key(), role, *identity::PeerId::parse(id),
                                           from, validity, ca.entropy);
    return {std::move(key), std::move(certificate)};
  }
  Credentials forged(const std::string& names, WallTime from, WallTime to) {
    auto key = PrivateKey::generate();
    auto made = forge({leaf_extensions(names), from, to}, key.native(), ca_.key,
                      &ca_.authority.certificate());
    return {std::move(key), std::move(made)};
  }
  std::unique_ptr<Listener> listen(const Party& party, Protocol protocol = Protocol::kHop) {
    auto listener = listen_tls(loop_, party, log_, "tls:127.0.0.1:0", protocol);
    SPACE_ASSERT(listener);
    return *std::move(listener);
  }
  Outcome connect(const Party& client, const Party& server, Protocol client_protocol,
                  Protocol server_protocol) {
    Outcome outcome;
    log_.refusals.clear();
    const auto listener = listen(server, server_protocol);
    TlsDialer dialer(loop_, client, client_protocol);
    EXPECT_EQ(loop_.run(exchange(dialer, *listener, outcome), {}), 0);
    return outcome;
  }
  Outcome connect(const Party& client, const Party& server, Protocol protocol = Protocol::kHop) {
    return connect(client, server, protocol, protocol);
  }

  static Task<void> accept_one(Listener& listener, Outcome& outcome,
                               std::unique_ptr<Stream>& kept) {
    auto stream = co_await listener.accept();
    if (!stream) co_return;
    outcome.server_saw = (*stream)->identity();
    const auto hello = to_bytes("x");
    co_await (*stream)->write_all(hello);
    kept = *std::move(stream);
  }
  Task<int> exchange(Dialer& dialer, Listener& listener, Outcome& outcome) {
    TaskScope tasks(loop_);
    std::unique_ptr<Stream> kept;
    tasks.spawn("test.accept", accept_one(listener, outcome, kept));
    const auto deadline = loop_.now() + kCap;
    auto stream = co_await dialer.dial(address_of(listener), deadline);
    if (stream) {
      // TLS 1.3: only the first byte tells the client that it was accepted.
      Bytes byte(1);
      const auto count = co_await (*stream)->read_some(byte);
      if (count && *count == 1) outcome.client_saw = (*stream)->identity();
      if (!count) outcome.client_error = count.error();
    } else {
      outcome.client_error = stream.error();
    }
    if (!outcome.client_saw) {
      while (log_.refusals.empty() && loop_.now() < deadline) {
        co_await sleep_for(loop_, milliseconds(2));
      }
      if (!log_.refusals.empty()) outcome.server_refusal = log_.refusals.front();
    }
    listener.close();
    co_await tasks.stop();
    co_return 0;
  }

  asio::Loop loop_;
  SetClock clock_;
  Recorder log_;
  OpenAuthority ca_;
};

std::string text_of(Error error) { return make_error_code(error).message(); }

class Peers : public Tls {
 public:
  Peers() {
    EXPECT_TRUE(worker_.use(worker_credentials_));
    EXPECT_TRUE(node_api_.use(credentials(PeerRole::kNodeApi, "node-api")));
  }
  Party worker_{clock_, ca_.authority.certificate()};
  Party node_api_{clock_, ca_.authority.certificate()};
  Credentials worker_credentials_ = credentials(PeerRole::kWorker, "w3");
};

TEST_F(Peers, TR3_BothSidesLearnRoleIdAndKeyOfTheOther) {
  const auto outcome = connect(node_api_, worker_);
  ASSERT_TRUE(outcome.client_saw) << outcome.client_error.message() << outcome.server_refusal;
  ASSERT_TRUE(outcome.server_saw);
  EXPECT_EQ(outcome.client_saw->role, PeerRole::kWorker);
  EXPECT_EQ(outcome.client_saw->id.text(), "w3");
  EXPECT_EQ(outcome.client_saw->key, worker_credentials_.key.holder());
  EXPECT_EQ(outcome.server_saw->role, PeerRole::kNodeApi);
  EXPECT_EQ(outcome.server_saw->key, node_api_.credentials()->key.holder());
}

TEST_F(Peers, TR3_ACertificateOfAnotherCaIsRefusedByEitherSide) {
  OpenAuthority foreign;  // the same issuer name, another key
  Party stranger(clock_, foreign.authority.certificate());
  ASSERT_TRUE(stranger.use(credentials_of(foreign, PeerRole::kNodeApi, "node-api")));
  auto outcome = connect(stranger, worker_);
  EXPECT_FALSE(outcome.client_saw || outcome.server_saw);
  EXPECT_EQ(outcome.client_error, make_error_code(Error::kUntrusted));

  // One that believes our CA, so that its own certificate is what is judged.
  Party impostor(clock_, ca_.authority.certificate());
  ASSERT_TRUE(impostor.use(credentials_of(foreign, PeerRole::kNodeApi, "node-api")));
  outcome = connect(impostor, worker_);
  EXPECT_FALSE(outcome.client_saw || outcome.server_saw);
  EXPECT_EQ(outcome.server_refusal, text_of(Error::kUntrusted));
  EXPECT_EQ(outcome.client_error, make_error_code(Error::kRefused));
  outcome = connect(node_api_, impostor);
  EXPECT_FALSE(outcome.client_saw || outcome.server_saw);
  EXPECT_EQ(outcome.client_error, make_error_code(Error::kUntrusted));
}

TEST_F(Peers, TR3_ASelfSignedCertificateIsRefused) {
  auto key = PrivateKey::generate();
  auto made = forge(
      {leaf_extensions("URI:space://space/node-api/node-api"), kNow - hours(1), kNow + hours(1)},
      key.native(), key, nullptr);
  Party self(clock_, ca_.authority.certificate());
  ASSERT_TRUE(self.use({key, made}));
  const auto outcome = connect(self, worker_);
  EXPECT_FALSE(outcome.client_saw || outcome.server_saw);
  EXPECT_EQ(outcome.server_refusal, text_of(Error::kUntrusted));
}

TEST_F(Peers, TR3_ALeafOfOursCannotIssueAnother) {
  // A worker signs a control plane's certificate with its own key.
  auto key = PrivateKey::generate();
  auto made = forge({leaf_extensions("URI:space://space/control-plane/control-1"), kNow - hours(1),
                     kNow + hours(1)},
                    key.native(), worker_credentials_.key, &worker_credentials_.certificate);
  Party forger(clock_, ca_.authority.certificate());
  ASSERT_TRUE(forger.use({key, made}));
  const auto outcome = connect(forger, worker_);
  EXPECT_FALSE(outcome.client_saw || outcome.server_saw);
  EXPECT_EQ(outcome.server_refusal, text_of(Error::kUntrusted));
}

TEST_F(Peers, P2_DatesAreJudgedWithTheTolerance) {
  Party client(clock_, ca_.authority.certificate());
  ASSERT_TRUE(client.use(credentials(PeerRole::kNodeApi, "node-api", kNow, seconds(60))));
  clock_.time = kNow + seconds(60) + seconds(15) - milliseconds(1);
  EXPECT_TRUE(connect(client, worker_).server_saw);
  clock_.time = kNow + seconds(75);
  auto outcome = connect(client, worker_);
  EXPECT_FALSE(outcome.client_saw || outcome.server_saw);
  EXPECT_EQ(outcome.server_refusal, text_of(Error::kExpired));
  EXPECT_EQ(outcome.client_error, make_error_code(Error::kRefused));
  EXPECT_EQ(connect(worker_, client).client_error, make_error_code(Error::kExpired));

  clock_.time = kNow - seconds(15);
  EXPECT_TRUE(connect(client, worker_).server_saw);
  clock_.time = kNow - seconds(15) - milliseconds(1);
  ASSERT_TRUE(worker_.use(credentials(PeerRole::kWorker, "w3", kNow - hours(1))));
  EXPECT_EQ(connect(client, worker_).server_refusal, text_of(Error::kNotYetValid));
}

TEST_F(Peers, TR3_ACertificateThatNamesNobodyIsRefused) {
  for (const auto* names : {"DNS:localhost", "URI:space://other/node-api/node-api",
                            "URI:space://space/node-api/node-api,DNS:localhost"}) {
    Party client(clock_, ca_.authority.certificate());
    ASSERT_TRUE(client.use(forged(names, kNow - hours(1), kNow + hours(1))));
    const auto outcome = connect(client, worker_);
    EXPECT_FALSE(outcome.client_saw || outcome.server_saw);
    EXPECT_EQ(outcome.server_refusal, text_of(Error::kWrongIdentity)) << names;
  }
}

TEST_F(Peers, TR3_APartWithoutACertificateConnectsNowhere) {
  Party none(clock_, ca_.authority.certificate());
  const auto listener = listen(worker_);
  TlsDialer dialer(loop_, none);
  Outcome outcome;
  log_.refusals.push_back("-");  // nothing arrives at the listener
  EXPECT_EQ(loop_.run(exchange(dialer, *listener, outcome), {}), 0);
  EXPECT_EQ(outcome.client_error, make_error_code(Error::kNotEnrolled));

  outcome = connect(node_api_, none);
  EXPECT_FALSE(outcome.client_saw);
  EXPECT_EQ(outcome.server_refusal, text_of(Error::kNotEnrolled));
}

TEST_F(Peers, AKeyOfAnotherCertificateIsNotUsed) {
  auto mixed = worker_credentials_;
  mixed.key = PrivateKey::generate();
  EXPECT_FALSE(worker_.use(mixed));
  EXPECT_TRUE(connect(node_api_, worker_).client_saw) << "what was in use still is";
}

TEST_F(Peers, C020_ARenewedCertificateServesTheNextConnection) {
  ASSERT_TRUE(worker_.use(credentials(PeerRole::kWorker, "w3", kNow, seconds(60))));
  clock_.time = kNow + hours(1);
  EXPECT_EQ(connect(node_api_, worker_).client_error, make_error_code(Error::kExpired));
  ASSERT_TRUE(worker_.use(credentials(PeerRole::kWorker, "w3", clock_.time, seconds(60))));
  EXPECT_TRUE(connect(node_api_, worker_).client_saw);
}

// ---- enrolment ----

TEST_F(Peers, C020_AtTheEnrolmentListenerAnExpiredCertificateNamesItsHolder) {
  Party control(clock_, ca_.authority.certificate());
  clock_.time = kNow + hours(24 * 30);
  ASSERT_TRUE(control.use(credentials(PeerRole::kControlPlane, "control-1", clock_.time)));
  auto outcome = connect(worker_, control, Protocol::kEnrolment);
  ASSERT_TRUE(outcome.client_saw) << outcome.client_error.message() << outcome.server_refusal;
  ASSERT_TRUE(outcome.server_saw);
  EXPECT_EQ(outcome.server_saw->key, worker_credentials_.key.holder());
  // The control plane's own must be current.
  outcome = connect(control, worker_, Protocol::kEnrolment);
  EXPECT_EQ(outcome.client_error, make_error_code(Error::kExpired));
  // And nowhere else is an expired one enough.
  EXPECT_EQ(connect(worker_, control).server_refusal, text_of(Error::kExpired));
}

TEST_F(Peers, AMachineThatJoinsKnowsTheCaByItsFingerprint) {
  Party control(clock_, ca_.authority.certificate());
  ASSERT_TRUE(control.use(credentials(PeerRole::kControlPlane, "control-1")));
  Party joining(clock_, ca_.authority.certificate().fingerprint());
  auto outcome = connect(joining, control, Protocol::kEnrolment);
  ASSERT_TRUE(outcome.client_saw) << outcome.client_error.message() << outcome.server_refusal;
  EXPECT_EQ(outcome.client_saw->role, PeerRole::kControlPlane);
  EXPECT_FALSE(outcome.server_saw);

  OpenAuthority foreign;
  Party elsewhere(clock_, foreign.authority.certificate().fingerprint());
  outcome = connect(elsewhere, control, Protocol::kEnrolment);
  EXPECT_EQ(outcome.client_error, make_error_code(Error::kUntrusted));
  // A certificate is no fingerprint of a CA: the leaf itself is not believed.
  Party leaf(clock_, control.credentials()->certificate.fingerprint());
  outcome = connect(leaf, control, Protocol::kEnrolment);
  EXPECT_EQ(outcome.client_error, make_error_code(Error::kUntrusted));
}

TEST_F(Peers, AConnectionForOneProtocolIsNoUseForTheOther) {
  for (const auto& [dialled, listened] : {std::pair{Protocol::kEnrolment, Protocol::kHop},
                                          std::pair{Protocol::kHop, Protocol::kEnrolment}}) {
    const auto outcome = connect(node_api_, worker_, dialled, listened);
    EXPECT_FALSE(outcome.client_saw || outcome.server_saw);
    EXPECT_EQ(outcome.client_error, make_error_code(Error::kProtocol));
    EXPECT_EQ(outcome.server_refusal, text_of(Error::kProtocol));
  }
}

// ---- strangers ----

// Talks to a listener from a thread of its own, with blocking calls.
class Stranger : public Peers {
 public:
  // Runs `talk` on a connected socket; the listener's refusals are in log_ afterwards.
  void visit(const std::function<void(int)>& talk) {
    const auto listener = listen(worker_);
    const auto address = address_of(*listener);
    const auto port = parse_decimal(address.substr(address.rfind(':') + 1));
    std::atomic<bool> done = false;
    std::thread thread([&] {
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      timeval limit{.tv_sec = 60, .tv_usec = 0};
      ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_port = htons(static_cast<std::uint16_t>(*port));
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      if (::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) talk(fd);
      ::close(fd);
      done = true;
    });
    EXPECT_EQ(loop_.run(serve(*listener, done), {}), 0);
    thread.join();
  }
  Task<int> serve(Listener& listener, std::atomic<bool>& done) {
    TaskScope tasks(loop_);
    Outcome outcome;
    std::unique_ptr<Stream> kept;
    tasks.spawn("test.accept", accept_one(listener, outcome, kept));
    while (!done) co_await sleep_for(loop_, milliseconds(2));
    served_ = kept != nullptr;
    listener.close();
    co_await tasks.stop();
    co_return 0;
  }
  // A client with valid credentials, to be bent.
  Owned<SSL_CTX> context(bool with_certificate = true) {
    Owned<SSL_CTX> made(SSL_CTX_new(TLS_client_method()));
    const auto& own = *node_api_.credentials();
    if (with_certificate) {
      EXPECT_EQ(SSL_CTX_use_certificate(made.get(), own.certificate.native()), 1);
      EXPECT_EQ(SSL_CTX_use_PrivateKey(made.get(), own.key.native()), 1);
    }
    const auto offer = as_bytes("\x0bspace-hop/1");
    EXPECT_EQ(SSL_CTX_set_alpn_protos(made.get(), raw(offer), static_cast<unsigned>(offer.size())),
              0);
    return made;
  }
  // Whether a byte of the server arrives.
  static bool greeted(SSL* ssl) {
    char byte = 0;
    return SSL_connect(ssl) == 1 && SSL_read(ssl, &byte, 1) == 1;
  }
  bool greeted_with(SSL_CTX* context) {
    bool greeting = false;
    visit([&](int fd) {
      const Owned<SSL> ssl(SSL_new(context));
      SSL_set_fd(ssl.get(), fd);
      greeting = greeted(ssl.get());
    });
    return greeting;
  }
  bool served_ = false;
};

TEST_F(Stranger, WithTheRightCredentialsIsServed) {
  EXPECT_TRUE(greeted_with(context().get()));
  EXPECT_TRUE(served_);
}

TEST_F(Stranger, TR3_WithoutACertificateIsRefused) {
  EXPECT_FALSE(greeted_with(context(false).get()));
  EXPECT_FALSE(served_);
  ASSERT_EQ(log_.refusals.size(), 1U);
  EXPECT_EQ(log_.refusals.front(), text_of(Error::kNoCertificate));
}

TEST_F(Stranger, TR3_Tls12IsRefused) {
  const auto old = context();
  SSL_CTX_set_max_proto_version(old.get(), TLS1_2_VERSION);
  EXPECT_FALSE(greeted_with(old.get()));
  EXPECT_FALSE(served_);
}

TEST_F(Stranger, WithoutOurProtocolIsRefused) {
  const auto none = context();
  SSL_CTX_set_alpn_protos(none.get(), nullptr, 0);
  EXPECT_FALSE(greeted_with(none.get()));
  const auto other = context();
  const auto offer = as_bytes("\x08http/1.1\x02h2");
  SSL_CTX_set_alpn_protos(other.get(), raw(offer), static_cast<unsigned>(offer.size()));
  EXPECT_FALSE(greeted_with(other.get()));
  EXPECT_FALSE(served_);
}

TEST_F(Stranger, NoSessionCanBeResumed) {
  const auto made = context();
  bool greeting = false;
  bool resumable = true;
  visit([&](int fd) {
    const Owned<SSL> ssl(SSL_new(made.get()));
    SSL_set_fd(ssl.get(), fd);
    greeting = greeted(ssl.get());
    resumable = SSL_SESSION_is_resumable(SSL_get_session(ssl.get())) == 1;
  });
  EXPECT_TRUE(greeting);
  EXPECT_FALSE(resumable);
}

TEST_F(Stranger, PlainBytesEndTheConnection) {
  for (const std::string_view bytes : {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\xff\xff",
                                       "SPACE hop, in the clear, for a hundred bytes and more"}) {
    bool ended = false;
    visit([&](int fd) {
      if (::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) return;
      ::shutdown(fd, SHUT_WR);
      char buffer[256];
      ssize_t count = 0;
      while ((count = ::recv(fd, buffer, sizeof buffer, 0)) > 0) continue;  // an alert
      ended = count == 0 || errno == ECONNRESET;
    });
    EXPECT_TRUE(ended);
    EXPECT_FALSE(served_);
  }
}

TEST_F(Stranger, AFloodOfSilentConnectionsKeepsNobodyOut) {
  bool greeting = false;
  visit([&](int first) {
    sockaddr_in to{};
    socklen_t size = sizeof to;
    ::getpeername(first, reinterpret_cast<sockaddr*>(&to), &size);
    std::vector<int> silent;
    for (std::size_t i = 0; i < kMaxHandshakes + 8; ++i) {
      silent.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      ::connect(silent.back(), reinterpret_cast<const sockaddr*>(&to), sizeof to);
    }
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    const auto made = context();
    const Owned<SSL> ssl(SSL_new(made.get()));
    SSL_set_fd(ssl.get(), fd);
    greeting = greeted(ssl.get());
    ::close(fd);
    for (const int one : silent) ::close(one);
  });
  EXPECT_TRUE(greeting);
}

// ---- streams ----

class Streams : public Peers {
 public:
  struct Pair {
    std::unique_ptr<Stream> client;
    std::unique_ptr<Stream> server;
  };
  Task<Pair> make_pair(Listener& listener) {
    Pair pair;
    TlsDialer dialer(loop_, node_api_);
    auto client = co_await dialer.dial(address_of(listener), loop_.now() + kCap);
    SPACE_ASSERT(client);
    pair.client = *std::move(client);
    auto server = co_await listener.accept();
    SPACE_ASSERT(server);
    pair.server = *std::move(server);
    co_return pair;
  }
};

Task<void> send_all(Stream& stream, const Bytes& data, bool& sent) {
  sent = (co_await stream.write_all(data)).has_value();
}

Task<int> both_ways(asio::Loop& loop, Stream& a, Stream& b, const Bytes& data) {
  TaskScope tasks(loop);
  bool sent_a = false;
  bool sent_b = false;
  tasks.spawn("test.send", send_all(a, data, sent_a));
  tasks.spawn("test.send", send_all(b, data, sent_b));
  int status = 0;
  for (Stream* stream : {&a, &b}) {
    Bytes got;
    Bytes buffer(64U << 10);
    while (got.size() < data.size()) {
      const auto count = co_await stream->read_some(buffer);
      if (!count || *count == 0) co_return 1;
      got.insert(got.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(*count));
    }
    if (got != data) status = 2;
  }
  co_await tasks.join();
  co_return sent_a&& sent_b ? status : 3;
}

TEST_F(Streams, CarryBytesBothWaysAtOnce) {
  const auto listener = listen(worker_);
  Bytes data((5U << 20) + 7);
  std::uint32_t state = 1;
  for (auto& byte : data)
    byte = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
  auto run = [](Streams& test, Listener& at, const Bytes& bytes) -> Task<int> {
    auto pair = co_await test.make_pair(at);
    co_return co_await both_ways(test.loop_, *pair.client, *pair.server, bytes);
  };
  EXPECT_EQ(loop_.run(run(*this, *listener, data), {}), 0);
}

TEST_F(Streams, AnOrderlyEndIsToldFromABrokenConnection) {
  const auto listener = listen(worker_);
  auto run = [](Streams& test, Listener& at) -> Task<int> {
    Bytes buffer(16);
    auto pair = co_await test.make_pair(at);
    pair.client->close();
    const auto end = co_await pair.server->read_some(buffer);
    if (!end || *end != 0) co_return 1;
    const auto after = co_await pair.client->read_some(buffer);
    if (after || after.error() != std::errc::operation_canceled) co_return 2;

    auto other = co_await test.make_pair(at);
    other.client->reset();
    const auto broken = co_await other.server->read_some(buffer);
    co_return !broken && broken.error() == std::errc::connection_reset ? 0 : 3;
  };
  EXPECT_EQ(loop_.run(run(*this, *listener), {}), 0);
}

TEST_F(Streams, C021_EndWhenThePeersCertificateDoes) {
  ASSERT_TRUE(worker_.use(credentials(PeerRole::kWorker, "w3", kNow, seconds(60))));
  clock_.time = kNow + seconds(60) + seconds(15) - milliseconds(50);
  const auto listener = listen(worker_);
  auto run = [](Streams& test, Listener& at) -> Task<int> {
    auto pair = co_await test.make_pair(at);
    Bytes buffer(16);
    const auto ended = co_await pair.client->read_some(buffer);
    if (ended || ended.error() != std::errc::operation_canceled) co_return 1;
    const auto gone = co_await pair.server->read_some(buffer);
    co_return gone && *gone == 0 ? 0 : 2;
  };
  EXPECT_EQ(loop_.run(run(*this, *listener), {}), 0);
}

TEST_F(Streams, ADialEndsAtItsDeadline) {
  // A listener that never answers a handshake: its backlog takes the connection.
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  ASSERT_EQ(::listen(fd, 1), 0);
  ASSERT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size), 0);
  auto run = [](Streams& test, std::string address) -> Task<int> {
    TlsDialer dialer(test.loop_, test.node_api_);
    const auto stream = co_await dialer.dial(address, test.loop_.now() + milliseconds(50));
    co_return !stream && stream.error() == std::errc::timed_out ? 0 : 1;
  };
  EXPECT_EQ(loop_.run(run(*this, "tls:127.0.0.1:" + std::to_string(ntohs(at.sin_port))), {}), 0);
  ::close(fd);
}

TEST_F(Streams, TheSchemeOfAnAddressPicksTheDialler) {
  auto run = [](Streams& test, Listener& at) -> Task<int> {
    asio::UnixDialer unix_sockets(test.loop_);
    TlsDialer tls(test.loop_, test.node_api_);
    DialerByScheme dialer(unix_sockets, tls);
    const auto deadline = test.loop_.now() + kCap;
    const auto served = co_await dialer.dial(address_of(at), deadline);
    if (!served || !(*served)->identity()) co_return 1;
    for (const auto* address :
         {"", "tcp:127.0.0.1:1", "127.0.0.1:1", "tls:", "tls:127.0.0.1", "tls:127.0.0.1:0",
          "tls:127.0.0.1:65536", "tls:127.0.0.1:+1", "tls::1", "tls:::1:1", "tls:[127.0.0.1]:1"}) {
      const auto refused = co_await dialer.dial(address, deadline);
      if (refused || refused.error() != std::errc::invalid_argument) co_return 2;
    }
    const auto absent = co_await dialer.dial("unix:/nonexistent/a.sock", deadline);
    co_return !absent && absent.error() == std::errc::no_such_file_or_directory ? 0 : 3;
  };
  const auto listener = listen(worker_);
  EXPECT_EQ(loop_.run(run(*this, *listener), {}), 0);
}

}  // namespace
}  // namespace space::tls
