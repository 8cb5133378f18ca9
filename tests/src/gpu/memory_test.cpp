#include "gpu/memory.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "gpu/devices.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/fake_gpus.hpp"
#include "support/pointer_attributes.hpp"
#include "support/region_attributes.hpp"
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

namespace {
using Memory = Result<std::shared_ptr<detail::GpuMemory>>;
constexpr std::size_t some = 3 << 16;

Memory memory_of(int device) {
  auto gpu = detail::Gpu::open(device);
  REQUIRE(gpu);
  Memory made = detail::GpuMemory::allocate(*gpu, some);
  if (!made) FAIL(made.error().what);
  return made;
}
bool has_pages(const detail::GpuMemory& memory) {
  return fake::gpus().region(memory.base()) != nullptr;
}
}  // namespace

TEST_CASE("memory that rests has no pages, and wakes at its address with what it held") {
  FakeGpus& gpus = FakeGpus::install(2);
  const auto memory = memory_of(0);
  detail::GpuMemory& own = **memory;
  std::byte* const at = own.base();
  at[0] = std::byte{1};
  at[some - 1] = std::byte{2};
  auto peer = detail::Gpu::open(1);
  REQUIRE((peer && detail::GpuMemory::find(**peer, own.name())));  // a rank of this process
  for (int turn = 0; turn < 2; ++turn) {
    REQUIRE(own.save());
    REQUIRE(own.rest());
    CHECK_FALSE(has_pages(own));
    gpus.full = 0;
    const auto full = own.wake();
    gpus.full = -1;
    REQUIRE_FALSE(full);
    CHECK(full.error().code == Errc::out_of_memory);
    CHECK_FALSE(has_pages(own));
    REQUIRE(own.wake());
    own.forget();
    CHECK(own.base() == at);
    CHECK((at[0] == std::byte{1} && at[some - 1] == std::byte{2}));
    const auto& open = gpus.region(at)->accessible;
    CHECK((std::ranges::count(open, 0) == 1 && std::ranges::count(open, 1) == 1));
    CHECK(own.wake());  // which does nothing
  }
  REQUIRE(own.rest());  // and ends so
}

TEST_CASE("a mapping of memory rests, and has what its maker has when it wakes") {
  FakeGpus::install(2);
  const auto memory = memory_of(0);
  detail::GpuMemory& own = **memory;
  auto peer = detail::Gpu::open(1);
  REQUIRE(peer);
  auto fd = own.share();
  REQUIRE(fd);
  const auto mapped = detail::GpuMemory::map(*peer, own.name(), *fd, 5);
  REQUIRE(mapped);
  detail::GpuMemory& theirs = **mapped;
  CHECK((theirs.maker() == 5 && !theirs.is_own() && own.is_own() && own.maker() == -1));
  std::byte* const at = theirs.base();
  own.base()[7] = std::byte{9};
  CHECK(at[7] == std::byte{9});
  REQUIRE(theirs.rest());
  REQUIRE(own.save());
  REQUIRE(own.rest());
  CHECK_FALSE(has_pages(theirs));
  CHECK_FALSE(theirs.wake(own.name(), {}));  // there is no such memory on another host
  REQUIRE(own.wake());
  fd = own.share();
  REQUIRE(fd);
  REQUIRE(theirs.wake(own.name(), *fd));
  CHECK(theirs.base() == at);
  CHECK(at[7] == std::byte{9});
  at[8] = std::byte{3};
  CHECK(own.base()[8] == std::byte{3});
}

TEST_CASE("memory of legacy handles and memory of NICs do not rest; memory is a GPU object's") {
  FakeGpus::install(2);
  const auto memory = memory_of(0), other = memory_of(0);
  CHECK((*memory)->can_rest());
  (*memory)->pin();
  CHECK_FALSE((*memory)->can_rest());
  const test::Environment legacy{"CCL_CUMEM_ENABLE", "0"};
  auto gpu = detail::Gpu::open(1);
  REQUIRE(gpu);
  const auto old = detail::GpuMemory::allocate(*gpu, some);
  REQUIRE(old);
  CHECK_FALSE((*old)->can_rest());
  CHECK(detail::GpuMemory::all_of(**gpu).size() == 1);
  CHECK(detail::GpuMemory::that_can_rest(**gpu).empty());
}

TEST_CASE("a legacy handle that names more bytes than it has is refused, and is closed") {
  const test::Environment legacy{"CCL_CUMEM_ENABLE", "0"};
  install_gpus(2);
  auto gpu = detail::Gpu::open(0), peer = detail::Gpu::open(1);
  REQUIRE((gpu && peer));
  const auto own = detail::GpuMemory::allocate(*gpu, some);
  REQUIRE(own);
  auto name = (*own)->name();
  REQUIRE(name.handles == 0);
  const std::size_t regions = test::fake::gpus().regions.size();
  CHECK(detail::GpuMemory::map(*peer, name, {}, 5));
  for (const std::size_t more : {name.bytes + 1, ~std::size_t{0}}) {
    auto longer = name;
    longer.bytes = more;
    const auto mapped = detail::GpuMemory::map(*peer, longer, {}, 5);
    REQUIRE_FALSE(mapped);
    CHECK(mapped.error().code == Errc::mismatch);
    CHECK(mapped.error().what.find("rank 5") != std::string::npos);
  }
  CHECK(test::fake::gpus().regions.size() == regions);
}
