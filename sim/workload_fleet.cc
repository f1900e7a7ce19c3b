#include <algorithm>
#include <functional>

#include "base/result.h"
#include "sim/fleet.h"
#include "sim/workload.h"

namespace space::sim {
namespace {

using node_api::CallerPtr;
using policy::Operation;
using std::chrono::milliseconds;
using std::chrono::seconds;
using wire::SandboxState;
using wire::hop::Outcome;

constexpr std::size_t kClientsPerTenant = 2;
constexpr std::size_t kSandboxesPerTenant = 2;
constexpr std::uint32_t kLongLife = 3600;  // seconds; longer than any clock jumps
constexpr BootClock::duration kFaultsFor = seconds(40);
constexpr BootClock::duration kProgressWithin = seconds(120);

// One sandbox as its clients know it.
struct Box {
  identity::SandboxId id;
  std::string token;
  bool pauses = false;                              // at its timeout, which comes soon
  bool killed = false;                              // a kill was asked for
  std::map<std::string, std::string> acknowledged;  // path -> content
  std::map<std::string, std::string> unknown;       // writes without an answer, or refused
};

struct Tenant {
  std::string name;
  std::string key;
  std::vector<std::shared_ptr<Box>> boxes;
};

// What may go wrong in this run: each seed draws some of it.
struct Weather {
  bool network = false;
  bool partitions = false;
  bool kills = false;
  bool clocks = false;
  bool runtime = false;
  bool stores = false;
  bool swaps = false;
  bool redeliveries = false;
  bool addresses = false;
};

class FleetWorkload {
 public:
  explicit FleetWorkload(RunOptions options)
      : world_(options.seed),
        oracle_(world_),
        fleet_(world_, oracle_, draw_options(options)),
        tasks_(world_) {
    auto& random = world_.random();
    weather_.network = random.permille(600);
    weather_.partitions = random.permille(400);
    weather_.kills = random.permille(600);
    weather_.clocks = random.permille(500);
    weather_.runtime = random.permille(400);
    weather_.stores = random.permille(300);
    weather_.swaps = random.permille(150);
    weather_.redeliveries = random.permille(500);
    weather_.addresses = random.permille(200);
    world_.on_step([this] { fleet_.check(); });
  }

  RunResult run() {
    expect(world_.run(main(), seconds(600)), "the run does not come to its end");
    if (!oracle_.violation())
      expect(world_.run(fleet_.stop(), seconds(600)), "the fleet does not stop");
    RunResult result;
    result.violation = oracle_.violation();
    result.digest = world_.digest();
    result.steps = world_.steps();
    result.counts = oracle_.probes();
    result.counts["admissions"] = oracle_.admissions();
    result.counts["executions"] = oracle_.executions();
    result.counts["repairs"] = oracle_.repairs();
    return result;
  }
  bool clean() const { return !oracle_.violation(); }

 private:
  Fleet::Options draw_options(const RunOptions& options) {
    Fleet::Options drawn;
    drawn.workers = 2 + world_.random().below(2);
    drawn.trace = options.trace;
    return drawn;
  }
  void expect(bool holds, const std::string& otherwise) {
    if (!holds) oracle_.violated(otherwise);
  }
  bool going() const { return clean(); }
  std::uint64_t below(std::uint64_t bound) { return world_.random().below(bound); }

  Task<void> main();
  Task<void> client(std::size_t tenant, std::size_t number);
  Task<void> storm();
  Task<void> prove_progress(std::shared_ptr<Box> box, std::size_t tenant);

  // Each returns false when nothing is known to have been done.
  Task<bool> create(std::shared_ptr<Fleet::GatewayRun> gateway, CallerPtr caller, Tenant& tenant);
  Task<bool> write(std::shared_ptr<Fleet::GatewayRun> gateway, CallerPtr caller,
                   std::shared_ptr<Box> box);
  Task<bool> read(std::shared_ptr<Fleet::GatewayRun> gateway, CallerPtr caller,
                  std::shared_ptr<Box> box, std::string path);
  Task<bool> count(std::shared_ptr<Fleet::GatewayRun> gateway, CallerPtr caller,
                   std::shared_ptr<Box> box, std::uint64_t lines, std::uint64_t interval_ms);
  Task<bool> lifecycle(std::shared_ptr<Fleet::GatewayRun> gateway, CallerPtr caller,
                       std::shared_ptr<Box> box);
  Task<bool> resume(std::shared_ptr<Fleet::GatewayRun> gateway, CallerPtr caller,
                    std::shared_ptr<Box> box);
  Task<void> intrude(std::shared_ptr<Fleet::GatewayRun> gateway, CallerPtr caller,
                     std::shared_ptr<Box> foreign);
  Task<bool> use_token(std::shared_ptr<Fleet::GatewayRun> gateway, std::shared_ptr<Box> box);

  Tag new_tag(const Box& box) {
    auto tag = "op" + std::to_string(++tags_);
    oracle_.begun(tag, box.id);
    return tag;
  }
  // A failure of an operation on our own sandbox: what it must never be.
  void check_failure(const node_api::Failure& failure, const Box& box, std::string_view what) {
    world_.note(std::string(what) + " failed: " + std::string(to_string(failure.outcome)) + " " +
                failure.reason + " " + failure.message);
    if (fleet_.log().trace()) {
      std::fprintf(stderr, "    %s on %s: %s [%s] %s\n", std::string(what).c_str(),
                   box.id.text().c_str(), std::string(to_string(failure.outcome)).c_str(),
                   failure.reason.c_str(), failure.message.c_str());
    }
    oracle_.probe("failed." + std::string(to_string(failure.outcome)) + "." + failure.reason);
    if (box.pauses && failure.reason == node_api::kPaused) oracle_.probe("paused_by_time");
    expect(failure.reason != "wrong_identity", "ID-4: a gateway saw another execution admit");
    expect(box.killed || failure.message != "no such sandbox",
           "a sandbox that nobody killed is unknown: " + box.id.text());
  }
  std::uint32_t short_life() { return static_cast<std::uint32_t>(5 + below(20)); }
  std::optional<identity::WorkerId> some_worker() {
    if (below(3) == 0) return std::nullopt;
    return fleet_.worker_id(below(fleet_.workers()));
  }

  World world_;
  Oracle oracle_;
  Fleet fleet_;
  Weather weather_;
  std::vector<Tenant> tenants_{{"red", {}, {}}, {"blue", {}, {}}};
  std::uint64_t tags_ = 0;
  bool storm_over_ = false;
  TaskScope tasks_;
};

Task<bool> FleetWorkload::create(std::shared_ptr<Fleet::GatewayRun> gateway, CallerPtr caller,
                                 Tenant& tenant) {
  wire::SandboxCreateRequest request;
  request.template_name = "host";
  const bool pauses = below(3) == 0;
  request.timeout_s = pauses ? short_life() : kLongLife;
  if (pauses) request.on_timeout = wire::TimeoutAction::kPause;
  request.worker = some_worker();
  auto made = co_await gateway->gateway->ask<wire::SandboxInfo>(caller, Operation::kSandboxCreate,
                                                                std::move(request));
  if (!made) {
    oracle_.probe("create." + std::string(to_string(made.error().outcome)));
    co_return false;
  }
  if (made->state != SandboxState::kRunning) co_return false;
  auto box = std::make_shared<Box>();
  box->id = made->sandbox;
  box->token = made->access_token;
  box->pauses = pauses;
  tenant.boxes.push_back(std::move(box));
  co_return true;
}

Task<bool> FleetWorkload::write(std::shared_ptr<Fleet::GatewayRun> gateway, CallerPtr caller,
                                std::shared_ptr<Box> box) {
  const auto tag = new_tag(*box);
  const auto path = "/data/" + tag;
  auto content = box->id.text() + " " + tag + " ";
  content.resize(content.size() + below(below(4) == 0 ? 200'000 : 200), 'x');
  wire::FileWriteRequest request;
  request.path = path;
  request.user = tag;
  request.size = content.size();
  box->unknown[path] = content;
  auto admission = co_await gateway->gateway->open(caller, box->id, Operation::kFileWrite,
                                                   wire::encode(request));
  if (!admission) {
    check_failure(admission.error(), *box, "write");
    co_return false;
  }
  const auto bytes = as_bytes(content);
  const auto half = bytes.size() / 2;
  bool sent = co_await (*admission)->write(bytes.first(half));
  if (sent && below(4) == 0) co_await sleep_for(world_, milliseconds(below(300)));
  if (sent) sent = co_await (*admission)->write(bytes.subspan(half));
  if (sent) (*admission)->end();
  const auto event = co_await (*admission)->next();
  const auto* end = std::get_if<wire::hop::End>(&event);
  if (end == nullptr || end->outcome != Outcome::kOk) {
    oracle_.probe(end == nullptr ? "write.cut" : "write." + std::string(to_string(end->outcome)));
    co_return false;
  }
  oracle_.told(tag, (*admission)->identity());
  box->acknowledged[path] = content;
  co_return true;
}

Task<bool> FleetWorkload::read(std::shared_ptr<Fleet::GatewayRun> gateway, CallerPtr caller,
                               std::shared_ptr<Box> box, std::string path) {
  const auto known = box->acknowledged.find(path);
  const bool acknowledged = known != box->acknowledged.end();
  const auto wanted = acknowledged ? known->second : box->unknown.at(path);
  const auto tag = new_tag(*box);
  wire::FileReadRequest request;
  request.path = path;
  request.user = tag;
  auto answer =
      co_await gateway->gateway->call(caller, box->id, Operation::kFileRead, wire::encode(request));
  if (answer) {
    oracle_.told(tag, answer->identity);
    expect(to_text(answer->result) == wanted,
           "read " + path + " of " + box->id.text() + ": other bytes than were written");
    co_return true;
  }
  check_failure(answer.error(), *box, "read");
  if (answer.error().message == "no such file") {
    expect(!acknowledged,
           "read-your-writes: " + path + " of " + box->id.text() + " was acknowledged and is gone");
    co_return true;
  }
  co_return false;
}

// Runs a process and checks that its lines come in order, none twice.
Task<bool> FleetWorkload::count(std::shared_ptr<Fleet::GatewayRun> gateway, CallerPtr caller,
                                std::shared_ptr<Box> box, std::uint64_t lines,
                                std::uint64_t interval_ms) {
  const auto tag = new_tag(*box);
  wire::ProcessStartRequest request;
  request.spec.command = "count";
  request.spec.arguments = {std::to_string(lines), std::to_string(interval_ms)};
  request.spec.user = tag;
  auto admission = co_await gateway->gateway->open(caller, box->id, Operation::kProcessStart,
                                                   wire::encode(request));
  if (!admission) {
    check_failure(admission.error(), *box, "count");
    co_return false;
  }
  Bytes received;
  std::uint64_t next = 0;
  for (;;) {
    auto event = co_await (*admission)->next();
    if (const auto* data = std::get_if<wire::hop::Data>(&event)) {
      received.insert(received.end(), data->bytes.begin(), data->bytes.end());
      for (;;) {
        ByteReader reader(received);
        const auto record = reader.bytes32();
        if (reader.failed()) break;
        const auto decoded = wire::decode<wire::ProcessEvent>(record);
        if (!decoded) {
          expect(false, "a malformed process event of " + tag);
          co_return false;
        }
        if (const auto* output = std::get_if<wire::ProcessOutput>(&decoded->event)) {
          expect(to_text(output->bytes) == std::to_string(next++) + "\n",
                 "the output of " + tag + " is out of order");
        }
        received.erase(received.begin(),
                       received.begin() + 4 + static_cast<std::ptrdiff_t>(record.size()));
      }
      continue;
    }
    const auto* end = std::get_if<wire::hop::End>(&event);
    if (end == nullptr || end->outcome != Outcome::kOk) {
      oracle_.probe("count.cut");
      co_return false;
    }
    expect(next == lines, "the output of " + tag + " is incomplete at a clean end");
    oracle_.told(tag, (*admission)->identity());
    co_return true;
  }
}

Task<bool> FleetWorkload::resume(std::shared_ptr<Fleet::GatewayRun> gateway, CallerPtr caller,
                                 std::shared_ptr<Box> box) {
  wire::SandboxResumeRequest request;
  request.sandbox = box->id;
  request.timeout_s = box->pauses ? short_life() : kLongLife;
  request.worker = below(2) == 0 ? some_worker() : std::nullopt;
  const auto result = co_await gateway->gateway->ask<wire::SandboxResumeResult>(
      caller, Operation::kSandboxResume, std::move(request));
  if (!result) check_failure(result.error(), *box, "resume");
  co_return result.has_value();
}

Task<bool> FleetWorkload::lifecycle(std::shared_ptr<Fleet::GatewayRun> gateway, CallerPtr caller,
                                    std::shared_ptr<Box> box) {
  if (below(2) == 0) {
    wire::SandboxMoveRequest request;
    request.sandbox = box->id;
    request.worker = some_worker();
    const auto moved = co_await gateway->gateway->ask<wire::SandboxInfo>(
        caller, Operation::kSandboxMove, std::move(request));
    if (!moved) check_failure(moved.error(), *box, "move");
    if (moved) oracle_.probe("moved");
    co_return moved.has_value();
  }
  wire::SandboxPauseRequest request;
  request.sandbox = box->id;
  const auto paused = co_await gateway->gateway->ask<wire::SandboxInfo>(
      caller, Operation::kSandboxPause, std::move(request));
  if (!paused) {
    check_failure(paused.error(), *box, "pause");
    co_return false;
  }
  oracle_.probe("paused");
  if (below(4) == 0) co_await sleep_for(world_, milliseconds(below(4000)));
  const bool resumed = co_await resume(gateway, caller, box);
  if (resumed) oracle_.probe("resumed");
  co_return resumed;
}

// A sandbox that is not the caller's looks like none at all.
Task<void> FleetWorkload::intrude(std::shared_ptr<Fleet::GatewayRun> gateway, CallerPtr caller,
                                  std::shared_ptr<Box> foreign) {
  wire::FileReadRequest request;
  request.path = "/data/secret";
  request.user = "intruder";
  const auto answer = co_await gateway->gateway->call(caller, foreign->id, Operation::kFileRead,
                                                      wire::encode(request));
  expect(!answer, "a caller reads a sandbox that is not its own");
  if (!answer && answer.error().outcome == Outcome::kNotFound) oracle_.probe("intrusion_refused");
}

// The access token of a sandbox opens that one, and no other of its team or of another.
Task<bool> FleetWorkload::use_token(std::shared_ptr<Fleet::GatewayRun> gateway,
                                    std::shared_ptr<Box> box) {
  auto caller = co_await gateway->gateway->authorise(box->token);
  if (!caller) {
    const auto outcome = caller.error().outcome;
    expect(outcome != Outcome::kUnauthenticated && (box->killed || outcome != Outcome::kNotFound),
           "a good access token is refused");
    co_return false;
  }
  oracle_.limited((*caller)->session.id, box->id);
  std::vector<std::shared_ptr<Box>> others;
  for (const auto& tenant : tenants_) {
    std::ranges::copy_if(tenant.boxes, std::back_inserter(others),
                         [&](const auto& other) { return other != box; });
  }
  if (others.empty() || below(2) == 0) {
    const bool done = co_await write(gateway, *caller, box);
    if (done) oracle_.probe("written_by_token");
    co_return done;
  }
  auto other = others[below(others.size())];
  co_await intrude(gateway, *caller, std::move(other));
  co_return true;
}

Task<void> FleetWorkload::client(std::size_t tenant_index, std::size_t number) {
  auto& tenant = tenants_[tenant_index];
  auto& other = tenants_[1 - tenant_index];
  while (going() && !storm_over_) {
    co_await sleep_for(world_, milliseconds(below(400)));
    auto gateway = fleet_.gateway(below(fleet_.gateways()));
    if (!gateway) continue;
    auto caller = co_await gateway->gateway->authorise(tenant.key);
    if (!caller) {
      expect(caller.error().outcome != Outcome::kUnauthenticated, "a good API key is refused");
      continue;
    }
    std::vector<std::shared_ptr<Box>> live;
    std::ranges::copy_if(tenant.boxes, std::back_inserter(live),
                         [](const auto& box) { return !box->killed; });
    if (live.size() < kSandboxesPerTenant && (number == 0 || live.empty())) {
      co_await create(gateway, *caller, tenant);
      continue;
    }
    auto box = live[below(live.size())];
    const auto what = below(100);
    bool done = true;
    if (what < 25) {
      done = co_await write(gateway, *caller, box);
    } else if (what < 30) {
      done = co_await use_token(gateway, box);
    } else if (what < 60) {
      const auto& files = below(4) == 0 ? box->unknown : box->acknowledged;
      if (files.empty()) continue;
      auto at = files.begin();
      std::advance(at, static_cast<std::ptrdiff_t>(below(files.size())));
      auto path = at->first;
      done = co_await read(gateway, *caller, box, std::move(path));
    } else if (what < 68) {
      done = co_await count(gateway, *caller, box, below(20), 50 + below(400));
    } else if (what < 70) {
      done = co_await count(gateway, *caller, box, 100, 1000);
    } else if (what < 90) {
      done = co_await lifecycle(gateway, *caller, box);
    } else if (what < 93) {
      box->killed = true;
      wire::SandboxRequest request;
      request.sandbox = box->id;
      const auto killed = co_await gateway->gateway->ask<wire::SandboxInfo>(
          *caller, Operation::kSandboxKill, std::move(request));
      if (killed) oracle_.probe("killed");
    } else if (!other.boxes.empty()) {
      auto foreign = other.boxes[below(other.boxes.size())];
      co_await intrude(gateway, *caller, foreign);
    }
    // Paused by somebody whose call was cut: bring it back.
    if (!done && !box->killed && below(3) == 0) co_await resume(gateway, *caller, box);
  }
}

// ---- what goes wrong ----

Task<void> FleetWorkload::storm() {
  const auto until = world_.now() + kFaultsFor;
  if (weather_.network) {
    NetworkFaults faults;
    faults.reset_permille = static_cast<unsigned>(below(15));
    faults.slow_permille = static_cast<unsigned>(below(30));
    faults.refuse_permille = static_cast<unsigned>(below(100));
    faults.split_permille = static_cast<unsigned>(below(100));
    fleet_.network().set_faults(faults);
  }
  Machine::Faults machine;
  if (weather_.runtime) {
    machine.fail_permille = static_cast<unsigned>(below(80));
    machine.lost_permille = static_cast<unsigned>(below(80));
    machine.slow_permille = static_cast<unsigned>(below(80));
    machine.bridge_permille = static_cast<unsigned>(below(150));
  }
  if (weather_.swaps) machine.swap_permille = static_cast<unsigned>(below(200));
  for (std::size_t i = 0; i < fleet_.workers(); ++i) fleet_.machine(i).set_faults(machine);
  if (weather_.stores) {
    fleet_.set_store_fail_permille(static_cast<unsigned>(below(20)));
    fleet_.set_record_fail_permille(static_cast<unsigned>(below(50)));
  }
  std::vector<std::string> nodes{"control"};
  for (std::size_t i = 0; i < fleet_.workers(); ++i) nodes.push_back(fleet_.worker_id(i).text());
  for (std::size_t i = 0; i < fleet_.gateways(); ++i)
    nodes.push_back("node-api-" + std::to_string(i));
  std::vector<std::function<void()>> restarts;
  while (going() && world_.now() < until) {
    co_await sleep_for(world_, milliseconds(100 + below(2500)));
    for (auto& restart : std::exchange(restarts, {})) {
      if (below(3) == 0) {
        restarts.push_back(std::move(restart));
      } else {
        restart();
      }
    }
    switch (below(6)) {
      case 0:
        if (!weather_.kills) break;
        if (below(3) == 0) {
          fleet_.kill_control();
          restarts.emplace_back([this] { fleet_.start_control(); });
        } else if (below(2) == 0) {
          const auto i = below(fleet_.workers());
          fleet_.kill_worker(i);
          restarts.emplace_back([this, i] { fleet_.start_worker(i); });
        } else {
          const auto i = below(fleet_.gateways());
          fleet_.kill_gateway(i);
          restarts.emplace_back([this, i] { fleet_.start_gateway(i); });
        }
        break;
      case 1:
        if (weather_.partitions) {
          const auto a = nodes[below(nodes.size())];
          const auto b = nodes[below(nodes.size())];
          if (a == b) break;
          fleet_.network().partition(a, b, true);
          restarts.emplace_back([this, a, b] { fleet_.network().partition(a, b, false); });
        }
        break;
      case 2:
        if (weather_.clocks) {
          // Mostly within what is healthy; now and then a jump over every deadline, which heals.
          auto& clock = below(2) == 0   ? fleet_.worker_clock(below(fleet_.workers()))
                        : below(2) == 0 ? fleet_.gateway_clock(below(fleet_.gateways()))
                                        : fleet_.control_clock();
          const auto old = clock.offset();
          if (below(3) == 0) {
            clock.set_offset(milliseconds(static_cast<std::int64_t>(below(400'000)) - 200'000));
            restarts.emplace_back([&clock, old] { clock.set_offset(old); });
          } else {
            clock.set_offset(milliseconds(static_cast<std::int64_t>(below(2'000)) - 1'000));
          }
        }
        break;
      case 3:
      case 4: {
        const auto& sent = oracle_.installs_and_retires();
        if (!weather_.redeliveries || sent.empty()) break;
        const auto& [worker, frame] = sent[below(sent.size())];
        for (std::size_t i = 0; i < fleet_.workers(); ++i) {
          if (fleet_.worker_id(i) == worker) tasks_.spawn("redeliver", fleet_.redeliver(i, frame));
        }
        oracle_.probe("redelivered");
        break;
      }
      default:
        if (weather_.addresses && below(2) == 0) {
          const auto a = below(fleet_.workers());
          fleet_.swap_endpoints(a, (a + 1) % fleet_.workers());
          oracle_.probe("endpoints_swapped");
        }
        break;
    }
  }
  storm_over_ = true;
  fleet_.network().set_faults({});
  for (std::size_t i = 0; i < fleet_.workers(); ++i) fleet_.machine(i).set_faults({});
  fleet_.set_store_fail_permille(0);
  fleet_.set_record_fail_permille(0);
  for (const auto& a : nodes) {
    for (const auto& b : nodes) fleet_.network().partition(a, b, false);
  }
  fleet_.control_clock().set_offset({});
  for (std::size_t i = 0; i < fleet_.workers(); ++i) fleet_.worker_clock(i).set_offset({});
  for (std::size_t i = 0; i < fleet_.gateways(); ++i) fleet_.gateway_clock(i).set_offset({});
  fleet_.start_all();
}

// After the storm every sandbox must come back, with all that was acknowledged.
Task<void> FleetWorkload::prove_progress(std::shared_ptr<Box> box, std::size_t tenant) {
  const auto deadline = world_.now() + kProgressWithin;
  std::string last = "nothing was tried";
  while (going() && world_.now() < deadline) {
    co_await sleep_for(world_, milliseconds(200));
    auto gateway = fleet_.gateway(below(fleet_.gateways()));
    auto caller = co_await gateway->gateway->authorise(tenants_[tenant].key);
    if (!caller) {
      last = "authorise: " + caller.error().message;
      continue;
    }
    wire::SandboxRequest get;
    get.sandbox = box->id;
    auto info = co_await gateway->gateway->ask<wire::SandboxInfo>(*caller, Operation::kSandboxGet,
                                                                  std::move(get));
    if (!info) {
      last = "get: " + info.error().message;
      continue;
    }
    last = std::string(to_string(info->state)) + " " + info->state_reason;
    if (info->state == SandboxState::kPaused) {
      co_await resume(gateway, *caller, box);
      continue;
    }
    if (info->state == SandboxState::kLost || info->state == SandboxState::kFailed) {
      // Only another machine's guest in its place may cost a sandbox.
      if (weather_.swaps) {
        oracle_.probe("lost_to_a_swap");
        co_return;
      }
      continue;
    }
    if (info->state != SandboxState::kRunning) continue;
    // A move of one that was paused at its timeout gave it the default life.
    wire::SandboxTimeoutRequest longer;
    longer.sandbox = box->id;
    longer.timeout_s = kLongLife;
    const auto extended = co_await gateway->gateway->ask<wire::SandboxInfo>(
        *caller, Operation::kSandboxSetTimeout, std::move(longer));
    if (!extended) {
      last = "set_timeout: " + extended.error().message;
      continue;
    }
    if (!co_await write(gateway, *caller, box)) continue;
    bool all = true;
    std::vector<std::string> paths;
    for (const auto& [path, content] : box->acknowledged) paths.push_back(path);
    for (auto& path : paths) {
      if (!all) break;
      all = co_await read(gateway, *caller, box, std::move(path));
    }
    // One that outlives its first capability, by renewal.
    if (all && below(4) == 0) all = co_await count(gateway, *caller, box, 130, 1000);
    if (all) co_return;
  }
  expect(!going(), "no progress: " + box->id.text() + " stays " + last);
}

Task<void> FleetWorkload::main() {
  for (auto& tenant : tenants_) {
    tenant.key = co_await fleet_.make_api_key(*identity::TeamId::parse(tenant.name));
  }
  fleet_.start_all();
  TaskScope clients(world_);
  for (std::size_t tenant = 0; tenant < tenants_.size(); ++tenant) {
    for (std::size_t i = 0; i < kClientsPerTenant; ++i) clients.spawn("client", client(tenant, i));
  }
  co_await storm();
  // Calls under way end by themselves, the longest one at its own limit.
  co_await clients.join();
  co_await tasks_.join();
  for (std::size_t tenant = 0; tenant < tenants_.size(); ++tenant) {
    for (const auto& box : tenants_[tenant].boxes) {
      if (!box->killed) clients.spawn("progress", prove_progress(box, tenant));
    }
  }
  co_await clients.join();
  // Nothing is left of what clients did.
  co_await sleep_for(world_, seconds(20));
  for (std::size_t i = 0; i < fleet_.workers(); ++i) {
    expect(!going() || fleet_.manager(i)->leases().size() == 0,
           "leases are left at " + fleet_.worker_id(i).text());
  }
}

}  // namespace

RunResult run_fleet(RunOptions options) {
  // After a violation nothing is taken apart: what went wrong may not stop any more.
  auto workload = std::make_unique<FleetWorkload>(options);
  auto result = workload->run();
  if (result.violation) static_cast<void>(workload.release());
  return result;
}

}  // namespace space::sim
