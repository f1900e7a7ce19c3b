#include <optional>
#include <utility>

#include "core/identity/key_bundle.h"
#include "core/identity/testing/keyed_hash_signatures.h"
#include "services/sbx_manager/sbx_manager.h"
#include "sim/fleet.h"
#include "sim/workload.h"

namespace space::sim {
namespace {

namespace frame = wire::hop;
using identity::RouteIdentity;
using std::chrono::seconds;

constexpr std::uint32_t kClientUid = kFirstGatewayUid;
constexpr std::size_t kContentBytes = 3000;

enum class Ending { kServed, kRefused, kCut, kUnfinished };

// One manager on its machine, a control plane and a node-api that are nothing but frames, and two
// executions of one sandbox: generation 1 serves, the install of generation 2 waits for its record
// to be written. One operation on generation 1; the write goes through exactly at step `at` of the
// operation.
class OneInstall {
 public:
  OneInstall(std::uint64_t seed, std::optional<std::uint64_t> at, bool trace)
      : world_(seed),
        oracle_(world_),
        network_(world_),
        entropy_(seed ^ 0x5eed),
        log_(world_, "install", trace),
        clock_(world_),
        machine_({world_, network_, oracle_, entropy_, log_}, worker_, artifacts_),
        at_(at),
        write_(world_.random().below(2) == 0),
        tasks_(world_) {
    NetworkFaults faults;
    faults.split_permille = 800;
    network_.set_faults(faults);
  }

  void run() {
    if (!world_.run(main(), seconds(120)))
      oracle_.violated("the operation or the install never ends");
  }
  const std::optional<std::string>& violation() const { return oracle_.violation(); }
  Ending ending() const { return ending_; }
  std::uint64_t operation_steps() const { return operation_steps_; }
  std::uint64_t steps() const { return world_.steps(); }
  std::uint64_t digest() const { return world_.digest(); }

 private:
  RouteIdentity route(std::uint64_t generation) const {
    RouteIdentity route;
    route.sandbox = sandbox_;
    route.generation = {generation};
    route.worker = worker_;
    route.activation = *identity::ActivationId::from(
        ByteView(identity::sha256(as_bytes("activation " + std::to_string(generation)))).first(16));
    return route;
  }
  static Bytes secret(std::uint64_t generation) {
    const auto digest = identity::sha256(as_bytes("secret " + std::to_string(generation)));
    return {digest.begin(), digest.end()};
  }
  identity::HolderId holder() const {
    return *identity::HolderId::from(identity::sha256(as_bytes("the client")));
  }
  Bytes capability(std::uint64_t generation) const {
    identity::Claims claims;
    claims.key = signer_.key_id();
    claims.issuer = *identity::Issuer::parse("control");
    claims.route = route(generation);
    claims.access = identity::AccessSet{}
                        .with(identity::Access::kFilesRead)
                        .with(identity::Access::kFilesWrite);
    claims.holder = holder();
    claims.issued_at = clock_.now();
    claims.expires_at = claims.issued_at + identity::kCapabilityLifetime;
    const auto bytes = identity::encode_claims(claims);
    return identity::seal(bytes, signer_.sign(identity::signature_message(bytes))).bytes;
  }
  frame::Install install(std::uint64_t generation, const std::string& handle) const {
    identity::RuntimeRecord record;
    record.route = route(generation);
    record.owner = *identity::OwnerId::parse("control-1");
    record.first_public_pid = static_cast<std::uint32_t>(generation) * identity::kPublicPidBlock;
    record.runtime_handle = handle;
    return {identity::encode_record(record), secret(generation), 0};
  }

  struct Peer {
    std::unique_ptr<hop::Connection> connection;
    std::unique_ptr<hop::Mux> mux;
  };
  static Task<void> serve(hop::Mux& mux) { co_await mux.run(); }
  Task<bool> connect(Peer& peer, std::string address, std::uint32_t uid, frame::Role role) {
    dialers_.push_back(tapped(network_.dialer("peer", {1, uid, 0}), life_,
                              [this, role](const std::string&) -> std::shared_ptr<FrameObserver> {
                                return role == frame::Role::kNodeApi ? oracle_.gateway_leg()
                                                                     : nullptr;
                              }));
    const auto deadline = world_.now() + seconds(5);
    auto stream = co_await dialers_.back()->dial(std::move(address), deadline);
    if (!stream) co_return false;
    peer.connection = std::make_unique<hop::Connection>(
        *std::move(stream), world_,
        hop::Connection::Options{role, frame::Role::kManager, true, "peer",
                                 random_id<identity::BootNonce>(entropy_), true});
    if (!co_await peer.connection->handshake(deadline)) co_return false;
    peer.mux = std::make_unique<hop::Mux>(*peer.connection, world_);
    tasks_.spawn("peer", serve(*peer.mux));
    co_return true;
  }
  Task<std::string> start(Peer& control, std::uint64_t generation) {
    wire::NodeStartRequest request;
    request.first_public_pid = identity::kPublicPidBlock;
    request.route = route(generation);
    request.template_name = "host";
    request.secret = secret(generation);
    frame::Open open;
    open.operation = policy::Operation::kNodeStart;
    open.metadata = wire::encode(request);
    const auto end = co_await hop::call(*control.mux, std::move(open), world_.now() + seconds(10));
    const auto instance = wire::decode<wire::NodeInstance>(end.result);
    co_return instance ? instance->handle : std::string();
  }
  Task<bool> install_now(Peer& control, std::uint64_t generation, std::string handle) {
    auto request = install(generation, handle);
    const auto answer =
        co_await control.mux->exchange(std::move(request), world_.now() + seconds(60));
    const auto* installed = answer ? std::get_if<frame::Installed>(&*answer) : nullptr;
    co_return installed != nullptr && installed->outcome == frame::InstallOutcome::kInstalled;
  }
  Task<void> install_second(Peer& control, std::string handle, bool& installed) {
    installed = co_await install_now(control, 2, std::move(handle));
    second_answered_ = true;
    changed_.notify();
  }

  // One file operation with the capability of a generation.
  Task<Ending> operate(Peer& client, std::uint64_t generation, Tag tag, bool writes) {
    oracle_.begun(tag, sandbox_);
    frame::Open open;
    open.request = random_id<frame::RequestId>(entropy_);
    open.sandbox = sandbox_;
    open.authority = frame::Capability{capability(generation)};
    if (writes) {
      wire::FileWriteRequest request;
      request.path = "/file";
      request.user = tag;
      open.operation = policy::Operation::kFileWrite;
      open.metadata = wire::encode(request);
    } else {
      wire::FileReadRequest request;
      request.path = "/file";
      request.user = tag;
      open.operation = policy::Operation::kFileRead;
      open.metadata = wire::encode(request);
    }
    const auto channel = client.mux->open(std::move(open));
    const auto deadline = world_.now() + seconds(30);
    const Bytes content(kContentBytes, std::byte{'1'});
    std::optional<RouteIdentity> served;
    std::size_t received = 0;
    for (;;) {
      auto event = co_await channel->next(deadline);
      if (const auto* admitted = std::get_if<frame::Admitted>(&event)) {
        served = admitted->route;
        if (writes) {
          if (co_await channel->write(content)) channel->end({});
        }
      } else if (const auto* data = std::get_if<frame::Data>(&event)) {
        received += data->bytes.size();
      } else if (const auto* end = std::get_if<frame::End>(&event)) {
        if (end->outcome != frame::Outcome::kOk || !served) co_return Ending::kUnfinished;
        oracle_.told(tag, *served);
        if (!writes && received != kContentBytes) oracle_.violated("a clean end of half a file");
        co_return Ending::kServed;
      } else if (const auto* refused = std::get_if<frame::Refused>(&event)) {
        const auto* refresh = std::get_if<frame::Refresh>(&refused->verdict);
        if (refresh == nullptr || refresh->reason != identity::RefreshReason::kStale) {
          oracle_.violated("refused otherwise than as stale");
        }
        co_return Ending::kRefused;
      } else if (std::holds_alternative<hop::TimedOut>(event)) {
        co_return Ending::kUnfinished;
      } else {
        co_return Ending::kCut;
      }
    }
  }

  Task<void> main() {
    records_.set_gate(&gate_);
    sbx_manager::Options options;
    options.worker = worker_;
    options.holders = {{kClientUid, holder()}};
    options.control_uid = kControlUid;
    sbx_manager::SbxManager manager(
        {runtime_, launcher_, records_, world_, clock_, entropy_, verifier_, log_},
        std::move(options));
    const auto hop_listener =
        tapped(network_.listen("w1", "w1/hop"), life_,
               [this](const std::string&) { return oracle_.manager_leg(worker_, clock_); });
    const auto control_listener =
        tapped(network_.listen("w1", "w1/control"), life_,
               [this](const std::string&) { return oracle_.control_leg(worker_); });
    static_cast<void>(co_await manager.recover());
    tasks_.spawn("hop", manager.serve_hop(*hop_listener));
    tasks_.spawn("control", manager.serve_control(*control_listener));
    Peer control;
    Peer client;
    const bool ready = co_await prepare(control, client);
    if (ready) co_await race(control, client);
    if (control.connection) control.connection->close();
    if (client.connection) client.connection->close();
    hop_listener->close();
    control_listener->close();
    co_await manager.stop();
    co_await tasks_.stop();
    co_await machine_.stop();
  }

  Task<bool> prepare(Peer& control, Peer& client) {
    if (!co_await connect(control, "w1/control", kControlUid, frame::Role::kControlPlane) ||
        !co_await connect(client, "w1/hop", kClientUid, frame::Role::kNodeApi)) {
      oracle_.violated("no connection to the manager");
      co_return false;
    }
    identity::KeyBundle bundle{
        {1}, *identity::Issuer::parse("control"), clock_.now() + identity::kBundleValidity, {}};
    bundle.keys.push_back(
        {signer_.key_id(), identity::KeyState::kActive, signer_.public_key(), {}});
    frame::Bundle request{identity::encode_bundle(bundle)};
    static_cast<void>(
        co_await control.mux->exchange(std::move(request), world_.now() + seconds(5)));
    auto first = co_await start(control, 1);
    const bool installed = co_await install_now(control, 1, std::move(first));
    const auto written = co_await operate(client, 1, "before", true);
    if (!installed || written != Ending::kServed) {
      oracle_.violated("generation 1 does not serve");
      co_return false;
    }
    co_return true;
  }

  Task<void> race(Peer& control, Peer& client) {
    auto second = co_await start(control, 2);
    gate_.closed = true;
    gate_.reached = false;
    bool installed = false;
    tasks_.spawn("install", install_second(control, std::move(second), installed));
    while (!gate_.reached) co_await sleep_for(world_, std::chrono::milliseconds(1));

    const auto begin = world_.steps();
    world_.on_step([this, begin] {
      if (at_ && world_.steps() - begin == *at_ + 1) open_gate();
    });
    ending_ = co_await operate(client, 1, "raced", write_);
    operation_steps_ = world_.steps() - begin;
    world_.on_step({});
    open_gate();
    while (!second_answered_) {
      if (co_await changed_.wait(world_, world_.now() + seconds(60)) != Notifier::Wake::kNotified)
        break;
    }
    if (!installed) oracle_.violated("generation 2 was not installed");
    // From here on 1 is refused and 2 serves.
    if (co_await operate(client, 1, "late", write_) != Ending::kRefused) {
      oracle_.violated("generation 1 is not refused after the install");
    }
    if (co_await operate(client, 2, "next", true) != Ending::kServed) {
      oracle_.violated("generation 2 does not serve after its install");
    }
  }
  void open_gate() {
    if (!gate_.closed) return;
    gate_.closed = false;
    oracle_.installs_now(worker_, route(2));
    gate_.opened.notify();
  }

  const identity::WorkerId worker_ = *identity::WorkerId::parse("w1");
  const identity::SandboxId sandbox_ = *identity::SandboxId::parse("sandbox");
  World world_;
  Oracle oracle_;
  SimNetwork network_;
  SimEntropy entropy_;
  SimLog log_;
  SimClock clock_;
  SimSigner signer_;
  identity::testing::KeyedHashVerifier verifier_;
  Artifacts artifacts_;
  Machine machine_;
  RecordDisk disk_;
  LifePtr life_ = std::make_shared<Life>(Life{"w1"});
  SimRuntime runtime_{machine_, life_};
  SimRecords records_{world_, oracle_, disk_, worker_, life_};
  SimBridgeLauncher launcher_{machine_, clock_, life_};
  SimRecords::Gate gate_;
  std::vector<std::unique_ptr<Dialer>> dialers_;
  std::optional<std::uint64_t> at_;
  bool write_;
  bool second_answered_ = false;
  Notifier changed_;
  Ending ending_ = Ending::kUnfinished;
  std::uint64_t operation_steps_ = 0;
  TaskScope tasks_;
};

}  // namespace

RunResult run_install_at_every_step(RunOptions options) {
  RunResult result;
  std::uint64_t last = 0;
  for (std::optional<std::uint64_t> at; !at || *at <= last; at = at ? *at + 1 : 0) {
    auto one = std::make_unique<OneInstall>(options.seed, at, options.trace);
    one->run();
    result.steps += one->steps();
    result.digest = result.digest * 31 + one->digest();
    if (!at) last = one->operation_steps();
    ++result.counts[one->ending() == Ending::kServed    ? "served"
                    : one->ending() == Ending::kRefused ? "refused"
                    : one->ending() == Ending::kCut     ? "cut"
                                                        : "unfinished"];
    result.violation = one->violation();
    if (!result.violation && one->ending() == Ending::kUnfinished) {
      result.violation = "the operation has no ending";
    }
    if (!result.violation && !at && one->ending() != Ending::kServed) {
      result.violation = "undisturbed, the operation is not served";
    }
    if (result.violation) {
      *result.violation += at ? ", install at step " + std::to_string(*at) : ", undisturbed";
      static_cast<void>(one.release());  // what went wrong may not stop any more
      return result;
    }
  }
  // An install before, within and after the operation: all three happened, or the sweep saw
  // nothing.
  for (const auto* ending : {"served", "refused", "cut"}) {
    if (!result.counts.contains(ending))
      result.violation = std::string("no step ended as ") + ending;
  }
  return result;
}

}  // namespace space::sim
