#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>

#include "base/fd.hpp"
#include "gpu/gpu.hpp"

namespace ccl::detail {

/// What a process tells another of memory that it may map: travels as bytes.
struct GpuMemoryName {
  std::array<Word, 2> id{};  // unique
  Word bytes = 0;
  // 1: cuMem, whose fd comes over a Unix socket; 2: the same, and `key` is its fabric handle, for
  // other hosts; 0: legacy, and `key` is its IPC handle.
  Word handles = 0;
  std::array<std::byte, 64> key{};
  static_assert(sizeof(CUipcMemHandle) == 64 && sizeof(CUmemFabricHandle) == 64);
};

/// Memory of a GPU, this rank's own or mapped from a peer. A mapping of cuMem memory keeps it alive
/// when its owner has gone; within a process, owners are shared.
class GpuMemory {
 public:
  /// Zeroed memory of `gpu`, by cuMem handles unless CCL_CUMEM_ENABLE is 0 or the GPU has none.
  static Result<std::shared_ptr<GpuMemory>> allocate(std::shared_ptr<Gpu> gpu, std::size_t bytes);
  /// The same on the GPU with this bus id, which this process must see and `gpu` must reach; always
  /// by cuMem handles.
  static Result<std::shared_ptr<GpuMemory>> allocate_on(std::int64_t bus_id,
                                                        std::shared_ptr<Gpu> gpu,
                                                        std::size_t bytes);
  /// Of another rank of this process: the memory itself, made accessible to `gpu`; null if no rank
  /// of this process has made it.
  static Result<std::shared_ptr<GpuMemory>> find(const Gpu& gpu, const GpuMemoryName& name);
  /// What `gpu` has mapped already; null if nothing.
  static std::shared_ptr<GpuMemory> mapped(const Gpu& gpu, const GpuMemoryName& name);
  /// Maps a peer's memory; `fd` is that of a cuMem handle, none if its fabric handle is meant.
  static Result<std::shared_ptr<GpuMemory>> map(std::shared_ptr<Gpu> gpu, const GpuMemoryName& name,
                                                const Fd& fd);
  /// Memory that the user has made, for peers to map, whoever frees it. `elsewhere`: some of them
  /// are other processes. `bytes` from `at` on must lie in one allocation of `gpu`.
  static Result<std::shared_ptr<GpuMemory>> borrow(std::shared_ptr<Gpu> gpu, void* at,
                                                   std::size_t bytes, bool elsewhere);
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  std::byte* base() const { return base_; }
  const GpuMemoryName& name() const { return name_; }
  /// Of cuMem memory of this process.
  Result<Fd> share() const;

 private:
  explicit GpuMemory(std::shared_ptr<Gpu> gpu) : gpu_{std::move(gpu)} {}
  Result<void> allocate_handles(std::size_t bytes, int device);
  /// `device` -1: without handles, on the GPU itself.
  static Result<std::shared_ptr<GpuMemory>> make(std::shared_ptr<Gpu> gpu, std::size_t bytes,
                                                 int device);
  Result<void> allocate_legacy(std::size_t bytes);
  Result<void> map_handle();
  Result<void> export_fabric();
  void enlist();

  std::shared_ptr<Gpu> gpu_;
  GpuMemoryName name_;
  bool own_ = false, enlisted_ = false;
  bool borrowed_ = false;  // the user's
  std::byte* base_ = nullptr;
  CUmemGenericAllocationHandle handle_ = 0;
  bool mapped_ = false;
  std::mutex access_mutex_;   // of `accessible_`
  std::set<int> accessible_;  // to these devices of other ranks of this process
};

/// Part of a memory, which it keeps alive.
struct GpuBlock {
  std::shared_ptr<GpuMemory> memory;
  std::size_t offset = 0;
  std::byte* at() const { return memory->base() + offset; }
};

/// Deals out zeroed memory of one GPU, 128-byte aligned, never the same twice: a late write of a
/// peer must not hit what belongs to another by then. Memory goes when all blocks of it have gone.
class GpuArena {
 public:
  explicit GpuArena(std::shared_ptr<Gpu> gpu) : gpu_{std::move(gpu)} {}
  const std::shared_ptr<Gpu>& gpu() const { return gpu_; }
  /// The next blocks, of `bytes` in all, will lie in one memory.
  Result<void> reserve(std::size_t bytes);
  Result<GpuBlock> allocate(std::size_t bytes);

 private:
  std::shared_ptr<Gpu> gpu_;
  std::shared_ptr<GpuMemory> memory_;
  std::size_t used_ = 0;
};

}  // namespace ccl::detail
