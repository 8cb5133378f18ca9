#include "nccl/device/flat_range.hpp"

#include <ccl/types/word.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace ccl::detail::nccl {

Result<std::unique_ptr<FlatRange>> FlatRange::map(std::shared_ptr<Gpu> gpu,
                                                  std::vector<GpuBlock> blocks) {
  std::unique_ptr<FlatRange> made{new FlatRange{std::move(gpu), std::move(blocks)}};
  const Gpu::Current current{*made->gpu_};
  CCL_CHECK(made->measure());
  CCL_CHECK(made->map_all());
  return made;
}

/// Sets the distance of the blocks, and the place of each in its share of the range.
Result<void> FlatRange::measure() {
  const CudaDriver& cuda = gpu_->driver();
  std::size_t page = 1, behind = 0;
  for (std::size_t n = 0; n < blocks_.size(); ++n) {
    const GpuBlock& block = blocks_[n];
    if (block.memory->pages() == 0) {
      return fail(Errc::not_supported,
                  fmt::format("kernels cannot use the memory of rank {} by NCCL's device interface "
                              "(it has no cuMem handle, as memory of cudaMalloc, or "
                              "CCL_CUMEM_ENABLE is 0); take it from ncclMemAlloc",
                              n));
    }
    CUmemAllocationProp how{};
    std::size_t grain = 0;
    CCL_CHECK(cuda_check(cuda.mem_get_properties(&how, block.memory->pages()),
                         "ask for the properties of memory"));
    CCL_CHECK(cuda_check(cuda.mem_get_granularity(&grain, &how, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                         "ask for the granularity of memory"));
    page = std::max(page, grain);
    before_ = std::max(before_, block.offset);
    behind = std::max(behind, std::size_t(block.memory->name().bytes) - block.offset);
  }
  for (std::size_t n = 0; n < blocks_.size(); ++n) {
    if ((before_ - blocks_[n].offset) % page == 0) continue;
    return fail(
        Errc::not_supported,
        fmt::format("kernels cannot use the memory by NCCL's device interface (that of rank "
                    "{} begins {} bytes behind the begin of a page, and that of another "
                    "rank elsewhere); take the begin of memory of ncclMemAlloc on all "
                    "ranks",
                    n, blocks_[n].offset % page));
  }
  stride_ = div_up(before_ + behind, stride_unit) * stride_unit;
  return {};
}

CUdeviceptr FlatRange::place(std::size_t block) const {
  return range_ + block * stride_ + (before_ - blocks_[block].offset);
}

Result<void> FlatRange::map_all() {
  const CudaDriver& cuda = gpu_->driver();
  CUdeviceptr at = 0;
  CCL_CHECK(cuda_check(cuda.mem_address_reserve(&at, bytes(), 0, 0, 0),
                       fmt::format("reserve {} GiB of addresses for the memory of {} ranks",
                                   bytes() >> 30, blocks_.size())));
  range_ = at;
  base_ = reinterpret_cast<std::byte*>(range_ + before_);
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = gpu_->device();
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  for (; mapped_ < blocks_.size(); ++mapped_) {
    GpuMemory& memory = *blocks_[mapped_].memory;
    const std::size_t size = memory.name().bytes;
    CCL_CHECK(cuda_check(cuda.mem_map(place(mapped_), size, 0, memory.pages(), 0),
                         fmt::format("map the memory of rank {} a second time", mapped_)));
    if (const CUresult code = cuda.mem_set_access(place(mapped_), size, &access, 1);
        code != CUDA_SUCCESS) {
      (void)cuda.mem_unmap(place(mapped_), size);
      return cuda_failure(
          code, fmt::format("let device {} use the memory of rank {}", gpu_->device(), mapped_));
    }
    memory.pin();
  }
  return {};
}

FlatRange::~FlatRange() {
  const CudaDriver& cuda = gpu_->driver();
  const Gpu::Current current{*gpu_};
  for (std::size_t n = 0; n < mapped_; ++n) {
    (void)cuda.mem_unmap(place(n), blocks_[n].memory->name().bytes);
  }
  if (range_ != 0) (void)cuda.mem_address_free(range_, bytes());
}

}  // namespace ccl::detail::nccl
