#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/wire/messages.h"
#include "ports/http.h"
#include "services/node_api/gateway.h"
#include "services/node_api/query.h"

namespace space::node_api {

// The control API of E2B, both generations of its wire (docs/e2b.md), so that the SDKs' own clients
// make, find, pause and end sandboxes. Errors are {"code": status, "message", "error_code"}. Routes
// of the API that SPACE does not serve are 501, all others 404; both name the route (C106, C108).
class ControlApi final : public HttpHandler {
 public:
  // `gateway` and `log` outlive the handler. `domain`: where the traffic of sandboxes goes; empty:
  // clients are told of none.
  ControlApi(Gateway& gateway, Log& log, std::string domain)
      : gateway_(gateway), log_(log), domain_(std::move(domain)) {}
  Task<void> handle(HttpExchange& exchange) override;

 private:
  class Call;
  struct Entry;
  static const std::vector<Entry>& table();

  Task<void> create(Call& call);
  Task<void> create_v2(Call& call);
  Task<void> list(Call& call);
  Task<void> list_v2(Call& call);
  Task<void> get(Call& call);
  Task<void> kill(Call& call);
  Task<void> set_timeout(Call& call);
  Task<void> refresh(Call& call);
  Task<void> connect(Call& call);
  Task<void> resume(Call& call);
  Task<void> pause(Call& call);

  Task<void> create_with(Call& call, std::uint32_t default_timeout_s);
  Task<void> list_with(Call& call, Result<wire::SandboxListRequest> (*reader)(Query&));
  Task<void> set_deadline(Call& call, std::uint32_t timeout_s, bool only_extend);

  Gateway& gateway_;
  Log& log_;
  std::string domain_;
};

}  // namespace space::node_api
