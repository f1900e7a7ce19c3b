#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "ports/stream.h"
#include "sim/world.h"

namespace space::sim {

// What may go wrong on links, drawn from the world's seed. Zero everywhere: a perfect network.
struct NetworkFaults {
  unsigned reset_permille = 0;  // a chunk is lost together with its connection
  unsigned slow_permille = 0;   // a chunk takes up to `slow` longer; order within a stream is kept
  BootClock::duration slow = std::chrono::seconds(2);
  unsigned refuse_permille = 0;  // a dial fails
  unsigned split_permille = 0;   // a chunk arrives in pieces of 1..7 bytes
  BootClock::duration latency = std::chrono::microseconds(200);
  BootClock::duration jitter = std::chrono::microseconds(300);
};

// Streams between named nodes of one world. Addresses are plain strings; a node is whatever the
// listener says it is. Each stream keeps order; different streams reorder freely.
class SimNetwork {
 public:
  explicit SimNetwork(World& world, NetworkFaults faults = {}) : world_(world), faults_(faults) {}

  // A dialler for one node, seen by peers with these credentials. What a `local` one dials has
  // latency, but no faults: a socket within one machine.
  std::unique_ptr<Dialer> dialer(std::string node, PeerCredentials credentials = {},
                                 bool local = false);
  // Listens at `address` on `node`; the previous listener there stops being reachable.
  std::unique_ptr<Listener> listen(std::string node, std::string address);
  // Two connected streams, without latency or faults.
  std::pair<std::unique_ptr<Stream>, std::unique_ptr<Stream>> pair();

  // Cuts every stream of a node, as its death does.
  void kill(const std::string& node);
  // While partitioned, two nodes' chunks are held back and dials fail.
  void partition(const std::string& a, const std::string& b, bool cut);
  void set_faults(NetworkFaults faults) { faults_ = faults; }
  const NetworkFaults& faults() const { return faults_; }

 private:
  friend class SimStream;
  friend class SimListener;
  friend class SimDialer;
  struct Pipe;
  struct Door;
  World& world_;
  NetworkFaults faults_;
  std::map<std::string, std::weak_ptr<Door>> doors_;
  std::vector<std::weak_ptr<Pipe>> pipes_;
  std::set<std::pair<std::string, std::string>> cuts_;
  bool is_cut(const std::string& a, const std::string& b) const;
};

}  // namespace space::sim
