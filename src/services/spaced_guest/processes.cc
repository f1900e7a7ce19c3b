#include <signal.h>

#include <algorithm>
#include <utility>

#include "services/spaced_guest/guest_agent.h"
#include "services/spaced_guest/process.h"

namespace space::guest {

namespace frame = hop::frame;
using frame::Outcome;

namespace {

bool has_no_nul(const std::string& text) { return !text.contains('\0'); }

bool is_startable(const wire::ProcessSpec& spec) {
  const auto is_env = [](const auto& env) {
    return !env.first.empty() && !env.first.contains('=') && has_no_nul(env.first) &&
           has_no_nul(env.second);
  };
  return !spec.command.empty() && has_no_nul(spec.command) && has_no_nul(spec.cwd) &&
         std::ranges::all_of(spec.arguments, has_no_nul) && std::ranges::all_of(spec.envs, is_env);
}

// An event as it travels: u32 length, then the record.
Bytes framed(wire::ProcessEvent event) {
  ByteWriter out;
  out.bytes32(wire::encode(event));
  return out.take();
}

}  // namespace

std::optional<std::uint32_t> GuestAgent::new_public_pid() {
  if (public_pids_left_ == 0) return std::nullopt;
  --public_pids_left_;
  return next_public_pid_++;
}

Task<void> GuestAgent::start_process(ChannelPtr channel, Bytes metadata) {
  auto request = decode_or_fail<wire::ProcessStartRequest>(*channel, metadata);
  if (!request) co_return;
  if (!is_startable(request->spec)) {
    co_return fail(*channel, {Outcome::kInvalidArgument, "malformed command, path or environment"});
  }
  if (processes_.size() >= kMaxProcesses) {
    co_return fail(*channel, {Outcome::kLimitReached, "too many processes at once"});
  }
  auto spec = request->spec;
  spec.envs.insert(options_.envs.begin(), options_.envs.end());
  spec.envs.insert_or_assign("E2B_SANDBOX", "true");
  spec.envs.insert_or_assign("E2B_SANDBOX_ID", options_.sandbox.text());
  auto started = world_.processes.start(std::move(spec));
  if (!started) co_return fail(*channel, started.error());
  const auto pid = new_public_pid();
  if (!pid) {
    (*started)->signal_tree(SIGKILL);
    co_return fail(*channel, {Outcome::kLimitReached, "no process ids left in this execution"});
  }
  auto process = std::make_shared<Process>();
  process->pid = *pid;
  process->spec = std::move(request->spec);
  process->process = *std::move(started);
  processes_.emplace(*pid, process);
  if (request->timeout_ms > 0) {
    process->terminate =
        world_.timer.at(world_.timer.now() + std::chrono::milliseconds(request->timeout_ms),
                        [this, weak = std::weak_ptr(process)] { timed_out(weak); });
  }
  if (process->spec.stdin_open) tasks_.spawn("guest.stdin", feed(process, channel));
  tasks_.spawn("guest.output", pump(std::move(process), std::move(channel)));
}

void GuestAgent::timed_out(const std::weak_ptr<Process>& expired) {
  const auto process = expired.lock();
  if (!process || !process->process->running()) return;
  process->timed_out = true;
  process->process->signal_tree(SIGTERM);
  process->kill = world_.timer.at(world_.timer.now() + kKillGrace, [expired] {
    if (const auto survivor = expired.lock()) survivor->process->signal_tree(SIGKILL);
  });
}

Task<void> GuestAgent::pump(ProcessPtr process, ChannelPtr channel) {
  const auto started = framed({wire::ProcessStarted{process->pid}});
  bool attached = co_await channel->write(started);
  for (;;) {
    auto event = co_await process->process->next();
    if (!event) co_return;
    if (auto* output = std::get_if<wire::ProcessOutput>(&*event)) {
      if (!attached) continue;
      const auto bytes = framed({std::move(*output)});
      attached = co_await channel->write(bytes);
      // The process lives on without its stream.
      if (!attached) channel.reset();
      continue;
    }
    auto exited = std::get<wire::ProcessExited>(*event);
    processes_.erase(process->pid);
    process->process->close_input();
    if (process->timed_out) {
      exited.timed_out = true;
      process->process->signal_tree(SIGKILL);
    }
    if (!attached) co_return;
    const auto bytes = framed({exited});
    if (co_await channel->write(bytes)) succeed(*channel, wire::Nothing{});
    co_return;
  }
}

Task<GuestResult<void>> GuestAgent::write_input(ProcessPtr process, Bytes bytes, Timer& timer) {
  while (process->input_busy) {
    if (co_await process->input_free.wait(timer) == Notifier::Wake::kCancelled) {
      co_return guest_failure(Outcome::kInterrupted, "interrupted");
    }
  }
  process->input_busy = true;
  auto written = co_await process->process->write_input(bytes);
  process->input_busy = false;
  process->input_free.notify();
  co_return written;
}

Task<void> GuestAgent::feed(ProcessPtr process, ChannelPtr channel) {
  bool accepting = true;
  for (;;) {
    auto event = co_await channel->next();
    if (auto* data = std::get_if<frame::Data>(&event)) {
      if (!accepting) continue;  // it closed its stdin: the rest goes nowhere, as in a pipeline
      const auto end = data->offset + data->bytes.size();
      accepting = (co_await write_input(process, std::move(data->bytes), world_.timer)).has_value();
      if (accepting) channel->send(frame::Consumed{end});
    } else if (std::holds_alternative<frame::End>(event)) {
      process->process->close_input();
      co_return;
    } else {
      co_return;
    }
  }
}

Task<void> GuestAgent::list_processes(ChannelPtr channel, Bytes metadata) {
  if (!decode_or_fail<wire::ProcessListRequest>(*channel, metadata)) co_return;
  wire::ProcessListResult list;
  for (const auto& [pid, process] : processes_) list.processes.push_back({pid, process->spec});
  auto bytes = wire::encode(list);
  if (bytes.size() > frame::kMaxRecordBytes) {
    co_return fail(*channel, {Outcome::kTooLarge, "the list is larger than 1 MiB"});
  }
  if (co_await channel->write(bytes)) succeed(*channel, Bytes{});
}

Task<void> GuestAgent::signal_process(ChannelPtr channel, Bytes metadata) {
  const auto request = decode_or_fail<wire::ProcessSignalRequest>(*channel, metadata);
  if (!request) co_return;
  if (request->signal < 1 || request->signal > 31) {
    co_return fail(*channel, {Outcome::kInvalidArgument, "signals are 1 to 31"});
  }
  const auto at = processes_.find(request->pid);
  if (at == processes_.end()) co_return fail(*channel, {Outcome::kNotFound, "process not found"});
  auto& process = *at->second->process;
  if (request->signal == SIGKILL) {
    process.signal_tree(SIGKILL);
  } else {
    process.signal(request->signal);
  }
  succeed(*channel, wire::Nothing{});
}

Task<void> GuestAgent::input_to_process(ChannelPtr channel, Bytes metadata) {
  const auto request = decode_or_fail<wire::ProcessInputRequest>(*channel, metadata);
  if (!request) co_return;
  const auto at = processes_.find(request->pid);
  if (at == processes_.end()) co_return fail(*channel, {Outcome::kNotFound, "process not found"});
  const auto process = at->second;
  std::uint64_t accepted = 0;
  for (;;) {
    auto event = co_await channel->next();
    if (auto* data = std::get_if<frame::Data>(&event)) {
      const auto count = data->bytes.size();
      const auto written = co_await write_input(process, std::move(data->bytes), world_.timer);
      if (!written) co_return fail(*channel, written.error());
      accepted += count;
      channel->send(frame::Consumed{accepted});
    } else if (std::holds_alternative<frame::End>(event)) {
      break;
    } else {
      co_return;
    }
  }
  if (request->close_after) process->process->close_input();
  succeed(*channel, wire::ProcessInputResult{accepted});
}

}  // namespace space::guest
