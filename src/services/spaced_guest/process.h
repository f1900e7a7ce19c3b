#pragma once
#include <memory>

#include "services/spaced_guest/guest_agent.h"

namespace space::guest {

// A started process as operations know it, from its start until its exit was taken by its pump.
struct GuestAgent::Process {
  std::uint32_t pid = 0;   // public
  wire::ProcessSpec spec;  // as asked for
  std::unique_ptr<GuestProcess> process;
  bool timed_out = false;
  std::unique_ptr<Timer::Alarm> terminate;
  std::unique_ptr<Timer::Alarm> kill;
  bool input_busy = false;
  Notifier input_free;
};

// Ends the operation. Messages are cut to what an END carries.
void fail(hop::Channel& channel, GuestFailure failure);
void succeed(hop::Channel& channel, Bytes result);
template <class T>
void succeed(hop::Channel& channel, const T& result) {
  succeed(channel, wire::encode(result));
}
// Ends the operation unless the metadata is exactly one T.
template <class T>
std::optional<T> decode_or_fail(hop::Channel& channel, const Bytes& metadata) {
  auto decoded = wire::decode<T>(metadata);
  if (!decoded) fail(channel, {hop::frame::Outcome::kInvalidArgument, "malformed request"});
  return decoded;
}

}  // namespace space::guest
