#pragma once
#include <unordered_map>

#include "services/hop/peer.h"
#include "services/sbx_manager/sbx_manager.h"

// What the parts of SbxManager share.
namespace space::sbx_manager {

// What this receiver knows of one sandbox. The record in memory is the durable one: it changes only
// after the write completed.
struct SbxManager::Sandbox {
  identity::SandboxId id;
  identity::Generation floor;          // highest generation ever installed here
  std::optional<StoredRecord> stored;  // installed
  identity::Epoch epoch;               // of the installed route in this run
  bool proved = false;                 // in this run
  bool draining = false;               // frozen or about to be
  std::string lost;                    // why it cannot be served; empty: it can
  std::shared_ptr<Bridge> bridge;      // of `epoch`, proven
  bool launching = false;
  std::uint64_t launches = 0;  // finished, well or not
  bool relaunching = false;    // another launch is to come
  Notifier changed;            // a launch finished
  std::size_t operations = 0;  // admitted
  std::size_t waiting = 0;     // openings that wait for a bridge or the store
  // Thawed in this run and not installed since: what a freeze of that route stops.
  std::optional<identity::RouteIdentity> thawed;
  std::string thawed_handle;

  const identity::RuntimeRecord* record() const { return stored ? &stored->record : nullptr; }
};

// A connection of a node-api.
struct SbxManager::NodeApi final : hop::FrameSink, std::enable_shared_from_this<NodeApi> {
  NodeApi(SbxManager& m, std::unique_ptr<Stream> stream, identity::HolderId h);
  ~NodeApi() override;
  void on_frame(frame::Frame received) override;
  void on_data(frame::StreamId stream, frame::DataView data) override;
  void on_close(hop::CloseCause cause) override;

  SbxManager& manager;
  identity::HolderId holder;
  hop::Connection connection;
  std::unordered_map<frame::StreamId, Operation*> streams;
};

// The proven connection to a guest through its spaced-host. Dropping the last owner ends that
// process.
struct SbxManager::Bridge final : hop::FrameSink {
  Bridge(SbxManager& m, Sandbox& s, BridgeLink made);
  ~Bridge() override;
  void on_frame(frame::Frame received) override;
  void on_data(frame::StreamId stream, frame::DataView data) override;
  void on_close(hop::CloseCause cause) override;

  SbxManager& manager;
  Sandbox& sandbox;
  identity::ProcessIdentity process;
  std::string boot_id;
  hop::Connection connection;
  std::unordered_map<frame::StreamId, Operation*> streams;
  bool fenced = false;  // the guest has taken everything that was sent to it
  Notifier fence_changed;
};

// A connection of the control plane.
struct SbxManager::Control {
  Control(SbxManager& m, std::unique_ptr<Stream> stream);
  ~Control();

  SbxManager& manager;
  hop::Connection connection;
  std::optional<hop::Mux> mux;  // after the handshake
};

// An admitted operation under its lease, on one stream of each leg.
struct SbxManager::Operation {
  identity::LeaseId lease;
  Sandbox& sandbox;
  NodeApi& peer;
  frame::StreamId peer_stream;
  Bridge& bridge;
  frame::StreamId bridge_stream;
  policy::Operation kind;
  bool admitted = false;
};

inline std::string number(std::uint64_t value) { return std::to_string(value); }

}  // namespace space::sbx_manager
