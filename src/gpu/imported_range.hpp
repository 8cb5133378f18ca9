#pragma once

#include <cstddef>
#include <memory>

#include "gpu/gpu.hpp"
#include "gpu/shared_handle.hpp"

namespace ccl::detail {

/// Memory of another process that has several cuMem handles, mapped at adjacent addresses. The
/// pages live as long as this object.
class ImportedRange {
 public:
  /// Reserves addresses for `bytes` bytes.
  static Result<std::shared_ptr<ImportedRange>> reserve(std::shared_ptr<Gpu> gpu,
                                                        std::size_t bytes);
  ~ImportedRange();
  ImportedRange(const ImportedRange&) = delete;
  ImportedRange& operator=(const ImportedRange&) = delete;

  /// Maps the memory of a handle behind that of the last. Fails if it does not fit.
  Result<void> append(const SharedHandle& handle);
  /// Lets the GPU use the memory. Fails if some of it is missing. Called once, after all handles.
  Result<void> open();
  CUdeviceptr base() const { return base_; }

 private:
  explicit ImportedRange(std::shared_ptr<Gpu> gpu) : gpu_{std::move(gpu)} {}

  std::shared_ptr<Gpu> gpu_;
  CUdeviceptr base_ = 0;
  std::size_t bytes_ = 0, mapped_ = 0;
};

}  // namespace ccl::detail
