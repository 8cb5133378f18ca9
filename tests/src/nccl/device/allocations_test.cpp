// Memory of ncclMemAlloc. The driver's GPUs are plain memory.
#include "nccl/device/allocations.hpp"

#include <algorithm>
#include <cstring>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/fake_gpus.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail::nccl;

namespace {

CUmemAllocationProp asked{};  // properties of the latest memory

/// GPUs of a test, of which the second has no path to the third.
FakeGpus& three_gpus() {
  FakeGpus& gpus = FakeGpus::install(3);
  detail::CudaDriver driver = fake::driver();
  static const auto create = driver.mem_create;
  driver.mem_create = [](CUmemGenericAllocationHandle* handle, std::size_t bytes,
                         const CUmemAllocationProp* how, unsigned long long flags) {
    asked = *how;
    return create(handle, bytes, how, flags);
  };
  detail::use_cuda_driver(driver, 3);
  gpus.link(1, 2, {.access = false});
  return gpus;
}

bool may_use(const FakeGpus& gpus, const void* memory, int device) {
  const FakeGpus::Region* const region = gpus.region(memory);
  if (region == nullptr) return false;
  return std::ranges::find(region->accessible, device) != region->accessible.end();
}

}  // namespace

TEST_CASE("memory of ncclMemAlloc can be exported, and all GPUs that reach it may use it") {
  FakeGpus& gpus = three_gpus();
  const auto memory = allocate_shareable(1, 1000);
  REQUIRE(memory);
  const FakeGpus::Region* const region = gpus.region(*memory);
  REQUIRE(region != nullptr);
  CHECK(region->device == 1);
  CHECK(region->bytes >= 1000);
  CHECK((may_use(gpus, *memory, 0) && may_use(gpus, *memory, 1) && !may_use(gpus, *memory, 2)));
  constexpr unsigned types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
  CHECK(unsigned(asked.requestedHandleTypes) == types);
  CHECK(asked.allocFlags.gpuDirectRDMACapable == 1);
  std::memset(*memory, 1, 1000);
  CHECK(release_shareable(*memory));
  CHECK(gpus.region(*memory) == nullptr);
  CHECK_FALSE(release_shareable(*memory));  // twice
}

TEST_CASE("memory that ncclMemAlloc has not given is somebody else's") {
  (void)three_gpus();
  int own = 0;
  CHECK_FALSE(release_shareable(&own));
  CHECK_FALSE(release_shareable(nullptr));
}

TEST_CASE("without cuMem handles ncclMemAlloc gives legacy memory") {
  FakeGpus& gpus = three_gpus();
  const Environment legacy{"NCCL_CUMEM_ENABLE", "0"};
  const auto memory = allocate_shareable(0, 1000);
  REQUIRE(memory);
  REQUIRE(gpus.region(*memory) != nullptr);
  CHECK(gpus.region(*memory)->fd >= 0);
  CHECK(release_shareable(*memory));
  CHECK(gpus.region(*memory) == nullptr);
}

TEST_CASE("a GPU without memory, or none, is an error of ncclMemAlloc that names it") {
  FakeGpus& gpus = three_gpus();
  gpus.full = 2;
  const auto full = allocate_shareable(2, 1 << 20);
  gpus.full = -1;
  REQUIRE_FALSE(full);
  CHECK(full.error().code == Errc::out_of_memory);
  CHECK(full.error().what.find("device 2") != std::string::npos);
  CHECK(allocate_shareable(2, 1 << 20));
  const auto none = allocate_shareable(9, 1);
  REQUIRE_FALSE(none);
  CHECK(none.error().what.find("no CUDA device 9") != std::string::npos);
}
