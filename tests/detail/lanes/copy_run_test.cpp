#include <ccl/detail/lanes/copy_run.hpp>
#include <ccl/detail/lanes/host_lanes.hpp>

#include <cstring>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;

namespace {
/// Copies between runs that begin `to` and `from` bytes after an aligned address. Bytes around the
/// target must not change, and no byte outside the source may be read (valgrind would report it).
void copies(Index to, Index from, Index bytes) {
  INFO(bytes << " bytes from " << from << " to " << to);
  const auto aligned = [](std::vector<char>& memory) {
    const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
    return memory.data() + (16 - at % 16) % 16;
  };
  std::vector<char> source(std::size_t(bytes + 48)), target(std::size_t(bytes + 80), char(0x5a));
  char* const in = aligned(source) + from;
  char* const out = aligned(target) + 16 + to;
  for (Index i = 0; i < bytes; ++i) in[i] = char(i * 7 + i / 251 + 1);
  detail::copy_run(detail::SoloLane{}, out, in, bytes);
  REQUIRE(std::memcmp(out, in, std::size_t(bytes)) == 0);
  for (Index i = 1; i <= 16; ++i) {
    REQUIRE(out[-i] == 0x5a);
    REQUIRE(out[bytes + i - 1] == 0x5a);
  }
}
}  // namespace

TEST_CASE("runs are copied whatever their alignment and length") {
  for (Index to = 0; to < 16; ++to) {
    for (Index from = 0; from < 16; ++from) {
      for (Index bytes = 0; bytes < 70; ++bytes) copies(to, from, bytes);
      for (const Index bytes : {127, 128, 200, 1000, 4099}) copies(to, from, bytes);
    }
  }
}
