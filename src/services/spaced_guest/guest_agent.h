#pragma once
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/secret.h"
#include "ports/entropy.h"
#include "ports/guest.h"
#include "ports/log.h"
#include "ports/stream.h"
#include "ports/task_scope.h"
#include "services/hop/mux.h"

namespace space::guest {

// Time from a connection's arrival to the end of its proof.
inline constexpr BootClock::duration kProofDeadline = std::chrono::seconds(5);
// Connections that have not proven themselves, at a time; one more closes the oldest.
inline constexpr std::size_t kMaxUnproven = 8;
// The CONNECT line with its newline.
inline constexpr std::size_t kMaxConnectLine = 32;
inline constexpr std::size_t kMaxOperations = 512;  // at a time
inline constexpr std::size_t kMaxProcesses = 512;   // at a time, started by operations
// Between SIGTERM and SIGKILL when a process runs into its timeout.
inline constexpr BootClock::duration kKillGrace = std::chrono::seconds(2);
inline constexpr std::size_t kOutputChunk = 32 * 1024;

// spaced-guest: answers the bridge's connections and does the admitted operations (PROTOCOL "The
// guest is hostile"). A connection says CONNECT, shakes hands and proves both ends under the secret
// (P-23); only then are operations taken, by AdmittedOp alone (P-22). One proven connection serves
// at a time: a newer one replaces it. Processes live on when their connection ends; their output is
// then thrown away. Owned by one loop.
class GuestAgent {
 public:
  struct Options {
    identity::SandboxId sandbox;
    std::uint32_t port = 1024;                // the only one CONNECT may name
    std::uint32_t first_public_pid = 1000;    // of a block of kPublicPidBlock (P-25)
    std::map<std::string, std::string> envs;  // of every process started
    std::string boot_id;                      // of this machine
  };
  // All outlive the agent.
  struct World {
    Timer& timer;
    Entropy& entropy;
    Log& log;
    GuestFiles& files;
    GuestProcesses& processes;
    GuestClock& clock;
  };

  GuestAgent(Options options, GuestSecret secret, World world);
  GuestAgent(const GuestAgent&) = delete;
  GuestAgent& operator=(const GuestAgent&) = delete;
  ~GuestAgent();

  // Serves connections until the listener is closed or fails.
  Task<void> serve(Listener& listener);
  // Ends connections and operations; complete when nothing of the agent runs. Call before
  // destruction.
  Task<void> stop();

  // The identity last proven or adopted by REKEY.
  const std::optional<identity::RouteIdentity>& route() const { return route_; }
  std::size_t connections() const { return links_.size(); }

 private:
  struct Link;
  struct Process;
  using ChannelPtr = std::shared_ptr<hop::Channel>;
  using ProcessPtr = std::shared_ptr<Process>;

  Task<void> serve_link(std::unique_ptr<Stream> stream);
  Task<bool> answer_connect(Stream& stream);
  Task<bool> prove(Link& link);
  bool may_be(const identity::RouteIdentity& route) const;
  // The secret under which `route` has to be proven; null for an identity that is not served.
  const GuestSecret* secret_of(const identity::RouteIdentity& route) const;
  void close_others(const Link& keep, bool unproven_too);
  void rekey(Link& link, const hop::frame::Rekey& rekey);

  void opened(const ChannelPtr& channel, hop::frame::Open open);
  Task<void> operate(ChannelPtr channel, hop::frame::Open open);
  Task<void> read_file(ChannelPtr channel, Bytes metadata);
  Task<void> write_file(ChannelPtr channel, Bytes metadata);
  Task<void> stat_file(ChannelPtr channel, Bytes metadata);
  Task<void> list_files(ChannelPtr channel, Bytes metadata);
  Task<void> remove_file(ChannelPtr channel, Bytes metadata);
  Task<void> make_dir(ChannelPtr channel, Bytes metadata);
  Task<void> move_file(ChannelPtr channel, Bytes metadata);
  Task<void> start_process(ChannelPtr channel, Bytes metadata);
  Task<void> list_processes(ChannelPtr channel, Bytes metadata);
  Task<void> signal_process(ChannelPtr channel, Bytes metadata);
  Task<void> input_to_process(ChannelPtr channel, Bytes metadata);

  std::optional<std::uint32_t> new_public_pid();
  void timed_out(const std::weak_ptr<Process>& expired);
  // Moves output and the exit to the channel as its window allows; without the channel, to nowhere.
  Task<void> pump(ProcessPtr process, ChannelPtr channel);
  Task<void> feed(ProcessPtr process, ChannelPtr channel);
  static Task<GuestResult<void>> write_input(ProcessPtr process, Bytes bytes, Timer& timer);

  Options options_;
  GuestSecret secret_;
  World world_;
  identity::BootNonce boot_;
  std::optional<identity::RouteIdentity> route_;
  // What a REKEY replaced, until the new identity was proven once: the thaw may be given up after
  // its answer was lost, and then another one begins from here. It can do nothing but REKEY, since
  // operations name `route_`.
  struct Replaced {
    identity::RouteIdentity route;
    GuestSecret secret;
  };
  std::optional<Replaced> replaced_;
  std::uint32_t next_host_port_ = 1U << 30;
  std::uint32_t next_public_pid_;
  std::uint32_t public_pids_left_;
  std::list<Link*> links_;  // oldest first
  std::map<std::uint32_t, ProcessPtr> processes_;
  std::size_t operations_ = 0;
  TaskScope tasks_;
};

}  // namespace space::guest
