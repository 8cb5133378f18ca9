#include "nccl/device/window_table.hpp"

#include <cstdint>

#include "support/catch.hpp"
#include "support/region_attributes.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail::nccl;

TEST_CASE("kernels find windows by address in a table that grows") {
  (void)install_gpus(1);
  const auto made = WindowTable::create(0);
  REQUIRE(made);
  WindowTable& table = **made;
  const auto window = [](std::uintptr_t n) { return reinterpret_cast<ncclWindow_t>(n); };
  const auto find = [&](std::uintptr_t at) -> ncclWindow_t {  // as kernels do
    for (const auto* one = table.at(); one != nullptr; one = one->next) {
      for (const auto& entry : one->entries) {
        if (entry.window != nullptr && at - entry.base < entry.size) return entry.window;
      }
    }
    return nullptr;
  };
  constexpr std::uintptr_t count = 100, bytes = 4096;
  for (std::uintptr_t n = 1; n <= count; ++n) {
    REQUIRE(table.add(reinterpret_cast<void*>(n * bytes), bytes, window(n)));
  }
  for (std::uintptr_t n = 1; n <= count; ++n) {
    CHECK(find(n * bytes) == window(n));
    CHECK(find(n * bytes + bytes - 1) == window(n));
  }
  CHECK(find(bytes - 1) == nullptr);
  REQUIRE(table.remove(window(40)));
  CHECK(find(40 * bytes) == nullptr);
  REQUIRE(table.add(reinterpret_cast<void*>(1000 * bytes), 1, window(200)));
  CHECK(find(1000 * bytes) == window(200));
  CHECK(find(1000 * bytes + 1) == nullptr);
  CHECK(find(100 * bytes) == window(100));
}
