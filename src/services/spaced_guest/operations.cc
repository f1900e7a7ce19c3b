#include <algorithm>
#include <utility>

#include "core/wire/path.h"
#include "services/spaced_guest/guest_agent.h"
#include "services/spaced_guest/process.h"

namespace space::guest {

namespace frame = hop::frame;
using frame::Outcome;

void fail(hop::Channel& channel, GuestFailure failure) {
  constexpr std::size_t kMaxMessageBytes = 1024;
  if (failure.message.size() > kMaxMessageBytes) failure.message.resize(kMaxMessageBytes);
  frame::End end;
  end.outcome = failure.outcome;
  end.message = std::move(failure.message);
  channel.end(std::move(end));
}

void succeed(hop::Channel& channel, Bytes result) {
  frame::End end;
  end.result = std::move(result);
  channel.end(std::move(end));
}

namespace {

bool is_path_or_fail(hop::Channel& channel, const std::string& path) {
  if (wire::is_guest_path(path)) return true;
  fail(channel, {Outcome::kInvalidArgument, "not a path"});
  return false;
}

template <class T>
std::optional<T> path_request_or_fail(hop::Channel& channel, const Bytes& metadata) {
  auto request = decode_or_fail<T>(channel, metadata);
  if (request && !is_path_or_fail(channel, request->path)) request.reset();
  return request;
}

}  // namespace

void GuestAgent::opened(const ChannelPtr& channel, frame::Open open) {
  channel->send(frame::Opened{});
  const auto* admitted = std::get_if<frame::AdmittedOp>(&open.authority);
  if (admitted == nullptr || !route_ || admitted->route != *route_) {
    fail(*channel, {Outcome::kConflict, "not the execution that runs here"});
    return;
  }
  if (operations_ >= kMaxOperations) {
    fail(*channel, {Outcome::kLimitReached, "too many operations at once"});
    return;
  }
  tasks_.spawn("guest.operation", operate(channel, std::move(open)));
}

Task<void> GuestAgent::operate(ChannelPtr channel, frame::Open open) {
  using Handler = Task<void> (GuestAgent::*)(ChannelPtr, Bytes);
  using enum policy::Operation;
  static constexpr std::pair<policy::Operation, Handler> kHandlers[] = {
      {kFileRead, &GuestAgent::read_file},
      {kFileWrite, &GuestAgent::write_file},
      {kFileStat, &GuestAgent::stat_file},
      {kFileList, &GuestAgent::list_files},
      {kFileRemove, &GuestAgent::remove_file},
      {kFileMakeDir, &GuestAgent::make_dir},
      {kFileMove, &GuestAgent::move_file},
      {kProcessStart, &GuestAgent::start_process},
      {kProcessList, &GuestAgent::list_processes},
      {kProcessSignal, &GuestAgent::signal_process},
      {kProcessInput, &GuestAgent::input_to_process},
  };
  const auto* handler =
      std::ranges::find(kHandlers, open.operation, &std::pair<policy::Operation, Handler>::first);
  if (handler == std::end(kHandlers)) {
    fail(*channel, {Outcome::kInvalidArgument, "no such operation in the guest"});
    co_return;
  }
  ++operations_;
  co_await (this->*handler->second)(std::move(channel), std::move(open.metadata));
  --operations_;
}

Task<void> GuestAgent::read_file(ChannelPtr channel, Bytes metadata) {
  const auto request = path_request_or_fail<wire::FileReadRequest>(*channel, metadata);
  if (!request) co_return;
  const auto reader = world_.files.open(request->path, request->user, request->offset);
  if (!reader) co_return fail(*channel, reader.error());
  // The length is settled here: what is appended meanwhile is not sent (C061).
  const auto size = (*reader)->size();
  auto left = size - std::min(size, request->offset);
  if (request->length) left = std::min(left, *request->length);
  Bytes buffer(static_cast<std::size_t>(std::min<std::uint64_t>(left, frame::kMaxDataBytes)));
  while (left > 0) {
    const auto part = std::span(buffer).first(
        static_cast<std::size_t>(std::min<std::uint64_t>(left, buffer.size())));
    const auto count = (*reader)->read(part);
    if (!count) co_return fail(*channel, count.error());
    if (*count == 0) {
      co_return fail(*channel, {Outcome::kConflict, "the file became shorter while it was read"});
    }
    if (!co_await channel->write(part.first(*count))) co_return;
    left -= *count;
  }
  succeed(*channel, wire::FileReadResult{size});
}

Task<void> GuestAgent::write_file(ChannelPtr channel, Bytes metadata) {
  const auto request = path_request_or_fail<wire::FileWriteRequest>(*channel, metadata);
  if (!request) co_return;
  const auto writer = world_.files.create(request->path, request->user, request->mode);
  if (!writer) co_return fail(*channel, writer.error());
  std::uint64_t size = 0;
  for (;;) {
    const auto event = co_await channel->next();
    if (const auto* data = std::get_if<frame::Data>(&event)) {
      size += data->bytes.size();
      if (request->size && size > *request->size) {
        co_return fail(*channel, {Outcome::kInvalidArgument, "more bytes than announced"});
      }
      const auto written = (*writer)->write(data->bytes);
      if (!written) co_return fail(*channel, written.error());
    } else if (std::holds_alternative<frame::End>(event)) {
      break;
    } else {
      co_return;  // only the opener's END says that it was all (C058)
    }
  }
  if (request->size && size != *request->size) {
    co_return fail(*channel, {Outcome::kInvalidArgument, "fewer bytes than announced"});
  }
  const auto entry = (*writer)->commit();
  if (!entry) co_return fail(*channel, entry.error());
  succeed(*channel, *entry);
}

Task<void> GuestAgent::stat_file(ChannelPtr channel, Bytes metadata) {
  const auto request = path_request_or_fail<wire::FileStatRequest>(*channel, metadata);
  if (!request) co_return;
  const auto entry = world_.files.stat(request->path, request->user);
  if (!entry) co_return fail(*channel, entry.error());
  succeed(*channel, *entry);
}

Task<void> GuestAgent::list_files(ChannelPtr channel, Bytes metadata) {
  const auto request = path_request_or_fail<wire::FileListRequest>(*channel, metadata);
  if (!request) co_return;
  const auto list = world_.files.list(request->path, request->user, request->depth);
  if (!list) co_return fail(*channel, list.error());
  const auto bytes = wire::encode(*list);
  if (co_await channel->write(bytes)) succeed(*channel, Bytes{});
}

Task<void> GuestAgent::remove_file(ChannelPtr channel, Bytes metadata) {
  const auto request = path_request_or_fail<wire::FileRemoveRequest>(*channel, metadata);
  if (!request) co_return;
  // A lease that was cut ends the removal, also across a freeze: its next batch would belong to
  // another execution.
  std::function<bool()> wanted = [channel] { return !channel->over(); };
  const auto removed =
      co_await world_.files.remove(request->path, request->user, std::move(wanted));
  if (!removed) co_return fail(*channel, removed.error());
  succeed(*channel, wire::Nothing{});
}

Task<void> GuestAgent::make_dir(ChannelPtr channel, Bytes metadata) {
  const auto request = path_request_or_fail<wire::FileMakeDirRequest>(*channel, metadata);
  if (!request) co_return;
  const auto entry = world_.files.make_dir(request->path, request->user);
  if (!entry) co_return fail(*channel, entry.error());
  succeed(*channel, *entry);
}

Task<void> GuestAgent::move_file(ChannelPtr channel, Bytes metadata) {
  const auto request = decode_or_fail<wire::FileMoveRequest>(*channel, metadata);
  if (!request || !is_path_or_fail(*channel, request->source) ||
      !is_path_or_fail(*channel, request->destination)) {
    co_return;
  }
  const auto entry = world_.files.move(request->source, request->destination, request->user);
  if (!entry) co_return fail(*channel, entry.error());
  succeed(*channel, *entry);
}

}  // namespace space::guest
