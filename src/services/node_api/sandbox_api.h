#pragma once
#include <string>

#include "core/wire/edge.h"
#include "ports/http.h"
#include "services/node_api/gateway.h"
#include "services/node_api/json.h"

namespace space::node_api {

class SandboxCall;
struct ProcessSelector;

// The API inside one sandbox as the E2B SDKs speak it (E2B.md 1.2, docs/e2b.md): /health, /files,
// and Connect's JSON calls of filesystem.Filesystem and process.Process. A request carries the
// sandbox's access token; each is judged anew from its own bytes (P-31).
//
// Of a body nothing is read before its operation was admitted (P-19), but: a Connect request, which
// is kept whole (1 MiB at most), and the head of a form's part that names the file to be opened,
// which is kept with what came in the same read (80 KiB at most) until that file's operation is
// admitted.
class SandboxApi {
 public:
  // All outlive the object.
  SandboxApi(Gateway& gateway, Timer& timer, Log& log)
      : gateway_(gateway), timer_(timer), log_(log) {}

  // A request for the sandbox that `target` names.
  Task<void> handle(HttpExchange& exchange, wire::EdgeTarget target);
  // A request that names its sandbox by its access token alone: /files of old SDKs (P-32).
  Task<void> handle_by_token(HttpExchange& exchange);

 private:
  struct Method;

  Task<void> route(SandboxCall& call);
  Task<bool> authorise(SandboxCall& call);
  Task<void> connect(SandboxCall& call, const Method& method);

  Task<void> health(SandboxCall& call);
  Task<void> read_file(SandboxCall& call);
  Task<void> write_files(SandboxCall& call);
  Task<void> write_form(SandboxCall& call, std::string boundary, std::string path);
  Task<void> write_one(SandboxCall& call, std::string path);

  Task<void> stat(SandboxCall& call, const Json& request);
  Task<void> make_dir(SandboxCall& call, const Json& request);
  Task<void> list_dir(SandboxCall& call, const Json& request);
  Task<void> move(SandboxCall& call, const Json& request);
  Task<void> remove(SandboxCall& call, const Json& request);

  Task<void> start(SandboxCall& call, const Json& request);
  Task<void> stream_events(SandboxCall& call, Admission& admission, BootClock::duration keepalive);
  Task<void> list_processes(SandboxCall& call, const Json& request);
  Task<void> send_input(SandboxCall& call, const Json& request);
  Task<void> send_signal(SandboxCall& call, const Json& request);
  Task<void> close_stdin(SandboxCall& call, const Json& request);
  // The pid that a selector means; nullopt after the request was answered.
  Task<std::optional<std::uint32_t>> pid_of(SandboxCall& call, ProcessSelector selector);
  Task<void> input(SandboxCall& call, ProcessSelector selector, Bytes bytes, bool close_after);

  Gateway& gateway_;
  Timer& timer_;
  Log& log_;
};

}  // namespace space::node_api
