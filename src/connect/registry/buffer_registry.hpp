#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "base/io/mapping.hpp"
#include "comm/state.hpp"
#include "connect/registry/buffer_range.hpp"
#include "connect/registry/handle_imports.hpp"
#include "connect/registry/handle_sockets.hpp"
#include "connect/registry/registry_board.hpp"
#include "gpu/memory.hpp"

namespace ccl::detail {

/// User buffers that the ranks of a communicator have mapped of each other.
///
/// A rank posts a new buffer on its board. A thread of each peer maps it and enters it into the
/// table that the peer's kernels read. Kernels go through scratch until then, so no rank waits.
/// Windows are mapped already. Memory of cuMem handles is mapped once the owner's thread has sent
/// these to the peer's.
///
/// The owner's thread looks for freed memory many times a second, and so does a call that registers
/// a buffer. Peers unmap it then, which gives its pages back to the driver. Ids are never used
/// twice. While the GPU is short of memory, other processes unmap all of it, because a program may
/// free memory only when it needs it at once.
class BufferRegistry {
 public:
  /// Creates the registry. Collective. The caller holds the bootstrap, and passes the number and
  /// name of the composition that needs the registry.
  static Result<std::shared_ptr<BufferRegistry>> open(CommState& state, int composition,
                                                      std::string_view name);
  ~BufferRegistry();
  BufferRegistry(const BufferRegistry&) = delete;
  BufferRegistry& operator=(const BufferRegistry&) = delete;

  /// Returns what `PeerMemory::remote_buffer` returns. Any thread, also during a capture.
  Word where(const char* data, Index bytes);
  /// Device address of the table, with `RemoteBuffer::slots` entries for each rank.
  const Word* table() const { return reinterpret_cast<const Word*>(table_.at()); }

 private:
  /// Time after which freed memory is noticed. A look asks the driver about each open memory, some
  /// 0.2 us for each mapping (H200).
  static constexpr std::chrono::milliseconds freed_after{50};

  struct Mapped {
    Word id = 0;
    Word window = 0;                // that it lies in; 0: none
    std::shared_ptr<void> holds{};  // the mapping, if it is not of this process
  };
  using Clock = std::chrono::steady_clock;
  struct Open {
    Word id = 0;
    BufferRange range;
    Clock::time_point used{};  // by a call
  };
  explicit BufferRegistry(CommState& state) : state_{state}, gpu_{state.device.gpu} {}
  Result<void> share_boards(int composition, std::string_view name);
  bool of_this_process(int peer) const;
  bool can_address(Word base) const;
  bool can_address(const RegistryBoard::Memory& memory) const;
  void serve() noexcept;  // body of the thread
  void serve_until_stopped();
  /// Closes the slots of freed memory and notifies the peers.
  void close_freed();
  /// Posts on the board whether the GPU is short of memory.
  void watch_free_memory();
  /// True if a memory of a peer must not be mapped, because its GPU is short of memory.
  bool is_withheld(int peer, const RegistryBoard::Memory& memory, const Mapped& mapped) const;
  /// Unmaps all of the peers' memory but windows. The caller holds the lock of the GPU's rest, and
  /// no kernel uses it.
  void leave_peers();
  void look_at(int peer, int slot);
  void look_at_peers();
  /// Answers peers that ask for handles, and maps memory whose handles have come.
  void exchange_handles();
  void send_handles(const HandleSockets::Request& request);
  /// Begins to map a peer's memory by its handles.
  void begin_import(int peer, int slot, const RegistryBoard::Memory& memory);
  /// Maps memory of a peer. Returns its address on this rank, or 0 if it cannot be mapped.
  Word map(int peer, const RegistryBoard::Memory& memory, Mapped& mapped);
  /// Stores an entry of the table; 0: kernels get no address.
  Result<void> put_entry(int peer, int slot, Word entry);
  /// Enters a memory into the table; base 0: it cannot be mapped.
  void enter(int peer, int slot, Word id, Word base);
  void unmap(Mapped& mapped);
  void notify_all();
  /// Returns an id whose slot is closed, or 0 if there is none. Takes no id in vain.
  Word fresh_id();
  /// Returns the open memory that contains a range. The caller holds the lock.
  Open* find(const BufferRange& range);
  /// Closes the slots of memory for which `ends(open)` is true. Returns true if there was any. The
  /// caller holds the lock.
  template <class Ends>
  bool close_if(Ends ends);
  void close_all();
  /// Closes what a range replaces and, if no slot is left, what no call uses. Returns true if it
  /// has closed a slot. The caller holds the lock.
  bool make_room(const BufferRange& range, Clock::time_point now);
  /// Posts a range on the board. Returns its id, or 0. The caller holds the lock.
  Word post(BufferRange range);

  bool maps_buffers_ = true;  // CCL_DIRECT_MAP; windows are mapped anyway
  CommState& state_;          // owns this registry
  std::shared_ptr<Gpu> gpu_;
  int rank_ = 0;
  std::vector<PeerInfo> peers_;
  RangeReaders readers_;
  std::vector<Mapping> boards_;  // one for each rank
  RegistryBoard& board(int rank) const {
    return *reinterpret_cast<RegistryBoard*>(boards_[rank].base());
  }
  Mapped& mapped_of(int peer, int slot) {
    return mapped_[std::size_t(peer * RemoteBuffer::slots + slot)];
  }
  GpuBlock table_;
  std::mutex mutex_;
  std::multimap<Word, Open> open_;                 // memory of this rank, by base address
  std::array<Word, RemoteBuffer::slots> taken_{};  // ids of each slot so far
  Clock::time_point looked_{};                     // when a call last looked for freed memory
  bool said_full_ = false;
  // Used by the thread only:
  Clock::time_point watched_{};           // when it last asked the driver
  Clock::time_point scarce_since_{};      // when the GPU was last seen to be short of memory
  std::vector<Mapped> mapped_;            // by rank and slot
  std::vector<CUdevice> peer_contexts_;   // retained primary contexts
  std::optional<HandleSockets> sockets_;  // if a rank is of another process
  std::optional<HandleImports> imports_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace ccl::detail
