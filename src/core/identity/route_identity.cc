#include "core/identity/route_identity.h"

#include "base/check.h"

namespace space::identity {

void write_route_identity(ByteWriter& out, const RouteIdentity& identity) {
  SPACE_ASSERT(identity.generation.value >= 1);
  out.text8(identity.sandbox.text());
  out.u64(identity.generation.value);
  out.text8(identity.worker.text());
  out.u8(static_cast<std::uint8_t>(identity.substrate));
  out.raw(identity.activation.view());
  out.u8(identity.pod_uid ? 1 : 0);
  if (identity.pod_uid) out.text8(identity.pod_uid->text());
}

std::optional<RouteIdentity> read_route_identity(ByteReader& in) {
  auto sandbox = SandboxId::parse(in.text8());
  const Generation generation{in.u64()};
  auto worker = WorkerId::parse(in.text8());
  const auto substrate = in.u8();
  const auto activation = ActivationId::from(in.raw(ActivationId::kBytes));
  const auto has_pod_uid = in.u8();
  std::optional<PodUid> pod_uid;
  if (has_pod_uid == 1) {
    pod_uid = PodUid::parse(in.text8());
    if (!pod_uid) return std::nullopt;
  }
  if (in.failed() || !sandbox || generation.value == 0 || !worker || !activation ||
      has_pod_uid > 1) {
    return std::nullopt;
  }
  if (substrate != static_cast<std::uint8_t>(Substrate::kHost) &&
      substrate != static_cast<std::uint8_t>(Substrate::kKubernetes)) {
    return std::nullopt;
  }
  return RouteIdentity{.sandbox = *std::move(sandbox),
                       .generation = generation,
                       .worker = *std::move(worker),
                       .substrate = static_cast<Substrate>(substrate),
                       .activation = *activation,
                       .pod_uid = std::move(pod_uid)};
}

}  // namespace space::identity
