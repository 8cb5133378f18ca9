#include "gpu/memory.hpp"

#include "gpu/devices.hpp"
#include "support/catch.hpp"
#include "support/fake_gpus.hpp"

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
