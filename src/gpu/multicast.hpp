#pragma once

#include <ccl/types/word.hpp>

#include <cstddef>
#include <memory>

#include "base/io/fd.hpp"
#include "gpu/gpu.hpp"

namespace ccl::detail {

// Apart from `CudaDriver`, so that nothing reaches these calls but through `multicast_driver`.
#define CCL_MULTICAST_DRIVER_CALLS(X) \
  X(create, cuMulticastCreate)        \
  X(add_device, cuMulticastAddDevice) \
  X(bind_mem, cuMulticastBindMem)     \
  X(bind_addr, cuMulticastBindAddr)   \
  X(unbind, cuMulticastUnbind)        \
  X(get_granularity, cuMulticastGetGranularity)

/// Calls of libcuda on NVLink multicast, which change state of NVSwitches that all programs on the
/// machine share.
struct MulticastDriver {
#define CCL_MULTICAST_DRIVER_MEMBER(member, function) decltype(&::function) member = nullptr;
  CCL_MULTICAST_DRIVER_CALLS(CCL_MULTICAST_DRIVER_MEMBER)
#undef CCL_MULTICAST_DRIVER_MEMBER
};

/// Returns the calls. Without CCL_NVLS_ENABLE=1, it fails with `not_supported` and looks up none.
Result<const MulticastDriver*> multicast_driver();
/// Replaces the calls in tests. The setting still decides.
void use_multicast_driver(const MulticastDriver& driver);

/// Bytes of memory to which the begin and the size of a part that is bound are rounded, at least.
/// `devices`: GPUs of the object. `bytes`: of the part. Fails as `MulticastBlock::check` does.
Result<std::size_t> multicast_granularity(const std::shared_ptr<Gpu>& gpu, int devices,
                                          std::size_t bytes);

/// Memory of one GPU in a multicast object, and the address of all GPUs' memory. Not run on
/// hardware.
///
/// One rank creates the object and shares it, and the others open it. Then each adds its GPU. When
/// all have, each binds its memory: the driver's call waits, without a limit, for GPUs that were
/// not added. When all have bound, `all()` reaches them.
class MulticastBlock {
 public:
  /// Fails where the setting or the GPU does not allow multicast.
  static Result<void> check(const std::shared_ptr<Gpu>& gpu);
  /// Creates an object of `devices` GPUs, each with `bytes` bytes or some more. `lent`: memory of
  /// the user that this rank will bind, of so many bytes; null: memory of its own.
  static Result<std::unique_ptr<MulticastBlock>> create(std::shared_ptr<Gpu> gpu, std::size_t bytes,
                                                        int devices, std::byte* lent = nullptr);
  /// Opens the object of another rank. `bytes` is what its `bytes()` returns.
  static Result<std::unique_ptr<MulticastBlock>> open(std::shared_ptr<Gpu> gpu, std::size_t bytes,
                                                      const Fd& shared, std::byte* lent = nullptr);
  ~MulticastBlock();
  MulticastBlock(const MulticastBlock&) = delete;
  MulticastBlock& operator=(const MulticastBlock&) = delete;

  /// Returns a descriptor of the object for a rank of this host.
  Result<Fd> share() const;
  Result<void> add();
  /// Binds zeroed memory, or what was lent, which must live as long as the block.
  Result<void> bind();

  std::size_t bytes() const { return bytes_; }
  /// Memory of this GPU; null before `bind`.
  std::byte* own() const { return lent_ ? lent_ : reinterpret_cast<std::byte*>(own_.at); }
  /// Address of all copies, for `multimem` instructions alone; 0 before `bind`.
  Word all() const { return Word{all_.at}; }

 private:
  /// Handle that is mapped, or not yet.
  struct Mapped {
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr at = 0;
    bool mapped = false;
  };
  MulticastBlock(std::shared_ptr<Gpu> gpu, const MulticastDriver& driver)
      : gpu_{std::move(gpu)}, driver_{driver} {}
  /// Fails as `check` does.
  static Result<std::unique_ptr<MulticastBlock>> begin(std::shared_ptr<Gpu> gpu);
  Result<void> round_up(CUmulticastObjectProp& how);
  Result<void> allocate();
  Result<void> map(Mapped& memory, const char* what);
  void drop(Mapped& memory);

  std::shared_ptr<Gpu> gpu_;
  const MulticastDriver& driver_;
  std::size_t bytes_ = 0;
  Mapped own_, all_;
  std::byte* lent_ = nullptr;
  bool bound_ = false;
};

}  // namespace ccl::detail
