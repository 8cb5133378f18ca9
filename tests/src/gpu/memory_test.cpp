#include "gpu/memory.hpp"

#include <cstddef>
#include <vector>

#include "gpu/devices.hpp"
#include "support/catch.hpp"
#include "support/fake_gpus.hpp"
#include "support/pointer_attributes.hpp"
#include <fcntl.h>

using namespace ccl;
using namespace ccl::test;

TEST_CASE("memory of cuMem handles is for RDMA devices, too, where the GPU supports that") {
  FakeGpus& gpus = FakeGpus::install(2);
  gpus.rdma = GENERATE(true, false);
  gpus.for_rdma = 0;
  auto gpu = detail::Gpu::open(0);
  REQUIRE(gpu);
  const auto own = detail::GpuMemory::allocate(*gpu, 1 << 20);
  if (!own) FAIL(own.error().what);
  CHECK((*own)->name().handles != 0);
  const auto next =
      detail::GpuMemory::allocate_on(detail::bus_id_of("fade:11:00.0"), *gpu, 1 << 20);
  if (!next) FAIL(next.error().what);
  CHECK(gpus.for_rdma == (gpus.rdma ? 2 : 0));
}

namespace {
/// A reserved range, of which one handle of `handle_bytes` is mapped from `mapped` on.
constexpr std::size_t handle_bytes = 1 << 20;
std::byte* mapped = nullptr;

CUresult attributes_of_range(unsigned count, CUpointer_attribute* what, void** to, CUdeviceptr) {
  const auto at = reinterpret_cast<CUdeviceptr>(mapped);
  FakeAllocation range{at - handle_bytes, 4 * handle_bytes};
  range.on_device = range.mapped = at;
  range.mapped_bytes = handle_bytes;
  return answer_attributes(range, count, what, to);
}
}  // namespace

TEST_CASE("of a range of several cuMem handles, peers map the handle that contains the memory") {
  FakeGpus::install(1);
  detail::CudaDriver cuda = fake::driver();
  cuda.pointer_get_attributes = attributes_of_range;
  cuda.mem_retain_handle = [](CUmemGenericAllocationHandle* handle, void*) {
    const int fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    *handle = reinterpret_cast<std::uintptr_t>(new fake::Handle{fd, 0});
    return CUDA_SUCCESS;
  };
  cuda.mem_get_properties = [](CUmemAllocationProp* how, CUmemGenericAllocationHandle) {
    how->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return CUDA_SUCCESS;
  };
  detail::use_cuda_driver(cuda, 1);
  auto gpu = detail::Gpu::open(0);
  REQUIRE(gpu);
  std::vector<std::byte> memory(handle_bytes);
  mapped = memory.data();
  const auto inside = detail::GpuMemory::borrow(*gpu, mapped + 256, 4096, true);
  if (!inside) FAIL(inside.error().what);
  CHECK((*inside)->base() == mapped);
  CHECK((*inside)->name().bytes == handle_bytes);
  const auto across = detail::GpuMemory::borrow(*gpu, mapped + 256, handle_bytes, true);
  REQUIRE(!across);
  CHECK(across.error().code == Errc::not_supported);
}
