#pragma once

#include <ccl/types/result.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "nccl/abi/device_layouts.hpp"

namespace ccl::detail::nccl {

/// Layouts of ncclDevComm, by the first version of NVIDIA's headers that has it.
enum class DevCommLayout : int { v2_28 = 22800, v2_29_7 = 22907, v2_30 = 23000, v2_31 = 23100 };

/// Resources that kernels ask for, each at an offset in memory that every rank has.
class KernelNeeds {
 public:
  /// Reads an ncclDevCommRequirements of any known version. `ranks`: those of the LSA team. Fails
  /// - with `Errc::not_supported` for what ccl does not have: GIN, multimem, CFT,
  /// - with `Errc::invalid_usage` for a layout that is not known.
  static Result<KernelNeeds> read(const void* wants, int ranks);

  DevCommLayout layout() const { return layout_; }
  unsigned version() const { return version_; }
  std::size_t bytes() const { return bytes_; }  // of each rank's memory; not 0
  const ncclLsaBarrierHandle_t& barrier() const { return barrier_; }
  const ncclLsaBarrierHandle_t& hybrid_barrier() const { return hybrid_barrier_; }
  /// A number of offsets and sizes, which must be equal on all ranks.
  std::uint64_t fingerprint() const { return fingerprint_; }
  /// Writes the handles of the program's resources to where it wants them.
  void write_handles() const;

 private:
  Result<void> read_header(const void* wants, DevCommRequirements& given);
  Result<void> place_all(const DevCommRequirements& given, int ranks);
  Result<ncclDevResourceHandle_t> place(std::size_t bytes, std::size_t align);

  struct Handle {
    ncclDevResourceHandle_t* to;
    ncclDevResourceHandle_t handle;
  };
  DevCommLayout layout_ = DevCommLayout::v2_28;
  unsigned version_ = 22809;
  std::size_t bytes_ = 0;
  ncclLsaBarrierHandle_t barrier_{}, hybrid_barrier_{};
  std::uint64_t fingerprint_ = 0;
  std::vector<Handle> handles_;
};

/// Bytes of the barriers of an LSA team: epochs, then inboxes of each rank.
constexpr std::size_t lsa_barrier_bytes(int barriers, int ranks) {
  return std::size_t(barriers) * (3 + std::size_t(ranks)) * sizeof(std::uint32_t);
}

}  // namespace ccl::detail::nccl
