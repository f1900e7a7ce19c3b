#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "core/wire/messages.h"
#include "services/node_api/gateway.h"
#include "services/node_api/json.h"

// The messages of the sandbox API (E2B.md 1.2) in protobuf's JSON form: lowerCamel names, bytes in
// base64, 64-bit integers as strings, enums by name. Requests are read strictly, an unknown field
// is refused (C108); kUnsupported names what is not built yet.
namespace space::node_api {

// One process of a sandbox: by its public pid, or by its tag when that is not empty.
struct ProcessSelector {
  std::uint32_t pid = 0;
  std::string tag;
};
struct ProcessInputCall {
  ProcessSelector process;
  Bytes input;
};
struct ProcessSignalCall {
  ProcessSelector process;
  std::int32_t signal = 0;
};

Result<wire::ProcessStartRequest> read_start(const Json& request);
Result<ProcessSelector> read_selector(const Json& request);  // {"process"} and nothing else
Result<ProcessInputCall> read_input(const Json& request);
Result<ProcessSignalCall> read_signal(const Json& request);
Result<std::string> read_path(const Json& request);  // {"path"} and nothing else
Result<wire::FileMoveRequest> read_move(const Json& request);
Result<wire::FileListRequest> read_list_dir(const Json& request);

Json entry_info(const wire::FileEntry& entry);
// As ls shows them: "-rw-r--r--", "drwxr-xr-x", "Lrwxrwxrwx"; set-user-id, set-group-id and sticky
// as u, g and t in front.
std::string permission_text(wire::FileType type, std::uint32_t mode);
Json process_info(const wire::ProcessInfo& info);
Json process_event(const wire::ProcessEvent& event);
Json process_keepalive();
// "exit status 3", "signal: killed", "signal: segmentation fault (core dumped)".
std::string status_text(const wire::ProcessExited& exited);

}  // namespace space::node_api
