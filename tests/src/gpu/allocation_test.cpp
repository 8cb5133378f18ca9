#include "gpu/allocation.hpp"

#include <cstdint>

#include "support/handle_memory.hpp"
#include "support/region_attributes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
constexpr std::size_t piece = 1 << 20;
CUdeviceptr address(const char* at) {
  return reinterpret_cast<CUdeviceptr>(at);
}
}  // namespace

TEST_CASE("the mappings around a buffer are those that it touches, in order") {
  const auto cuda = install_gpus(2);
  HandleMemory memory{1, 6, piece};
  for (const std::size_t n : {0, 1, 2, 4, 5}) memory.map(n, 0);
  const auto around = [&](const char* at, std::size_t bytes, int device = 1,
                          std::size_t limit = 8) {
    return detail::mappings_around(cuda, device, address(at), bytes, limit);
  };
  const auto two = around(memory.piece(0) + 100, piece);
  REQUIRE(two.size() == 2);
  CHECK(two[0].range.begin == address(memory.piece(0)));
  CHECK(two[1].range.begin == address(memory.piece(1)));
  CHECK(two[1].range.bytes == piece);
  CHECK(two[0].id != two[1].id);
  CHECK(two[0].handle_types == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  CHECK(around(memory.piece(0) + 100, piece - 100).size() == 1);
  CHECK(around(memory.piece(0), 3 * piece).size() == 3);
  CHECK(around(memory.piece(0), 3 * piece, 1, 2).empty());  // more than the limit
  CHECK(around(memory.piece(0), 3 * piece + 1).empty());    // a gap
  CHECK(around(memory.piece(3), 1).empty());                // in it
  CHECK(around(memory.piece(0), piece, 0).empty());         // of another device
  memory.unmap(1);
  memory.map(1, 0);
  CHECK(around(memory.piece(1), 1).front().id != two[1].id);
}
