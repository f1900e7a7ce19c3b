#include "services/sbx_manager/sbx_manager.h"

#include <algorithm>
#include <array>
#include <utility>

#include "services/sbx_manager/state.h"

namespace space::sbx_manager {
namespace {

std::uint64_t random_seed(Entropy& entropy) {
  std::array<std::byte, 8> bytes{};
  entropy.fill(bytes);
  return ByteReader(bytes).u64();
}

}  // namespace

SbxManager::SbxManager(World world, Options options)
    : world_(world),
      options_(std::move(options)),
      boot_(random_id<identity::BootNonce>(world.entropy)),
      signatures_(random_seed(world.entropy)),
      turns_(world.timer),
      tasks_(world.timer) {}

SbxManager::~SbxManager() = default;

Task<IoResult<void>> SbxManager::recover() {
  auto contents = co_await world_.records.load_all();
  if (!contents) co_return std::unexpected(contents.error());
  keys_ = identity::KeyRing(contents->bundle);
  for (const auto& [id, floor] : contents->floors) {
    auto& sandbox = sandboxes_[id];
    sandbox.id = id;
    sandbox.floor = floor;
  }
  for (auto& stored : contents->records) {
    auto id = stored.record.route.sandbox;
    auto& sandbox = sandboxes_[id];
    sandbox.id = id;
    sandbox.floor = std::max(sandbox.floor, stored.record.route.generation);
    sandbox.epoch = identity::Epoch{boot_, ++last_epoch_};
    sandbox.stored = std::move(stored);
    if (sandbox.record()->route.worker != options_.worker || !sandbox.record()->guest_process ||
        !sandbox.record()->transport) {
      lose(sandbox, "the stored record is not one of this worker");
      continue;
    }
    launch(sandbox);
  }
  world_.log.event(Level::kInfo, "manager.started",
                   {{"worker", options_.worker.text()},
                    {"boot", boot_.text()},
                    {"records", contents->records.size()},
                    {"evidence", options_.evidence}});
  tasks_.spawn("manager.expire", expire_leases());
  co_return IoResult<void>{};
}

Task<std::unique_ptr<Stream>> SbxManager::accept(Listener& listener) {
  for (;;) {
    auto accepted = co_await listener.accept();
    if (accepted) co_return *std::move(accepted);
    constexpr std::array kPassing{std::errc::too_many_files_open,
                                  std::errc::too_many_files_open_in_system,
                                  std::errc::no_buffer_space, std::errc::not_enough_memory};
    const auto passes = [&](std::errc code) { return accepted.error() == code; };
    if (stopping_ || !std::ranges::any_of(kPassing, passes)) co_return nullptr;
    if (!co_await sleep_for(world_.timer, std::chrono::milliseconds(100))) co_return nullptr;
  }
}

Task<void> SbxManager::stop() {
  stopping_ = true;
  lease_taken_.notify();
  for (auto* peer : node_apis_) peer->connection.close();
  for (auto* peer : controls_) peer->connection.close();
  for (auto* bridge : bridges_) bridge->connection.close();
  co_await tasks_.stop();
  for (auto& [id, sandbox] : sandboxes_) sandbox.bridge.reset();
}

const identity::RuntimeRecord* SbxManager::installed(const identity::SandboxId& sandbox) const {
  const auto at = sandboxes_.find(sandbox);
  return at == sandboxes_.end() ? nullptr : at->second.record();
}

}  // namespace space::sbx_manager
