#pragma once
#include <cstdint>
#include <string_view>

#include "base/strong_id.h"

// The names of SPEC.md and PROTOCOL.md "Words", each its own type.
namespace space::identity {

// The stable logical environment (ID-1). Made by the control plane: 20 characters of a-z2-7, 100
// random bits, never reused. A DNS label, since it appears in host names.
using SandboxId = StrongName<struct SandboxIdTag, 32>;
using WorkerId = StrongName<struct WorkerIdTag, 40>;
using TeamId = StrongName<struct TeamIdTag, 40>;
// Kubernetes pod UID (RFC 4122 text form, which is a valid label).
using PodUid = StrongName<struct PodUidTag, 40>;
// Who mints: the control plane's name.
using Issuer = StrongName<struct IssuerTag, 40>;
// Owner of a lifecycle operation: a control-plane replica. In no capability and no comparison
// (ID-5).
using OwnerId = StrongName<struct OwnerIdTag, 40>;

// Number of an execution of one sandbox: strictly increasing from 1, never reused (ID-2). 0 = none.
using Generation = StrongNumber<struct GenerationTag, std::uint64_t>;
// Retry of the lifecycle operation around the same runtime process, from 1.
using Attempt = StrongNumber<struct AttemptTag, std::uint32_t>;
using KeyId = StrongNumber<struct KeyIdTag, std::uint32_t>;
using BundleVersion = StrongNumber<struct BundleVersionTag, std::uint64_t>;

using ActivationId = StrongBytes<struct ActivationIdTag, 16>;    // one installation of a generation
using CapabilityId = StrongBytes<struct CapabilityIdTag, 16>;    // unique per capability
using SessionId = StrongBytes<struct SessionIdTag, 16>;          // native session (P-18)
using HolderId = StrongBytes<struct HolderIdTag, 32>;            // hash of the node-api's key (P-1)
using OperationId = StrongBytes<struct OperationIdTag, 16>;      // lifecycle operation (P-13)
using BootNonce = StrongBytes<struct BootNonceTag, 16>;          // one run of one part
using LeaseId = StrongNumber<struct LeaseIdTag, std::uint64_t>;  // local to one receiver
using ConstraintHash = StrongBytes<struct ConstraintHashTag, 32>;
// SHA-256 of an API key or an access token; the credential itself is stored nowhere.
using CredentialHash = StrongBytes<struct CredentialHashTag, 32>;
using PublicKey = StrongBytes<struct PublicKeyTag, 32>;  // Ed25519

enum class Substrate : std::uint8_t { kHost = 1, kKubernetes = 2 };
enum class Purpose : std::uint8_t { kControl = 1, kServicePort = 2 };
enum class PortProtocol : std::uint8_t { kHttp = 1, kTcp = 2 };

constexpr std::string_view to_string(Substrate substrate) {
  return substrate == Substrate::kHost ? "host" : "kubernetes";
}
constexpr std::string_view to_string(Purpose purpose) {
  return purpose == Purpose::kControl ? "control" : "service-port";
}

}  // namespace space::identity
