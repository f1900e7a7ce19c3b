#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ports/http.h"
#include "services/node_api/gateway.h"
#include "services/node_api/json.h"

namespace space::node_api {

// The HTTP status of an outcome: one table for every route (docs/api.md).
unsigned http_status(frame::Outcome outcome);
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
  struct Call;
  struct Entry;
  static const std::vector<Entry>& table();

  Task<void> route(HttpExchange& exchange);
  Task<void> fail(Call& call, Failure failure);
  Task<void> answer(Call& call, unsigned status, Json body);
  // The JSON object of the request's body; `{}` for none. Answers the request itself when it is no
  // such.
  Task<std::optional<Json>> parameters(Call& call);
  // False after it has answered the request with the reader's error.
  Task<bool> accepted(Call& call, JsonFields& fields);
  template <class Request>
  Task<void> sandbox_operation(Call& call, policy::Operation operation, Request request);
  template <class Request>
  Task<std::optional<Gateway::Answer>> guest_call(Call& call, policy::Operation operation,
                                                  const Request& request);

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
  Task<bool> upload(Call& call, Admission& admission);
  Task<hop::ChannelEvent> outcome(Call& call, Admission& admission);

  Gateway& gateway_;
  Log& log_;
};

}  // namespace space::node_api
