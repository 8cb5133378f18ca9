#include "nccl/device/host_memory.hpp"

#include <algorithm>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail::nccl;

TEST_CASE("memory of CPU ranks is zeroed, found by any part of it, and freed once") {
  const auto memory = allocate_on_host(5000);
  REQUIRE(memory);
  auto* const at = static_cast<std::byte*>(*memory);
  CHECK(std::all_of(at, at + 5000, [](std::byte b) { return b == std::byte{0}; }));
  const auto block = host_block_of(at, 5000);
  REQUIRE(block);
  CHECK(block->data() == at);
  CHECK(host_block_of(at + 4999, 1) == block);
  CHECK(host_block_of(at, 8192) == block);  // whole pages
  CHECK(host_block_of(at, 8193) == nullptr);
  CHECK(host_block_of(at + 8192, 1) == nullptr);
  CHECK(host_block_of(at - 1, 1) == nullptr);
  CHECK(host_block_of(&block, 1) == nullptr);
  CHECK(release_on_host(at));
  CHECK(host_block_of(at, 1) == nullptr);
  CHECK(release_on_host(at).error().code == Errc::invalid_argument);
  CHECK(release_on_host(nullptr));
  block->data()[0] = std::byte{1};  // whoever holds the block keeps the memory
}

TEST_CASE("many allocations do not use up the descriptors of the process") {
  std::vector<void*> all;
  for (std::size_t i = 0; i < max_shareable + 10; ++i) {
    const auto memory = allocate_on_host(100);
    REQUIRE(memory);
    all.push_back(*memory);
  }
  CHECK(host_block_of(all.front(), 100));
  CHECK_FALSE(host_block_of(all.back(), 100));
  CHECK(*static_cast<std::byte*>(all.back()) == std::byte{0});
  CHECK(release_on_host(all.front()));
  all.erase(all.begin());
  const auto again = allocate_on_host(100);
  REQUIRE(again);
  CHECK(host_block_of(*again, 100));
  all.push_back(*again);
  for (void* one : all) CHECK(release_on_host(one));
}
