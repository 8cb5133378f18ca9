#include <cstddef>
#include <cstdint>

#include "fuzz/topo_target.hpp"

// libFuzzer: build with clang and -DCCL_BUILD_FUZZERS=ON, run on a folder of topology files.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ccl::test::use_topology({reinterpret_cast<const char*>(data), size});
  return 0;
}
