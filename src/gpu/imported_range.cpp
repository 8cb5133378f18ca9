#include "gpu/imported_range.hpp"

#include <fmt/format.h>

#include <utility>

namespace ccl::detail {

Result<std::shared_ptr<ImportedRange>> ImportedRange::reserve(std::shared_ptr<Gpu> gpu,
                                                              std::size_t bytes) {
  const Gpu::Current current{*gpu};
  std::shared_ptr<ImportedRange> range{new ImportedRange{std::move(gpu)}};
  CCL_CHECK(cuda_check(range->gpu_->driver().mem_address_reserve(&range->base_, bytes, 0, 0, 0),
                       fmt::format("reserve {} bytes of addresses", bytes)));
  range->bytes_ = bytes;
  return range;
}

ImportedRange::~ImportedRange() {
  if (bytes_ == 0) return;
  const Gpu::Current current{*gpu_};
  if (mapped_ > 0) (void)gpu_->driver().mem_unmap(base_, mapped_);
  (void)gpu_->driver().mem_address_free(base_, bytes_);
}

Result<void> ImportedRange::append(const SharedHandle& handle) {
  if (handle.bytes == 0 || handle.bytes > bytes_ - mapped_) {
    return fail(
        Errc::mismatch,
        fmt::format("a handle of {} bytes does not fit into the {} bytes that are left of {}",
                    handle.bytes, bytes_ - mapped_, bytes_));
  }
  const Gpu::Current current{*gpu_};
  const CudaDriver& cuda = gpu_->driver();
  CCL_TRY(const CUmemGenericAllocationHandle imported,
          import_handle(cuda, handle.fd, handle.fabric));
  const auto mapped = cuda_check(cuda.mem_map(base_ + mapped_, handle.bytes, 0, imported, 0),
                                 fmt::format("map {} bytes of a peer", handle.bytes));
  (void)cuda.mem_release(imported);  // the mapping keeps the pages
  CCL_CHECK(mapped);
  mapped_ += handle.bytes;
  return {};
}

Result<void> ImportedRange::open() {
  if (mapped_ != bytes_) {
    return fail(Errc::mismatch, fmt::format("{} of {} bytes are mapped", mapped_, bytes_));
  }
  const Gpu::Current current{*gpu_};
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = gpu_->device();
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return cuda_check(gpu_->driver().mem_set_access(base_, bytes_, &access, 1),
                    fmt::format("let device {} use {} bytes of a peer", gpu_->device(), bytes_));
}

}  // namespace ccl::detail
