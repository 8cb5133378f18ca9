#include "nccl/device/kernel_slot.hpp"

#include <cstddef>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/region_attributes.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail::nccl;

TEST_CASE("a slot's address is not used again soon") {
  (void)install_gpus(1);
  std::set<std::byte*> seen;
  for (int n = 0; n < 1000; ++n) {
    const auto slot = KernelSlot::take(0);
    REQUIRE(slot);
    CHECK(seen.insert((*slot)->at()).second);
  }
  std::vector<std::unique_ptr<KernelSlot>> many;
  std::set<std::byte*> held;
  for (int n = 0; n < 5000; ++n) {
    auto slot = KernelSlot::take(0);
    REQUIRE(slot);
    CHECK(held.insert((*slot)->at()).second);
    many.push_back(*std::move(slot));
  }
}
