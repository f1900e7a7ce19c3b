#include "services/control_plane/testing/memory_store.h"

#include "ports/testing/control_store_conformance.h"

namespace space::testing {
namespace {

struct MemoryStoreFactory {
  std::unique_ptr<ControlStore> open() { return std::make_unique<control_plane::MemoryStore>(); }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Memory, StoreConformance, MemoryStoreFactory);

}  // namespace
}  // namespace space::testing
