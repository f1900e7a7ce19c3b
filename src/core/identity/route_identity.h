#pragma once
#include <optional>

#include "core/identity/ids.h"

namespace space::identity {

// The selected runtime incarnation and its placement: SPEC.md's execution identity (ID-2). Only
// this decides whether an endpoint may serve (ID-3).
struct RouteIdentity {
  SandboxId sandbox;
  Generation generation;
  WorkerId worker;
  Substrate substrate = Substrate::kHost;
  ActivationId activation;
  std::optional<PodUid> pod_uid;  // absent differs from present

  friend bool operator==(const RouteIdentity&, const RouteIdentity&) = default;
};

// Canonical bytes; one encoding per value. `read_route_identity` marks `in` failed-by-return:
// nullopt for anything `write_route_identity` would not have written (generation 0 included).
void write_route_identity(ByteWriter& out, const RouteIdentity& identity);
std::optional<RouteIdentity> read_route_identity(ByteReader& in);

}  // namespace space::identity
