#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

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
  Word borrowed = 0;  // 1: the user or, on loan, another rank's process has allocated it
  static_assert(sizeof(CUipcMemHandle) == 64 && sizeof(CUmemFabricHandle) == 64);
};

/// Memory of a GPU, this rank's own or mapped from a peer. A mapping of cuMem memory outlives the
/// owner's handle; within a process, owners are shared.
class GpuMemory {
 public:
  /// Allocates zeroed memory of `gpu`, by cuMem handles unless CCL_CUMEM_ENABLE is 0 or the GPU has
  /// none.
  static Result<std::shared_ptr<GpuMemory>> allocate(std::shared_ptr<Gpu> gpu, std::size_t bytes);
  /// Allocates zeroed memory on the GPU with this bus id, always by cuMem handles. `gpu` must reach
  /// it. If this process does not see it, a rank there lends the memory, if `gpu` has loans.
  static Result<std::shared_ptr<GpuMemory>> allocate_on(std::int64_t bus_id,
                                                        std::shared_ptr<Gpu> gpu,
                                                        std::size_t bytes);
  /// Finds memory of another rank of this process and makes it accessible to `gpu`. Returns null if
  /// no rank of this process has made it.
  static Result<std::shared_ptr<GpuMemory>> find(const Gpu& gpu, const GpuMemoryName& name);
  /// Returns the existing mapping of `gpu`, null if there is none.
  static std::shared_ptr<GpuMemory> mapped(const Gpu& gpu, const GpuMemoryName& name);
  /// Maps the memory of rank `maker`. `fd` is its cuMem handle, or empty to use its fabric handle.
  static Result<std::shared_ptr<GpuMemory>> map(std::shared_ptr<Gpu> gpu, const GpuMemoryName& name,
                                                const Fd& fd, int maker);
  /// Lets peers map memory of the user, who frees it. `elsewhere`: some peers are other processes
  /// of this host. Ranks of other hosts need memory whose handles are made for the fabric.
  /// The `bytes` bytes from `at` on must be in one allocation of `gpu`.
  static Result<std::shared_ptr<GpuMemory>> borrow(std::shared_ptr<Gpu> gpu, void* at,
                                                   std::size_t bytes, bool elsewhere);
  /// Memory that is made or mapped by `gpu`, which is one rank's of a communicator.
  static std::vector<std::shared_ptr<GpuMemory>> all_of(const Gpu& gpu);
  static std::vector<std::shared_ptr<GpuMemory>> that_can_rest(const Gpu& gpu);
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  std::byte* base() const { return base_; }
  const GpuMemoryName& name() const { return name_; }
  /// Returns the cuMem handle of its pages in this process; 0: it has none. The pages may be mapped
  /// a second time. Memory whose handle is in use must be pinned.
  CUmemGenericAllocationHandle pages() const { return name_.handles != 0 ? handle_ : 0; }
  /// Returns a descriptor of cuMem memory of this process.
  Result<Fd> share() const;
  /// Returns a descriptor for RDMA devices: all of the memory.
  Result<Fd> dma_buf() const;
  /// Makes it accessible to all GPUs that this process sees and that reach it.
  Result<void> open_to_all();
  /// True if this process has allocated it for the library.
  bool is_own() const { return own_ && !borrowed_; }
  /// True if another rank lends it: this process does not see its GPU.
  bool on_loan() const { return loan_.has_value(); }
  /// Rank that has made memory which is mapped here; -1: this process has made it.
  int maker() const { return maker_; }

  // Memory may rest: the GPU has its pages back, and its addresses stay reserved. Nobody may use it
  // until it is woken. One thread at a time.

  /// Keeps it from resting, because a NIC or another mapping has its pages.
  void pin() { pinned_ = true; }
  /// True for memory of cuMem handles that is not the user's, not on loan and not pinned.
  bool can_rest() const { return name_.handles != 0 && name_.borrowed == 0 && !pinned_; }
  /// Keeps what own memory holds, until `forget`.
  Result<void> save();
  void forget() { saved_.reset(); }
  /// Gives the pages back. Own memory is gone when no other process maps it.
  Result<void> rest();
  /// Takes pages for own memory that rests, with what was saved. It rests on if that fails. Does
  /// nothing if it does not rest.
  Result<void> wake();
  /// Maps a peer's memory again, which has pages now: see `map`.
  Result<void> wake(const GpuMemoryName& name, const Fd& fd);

 private:
  explicit GpuMemory(std::shared_ptr<Gpu> gpu) : gpu_{std::move(gpu)} {}
  Result<void> allocate_handles(std::size_t bytes, int device);
  /// With `device` -1, makes memory without handles on the GPU itself.
  static Result<std::shared_ptr<GpuMemory>> make(std::shared_ptr<Gpu> gpu, std::size_t bytes,
                                                 int device);
  static Result<std::shared_ptr<GpuMemory>> take_loan(std::shared_ptr<Gpu> gpu, GpuLoan loan);
  Result<void> allocate_legacy(std::size_t bytes);
  Result<void> map_handle();
  Result<void> create_handle(bool fabric);
  Result<void> import_handle(const Fd& fd);
  Result<void> map_pages();
  Result<void> open_to(int device);
  Result<void> unmap();
  Result<void> export_fabric();

  std::shared_ptr<Gpu> gpu_;
  GpuMemoryName name_;
  bool own_ = false, enlisted_ = false;
  bool borrowed_ = false;  // owned by the user
  std::optional<GpuLoan> loan_;
  std::byte* base_ = nullptr;
  CUmemGenericAllocationHandle handle_ = 0;
  bool mapped_ = false;
  bool pinned_ = false;
  int maker_ = -1;
  int device_ = -1;  // of own memory with handles
  std::unique_ptr<std::byte[]> saved_;
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
