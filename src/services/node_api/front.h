#pragma once
#include "core/wire/edge.h"
#include "ports/http.h"
#include "services/node_api/sandbox_api.h"

namespace space::node_api {

// The one door: says by the bytes of each request alone which API it is for, anew for each request
// of a connection and before any look-up (P-31). What can't be told is 400.
class Front final : public HttpHandler {
 public:
  // `space`: our own API, under /space/v1. `control`: E2B's control API, the rest of the platform.
  // All outlive the front.
  Front(wire::EdgeNames names, HttpHandler& space, HttpHandler& control, SandboxApi& sandbox)
      : names_(std::move(names)), space_(space), control_(control), sandbox_(sandbox) {}
  Task<void> handle(HttpExchange& exchange) override;

 private:
  wire::EdgeNames names_;
  HttpHandler& space_;
  HttpHandler& control_;
  SandboxApi& sandbox_;
};

}  // namespace space::node_api
