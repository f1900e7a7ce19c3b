#include <algorithm>
#include <utility>

#include "services/sbx_manager/state.h"

namespace space::sbx_manager {
namespace {

constexpr std::size_t kMaxMessageBytes = 1024;  // of END

frame::End failed(frame::Outcome outcome, std::string message) {
  message.resize(std::min(message.size(), kMaxMessageBytes));
  frame::End end;
  end.outcome = outcome;
  end.message = std::move(message);
  return end;
}

frame::Outcome outcome_of(RuntimeError error) {
  switch (error) {
    case RuntimeError::kNoSuchTemplate:
    case RuntimeError::kNoSuchInstance:
      return frame::Outcome::kNotFound;
    case RuntimeError::kNoSpace:
      return frame::Outcome::kNoSpace;
    case RuntimeError::kUnsupported:
      return frame::Outcome::kUnsupported;
    case RuntimeError::kTimedOut:
      return frame::Outcome::kDeadlineExceeded;
    case RuntimeError::kFailed:
      return frame::Outcome::kInternal;
  }
  std::unreachable();
}
frame::End failed(const RuntimeFailure& failure) {
  return failed(outcome_of(failure.error), failure.detail);
}
frame::End malformed() {
  return failed(frame::Outcome::kInvalidArgument, "the request is malformed");
}
frame::End stopping() { return failed(frame::Outcome::kUnavailable, "stopping"); }

template <class Result>
frame::End done(const Result& result) {
  frame::End end;
  end.result = wire::encode(result);
  return end;
}

std::optional<GuestSecret> secret_of(const Bytes& bytes) {
  if (bytes.size() != 32) return std::nullopt;
  return GuestSecret(std::span(bytes).first<32>());
}

// Of a runtime's handle; no sandbox id contains a slash.
std::string handle_key(const std::string& handle) { return "/" + handle; }

}  // namespace

Task<void> SbxManager::operate(std::shared_ptr<Control> peer, std::shared_ptr<hop::Channel> channel,
                               frame::Open open) {
  const auto owner = std::move(peer);  // the channel's connection lives as long as this task
  channel->send(frame::Opened{});
  auto metadata = std::move(open.metadata);
  frame::End end;
  switch (open.operation) {
    case policy::Operation::kNodeStart:
      end = co_await node_start(std::move(metadata));
      break;
    case policy::Operation::kNodeFreeze:
      end = co_await node_freeze(std::move(metadata));
      break;
    case policy::Operation::kNodeThaw:
      end = co_await node_thaw(std::move(metadata));
      break;
    case policy::Operation::kNodePublish:
      end = co_await node_publish(std::move(metadata));
      break;
    case policy::Operation::kNodeDestroy:
      end = co_await node_destroy(std::move(metadata));
      break;
    case policy::Operation::kNodeStatus:
      co_await node_status(channel, std::move(metadata));
      co_return;
    case policy::Operation::kFileRead:
    case policy::Operation::kFileWrite:
    case policy::Operation::kFileStat:
    case policy::Operation::kFileList:
    case policy::Operation::kFileRemove:
    case policy::Operation::kFileMakeDir:
    case policy::Operation::kFileMove:
    case policy::Operation::kProcessStart:
    case policy::Operation::kProcessList:
    case policy::Operation::kProcessSignal:
    case policy::Operation::kProcessInput:
    case policy::Operation::kSessionOpen:
    case policy::Operation::kSandboxCreate:
    case policy::Operation::kSandboxList:
    case policy::Operation::kSandboxGet:
    case policy::Operation::kSandboxKill:
    case policy::Operation::kSandboxSetTimeout:
    case policy::Operation::kSandboxPause:
    case policy::Operation::kSandboxResume:
    case policy::Operation::kSandboxMove:
    case policy::Operation::kSandboxRoute:
    case policy::Operation::kRouteResolve:
    case policy::Operation::kCapabilityMint:
    case policy::Operation::kPlatformStatus:
      end = failed(frame::Outcome::kUnsupported, "not an operation of a worker");
      break;
  }
  if (end.outcome != frame::Outcome::kOk) {
    world_.log.event(Level::kWarning, "node.failed",
                     {{"operation", policy::info(open.operation).name},
                      {"outcome", to_string(end.outcome)},
                      {"reason", end.message}});
  }
  channel->end(std::move(end));
}

Task<frame::End> SbxManager::node_start(Bytes metadata) {
  auto request = wire::decode<wire::NodeStartRequest>(metadata);
  auto secret = request ? secret_of(request->secret) : std::nullopt;
  if (!secret || request->first_public_pid == 0) co_return malformed();
  if (request->route.worker != options_.worker) {
    co_return failed(frame::Outcome::kInvalidArgument, "this is worker " + options_.worker.text());
  }
  const auto turn = co_await turns_.take(request->route.sandbox.text());
  if (!turn) co_return stopping();
  if (const auto at = sandboxes_.find(request->route.sandbox); at != sandboxes_.end()) {
    const auto* record = at->second.record();
    if (record != nullptr && record->route == request->route) {
      co_return done(wire::NodeInstance{record->runtime_handle});
    }
    if (request->route.generation <= at->second.floor) {
      co_return failed(frame::Outcome::kConflict,
                       "behind the floor " + number(at->second.floor.value));
    }
  }
  StartRequest start;
  start.route = request->route;
  start.spec.template_name = std::move(request->template_name);
  start.spec.memory_bytes = request->memory_bytes;
  start.spec.cpu_millis = request->cpu_millis;
  start.spec.max_processes = request->max_processes;
  start.spec.disk_bytes = request->disk_bytes;
  start.spec.envs = std::move(request->envs);
  start.artifact = std::move(request->artifact);
  start.secret = *std::move(secret);
  start.first_public_pid = request->first_public_pid;
  auto started = co_await world_.runtime.start(std::move(start));
  if (!started) co_return failed(started.error());
  world_.log.event(Level::kInfo, "node.started",
                   {{"sandbox", request->route.sandbox.text()},
                    {"generation", request->route.generation.value},
                    {"handle", started->handle}});
  co_return done(wire::NodeInstance{started->handle});
}

Task<frame::End> SbxManager::node_freeze(Bytes metadata) {
  const auto request = wire::decode<wire::NodeFreezeRequest>(metadata);
  if (!request) co_return malformed();
  const auto turn = co_await turns_.take(request->route.sandbox.text());
  if (!turn) co_return stopping();
  const auto at = sandboxes_.find(request->route.sandbox);
  const auto* record = at == sandboxes_.end() ? nullptr : at->second.record();
  if (at != sandboxes_.end() && at->second.thawed == request->route) {
    // Thawed, and its install failed.
    auto thawed = at->second.thawed_handle;
    const auto thawed_turn = co_await turns_.take(handle_key(thawed));
    if (!thawed_turn) co_return stopping();
    const auto refrozen = co_await world_.runtime.freeze(thawed);
    if (!refrozen) co_return failed(refrozen.error());
    at->second.thawed.reset();
    co_return done(wire::NodeInstance{std::move(thawed)});
  }
  if (record == nullptr || record->route != request->route) {
    co_return failed(frame::Outcome::kNotFound, "this execution is not installed here");
  }
  auto& sandbox = at->second;
  const auto handle = record->runtime_handle;
  const auto handle_turn = co_await turns_.take(handle_key(handle));
  if (!handle_turn) co_return stopping();
  sandbox.draining = true;
  cut(leases_.end_sandbox(sandbox.id), identity::LeaseEnd::kDraining);
  co_await fence_bridge(sandbox);
  auto frozen = co_await world_.runtime.freeze(handle);
  if (!frozen) frozen = co_await world_.runtime.freeze(handle);  // it may stand still all the same
  if (frozen) co_return done(wire::NodeInstance{handle});
  // It serves on. One that can be brought to neither stays as it is, refusing.
  constexpr int kThawTries = 3;
  for (int i = 0; i < kThawTries && sandbox.draining; ++i) {
    static_cast<void>(co_await world_.runtime.thaw(handle));
    const auto found = co_await world_.runtime.inspect(handle);
    if (found && !found->frozen) sandbox.draining = false;
  }
  co_return failed(frozen.error());
}

Task<frame::End> SbxManager::node_thaw(Bytes metadata) {
  auto request = wire::decode<wire::NodeThawRequest>(metadata);
  if (!request || request->old_secret.size() != 32 || request->secret.size() != 32 ||
      request->parked.sandbox != request->route.sandbox) {
    co_return malformed();
  }
  if (request->route.worker != options_.worker) {
    co_return failed(frame::Outcome::kInvalidArgument, "this is worker " + options_.worker.text());
  }
  auto id = request->route.sandbox;
  const auto turn = co_await turns_.take(id.text());
  const auto handle_turn = turn ? co_await turns_.take(handle_key(request->handle)) : nullptr;
  if (!handle_turn) co_return stopping();
  auto& sandbox = sandboxes_.try_emplace(id).first->second;
  sandbox.id = id;
  if (const auto* record = sandbox.record()) {
    if (record->route == request->route) co_return done(wire::NodeInstance{record->runtime_handle});
    co_return failed(frame::Outcome::kConflict,
                     "generation " + number(record->route.generation.value) + " is installed here");
  }
  if (request->route.generation <= sandbox.floor) {
    co_return failed(frame::Outcome::kConflict, "behind the floor " + number(sandbox.floor.value));
  }
  auto thawed = co_await world_.runtime.thaw(request->handle);
  if (!thawed) {
    // It may run all the same: parked as it was.
    static_cast<void>(co_await world_.runtime.freeze(request->handle));
    co_return failed(thawed.error());
  }
  const auto handle = thawed->handle;
  const auto route = request->route;
  const auto rekeyed = co_await rekey(sandbox, *std::move(thawed), *std::move(request));
  if (!rekeyed) {
    // Parked as it was.
    const auto frozen = co_await world_.runtime.freeze(handle);
    if (!frozen) {
      world_.log.event(Level::kError, "node.freeze_failed",
                       {{"sandbox", id.text()}, {"reason", frozen.error().detail}});
    }
    // Unless the guest refused both secrets, it may hold the new one: the same try has to be
    // repeated.
    const auto outcome = rekeyed.error().proof_failed || rekeyed.error().lost
                             ? frame::Outcome::kUnavailable
                             : frame::Outcome::kInterrupted;
    co_return failed(outcome, "rekey: " + rekeyed.error().reason);
  }
  world_.log.event(
      Level::kInfo, "node.thawed",
      {{"sandbox", id.text()}, {"generation", route.generation.value}, {"handle", handle}});
  sandbox.thawed = route;
  sandbox.thawed_handle = handle;
  co_return done(wire::NodeInstance{handle});
}

// Gives the guest its new identity under the old secret (P-23). A guest that does not know the old
// secret, or whose answer was lost, may have been given the new one: then it proves that.
Task<SbxManager::BridgeResult> SbxManager::rekey(Sandbox& sandbox, RuntimeInstance instance,
                                                 wire::NodeThawRequest request) {
  BridgeTarget old_target{request.parked, instance.guest_process, instance.transport};
  frame::Rekey rekey{request.route, request.secret, request.first_public_pid, world_.clock.now()};
  auto made = co_await connect(sandbox, std::move(old_target), 0, *secret_of(request.old_secret),
                               std::move(rekey), {});
  if (made || made.error().lost) co_return made;
  auto first = std::move(made).error();
  BridgeTarget new_target{request.route, instance.guest_process, instance.transport};
  made = co_await connect(sandbox, std::move(new_target), 0, *secret_of(request.secret),
                          std::nullopt, {});
  if (made) {
    (*made)->connection.close();
    co_return made;
  }
  co_return std::unexpected(std::move(first));
}

Task<frame::End> SbxManager::node_publish(Bytes metadata) {
  auto request = wire::decode<wire::NodePublishRequest>(metadata);
  if (!request) co_return malformed();
  const auto turn = co_await turns_.take(handle_key(request->handle));
  if (!turn) co_return stopping();
  const bool serves = std::ranges::any_of(sandboxes_, [&](const auto& entry) {
    const auto* record = entry.second.record();
    return record != nullptr && record->runtime_handle == request->handle && !entry.second.draining;
  });
  if (serves) co_return failed(frame::Outcome::kConflict, "it is installed");
  // It stands still already, unless a thaw went wrong half-way (P-35).
  const auto frozen = co_await world_.runtime.freeze(request->handle);
  if (!frozen) co_return failed(frozen.error());
  const auto published = co_await world_.runtime.publish(request->handle, request->artifact);
  if (!published) co_return failed(published.error());
  co_return done(wire::Nothing{});
}

Task<frame::End> SbxManager::node_destroy(Bytes metadata) {
  auto request = wire::decode<wire::NodeDestroyRequest>(metadata);
  if (!request) co_return malformed();
  const auto turn = co_await turns_.take(handle_key(request->handle));
  if (!turn) co_return stopping();
  const bool installed = std::ranges::any_of(sandboxes_, [&](const auto& entry) {
    const auto* record = entry.second.record();
    return record != nullptr && record->runtime_handle == request->handle;
  });
  if (installed) co_return failed(frame::Outcome::kConflict, "it is installed");
  const auto destroyed = co_await world_.runtime.destroy(request->handle);
  if (!destroyed) co_return failed(destroyed.error());
  if (!request->artifact.empty()) {
    const auto removed = co_await world_.runtime.remove_artifact(request->artifact);
    if (!removed) co_return failed(removed.error());
  }
  world_.log.event(Level::kInfo, "node.destroyed", {{"handle", request->handle}});
  co_return done(wire::Nothing{});
}

Task<void> SbxManager::node_status(std::shared_ptr<hop::Channel> channel, Bytes metadata) {
  const auto request = wire::decode<wire::NodeStatusRequest>(metadata);
  if (!request) {
    channel->end(malformed());
    co_return;
  }
  const auto result = wire::encode(status(request->sandbox));
  if (!co_await channel->write(result)) co_return;
  channel->end({});
}

wire::NodeStatusResult SbxManager::status(const std::optional<identity::SandboxId>& only) const {
  wire::NodeStatusResult result;
  result.boot = boot_;
  result.bundle_version = keys_.floor().value;
  result.runtime = options_.runtime;
  result.evidence = options_.evidence;
  for (const auto& [id, sandbox] : sandboxes_) {
    if (only ? *only != id : !sandbox.stored) continue;
    wire::NodeSandboxStatus entry;
    entry.sandbox = id;
    entry.floor = sandbox.floor.value;
    if (const auto* record = sandbox.record()) {
      entry.installed = record->route;
      entry.attempt = record->attempt.value;
      entry.epoch = sandbox.epoch.counter;
      entry.leases = static_cast<std::uint32_t>(sandbox.operations);
      entry.serving = sandbox.proved && !sandbox.draining && sandbox.lost.empty();
      // Empty while it may come back by itself: frozen, or to be proved again.
      if (!sandbox.lost.empty()) entry.reason = "lost: " + sandbox.lost;
    }
    result.sandboxes.push_back(std::move(entry));
  }
  return result;
}

}  // namespace space::sbx_manager
