#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>

#include "base/io/fd.hpp"
#include "gpu/gpu.hpp"

namespace ccl::detail {

/// Name of memory that another process may map; travels as bytes.
struct GpuMemoryName {
  std::array<Word, 2> id{};  // unique
  Word bytes = 0;
  // Kind of handle:
  // - 0: legacy; `key` is its IPC handle,
  // - 1: cuMem; its fd travels over a Unix socket,
  // - 2: as 1, and `key` is its fabric handle for other hosts.
  Word handles = 0;
  std::array<std::byte, 64> key{};
  static_assert(sizeof(CUipcMemHandle) == 64 && sizeof(CUmemFabricHandle) == 64);
};

/// Memory of a GPU, this rank's own or mapped from a peer. A mapping of cuMem memory outlives the
/// owner's handle; within a process, owners are shared.
class GpuMemory {
 public:
  /// Allocates zeroed memory of `gpu`, by cuMem handles unless CCL_CUMEM_ENABLE is 0 or the GPU has
  /// none.
  static Result<std::shared_ptr<GpuMemory>> allocate(std::shared_ptr<Gpu> gpu, std::size_t bytes);
  /// Allocates zeroed memory on the GPU with this bus id, always by cuMem handles. This process
  /// must see the GPU and `gpu` must reach it.
  static Result<std::shared_ptr<GpuMemory>> allocate_on(std::int64_t bus_id,
                                                        std::shared_ptr<Gpu> gpu,
                                                        std::size_t bytes);
  /// Finds memory of another rank of this process and makes it accessible to `gpu`. Returns null if
  /// no rank of this process has made it.
  static Result<std::shared_ptr<GpuMemory>> find(const Gpu& gpu, const GpuMemoryName& name);
  /// Returns the existing mapping of `gpu`, null if there is none.
  static std::shared_ptr<GpuMemory> mapped(const Gpu& gpu, const GpuMemoryName& name);
  /// Maps a peer's memory. `fd` is its cuMem handle, or empty to use its fabric handle.
  static Result<std::shared_ptr<GpuMemory>> map(std::shared_ptr<Gpu> gpu, const GpuMemoryName& name,
                                                const Fd& fd);
  /// Lets peers map memory of the user, who frees it. `elsewhere`: some peers are other processes
  /// of this host. Ranks of other hosts need memory whose handles are made for the fabric.
  /// The `bytes` bytes from `at` on must be in one allocation of `gpu`.
  static Result<std::shared_ptr<GpuMemory>> borrow(std::shared_ptr<Gpu> gpu, void* at,
                                                   std::size_t bytes, bool elsewhere);
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  std::byte* base() const { return base_; }
  const GpuMemoryName& name() const { return name_; }
  /// Returns a descriptor of cuMem memory of this process.
  Result<Fd> share() const;

 private:
  explicit GpuMemory(std::shared_ptr<Gpu> gpu) : gpu_{std::move(gpu)} {}
  Result<void> allocate_handles(std::size_t bytes, int device);
  /// With `device` -1, makes memory without handles on the GPU itself.
  static Result<std::shared_ptr<GpuMemory>> make(std::shared_ptr<Gpu> gpu, std::size_t bytes,
                                                 int device);
  Result<void> allocate_legacy(std::size_t bytes);
  Result<void> map_handle();
  Result<void> export_fabric();
  void enlist();

  std::shared_ptr<Gpu> gpu_;
  GpuMemoryName name_;
  bool own_ = false, enlisted_ = false;
  bool borrowed_ = false;  // owned by the user
  std::byte* base_ = nullptr;
  CUmemGenericAllocationHandle handle_ = 0;
  bool mapped_ = false;
  std::mutex access_mutex_;   // guards `accessible_`
  std::set<int> accessible_;  // devices of other ranks of this process
};

/// Part of a memory that it keeps alive.
struct GpuBlock {
  std::shared_ptr<GpuMemory> memory;
  std::size_t offset = 0;
  std::byte* at() const { return memory->base() + offset; }
};

/// Allocator of zeroed memory of one GPU, aligned to 128 bytes. It never returns the same memory
/// twice, because a late write of a peer could hit it. Memory is freed with the last of its blocks.
class GpuArena {
 public:
  explicit GpuArena(std::shared_ptr<Gpu> gpu) : gpu_{std::move(gpu)} {}
  const std::shared_ptr<Gpu>& gpu() const { return gpu_; }
  /// The next blocks, of `bytes` bytes in total, will be in one memory.
  Result<void> reserve(std::size_t bytes);
  Result<GpuBlock> allocate(std::size_t bytes);

 private:
  std::shared_ptr<Gpu> gpu_;
  std::shared_ptr<GpuMemory> memory_;
  std::size_t used_ = 0;
};

}  // namespace ccl::detail
