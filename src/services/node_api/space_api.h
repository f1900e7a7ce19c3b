#pragma once
#include <vector>

#include "ports/http.h"
#include "services/node_api/gateway.h"
#include "services/node_api/json.h"

namespace space::node_api {

// The JSON body of a failure: {"code", "message", "reason"?, "retry_after_ms"?}.
Json failure_json(const Failure& failure);

// The public API under /space/v1 (docs/api.md). Each request is judged anew from its own bytes
// (P-31); nothing of a body is read before the operation it belongs to was admitted (P-19), but
// JSON parameters, which are kept whole.
class SpaceApi final : public HttpHandler {
 public:
  // Both outlive the handler.
  SpaceApi(Gateway& gateway, Log& log) : gateway_(gateway), log_(log) {}
  Task<void> handle(HttpExchange& exchange) override;

 private:
  class Call;
  struct Entry;
  static const std::vector<Entry>& table();

  Task<void> health(Call& call);
  Task<void> status(Call& call);
  Task<void> create_sandbox(Call& call);
  Task<void> list_sandboxes(Call& call);
  Task<void> get_sandbox(Call& call);
  Task<void> kill_sandbox(Call& call);
  Task<void> set_timeout(Call& call);
  Task<void> pause_sandbox(Call& call);
  Task<void> resume_sandbox(Call& call);
  Task<void> move_sandbox(Call& call);
  Task<void> sandbox_route(Call& call);
  Task<void> show_capability(Call& call);
  Task<void> read_file(Call& call);
  Task<void> write_file(Call& call);
  Task<void> remove_file(Call& call);
  Task<void> stat_file(Call& call);
  Task<void> list_files(Call& call);
  Task<void> make_directory(Call& call);
  Task<void> start_process(Call& call);
  Task<void> stream_process(Call& call, Admission& admission);
  Task<void> list_processes(Call& call);
  Task<void> signal_process(Call& call);
  Task<void> process_input(Call& call);

  Gateway& gateway_;
  Log& log_;
};

}  // namespace space::node_api
