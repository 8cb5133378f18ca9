#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "base/mapping.hpp"
#include "comm/state.hpp"
#include "connect/registry_board.hpp"
#include "gpu/memory.hpp"

namespace ccl::detail {

/// The users' own buffers that the ranks of a communicator have mapped of each other. A rank that
/// is given a buffer for the first time says so on its board; a thread of each peer maps it and
/// puts it into the table that the peer's kernels look into. Nobody waits for that: until then,
/// kernels go through scratch. Windows are mapped already. What was freed is noticed when its
/// addresses come again, or when there is no slot left; ids are never used twice.
class BufferRegistry {
 public:
  /// Collective; the caller holds the bootstrap. The number and the name are those of
  /// the composition that wants them.
  static Result<std::shared_ptr<BufferRegistry>> open(CommState& state, int composition,
                                                      std::string_view name);
  ~BufferRegistry();
  BufferRegistry(const BufferRegistry&) = delete;
  BufferRegistry& operator=(const BufferRegistry&) = delete;

  /// See `PeerMemory::remote_buffer`. Any thread, also during a capture.
  Word where(const char* data, Index bytes);
  /// On the device: `RemoteBuffer::slots` entries for each rank.
  const Word* table() const { return reinterpret_cast<const Word*>(table_.at()); }

 private:
  struct Mapped {
    Word id = 0;
    CUdeviceptr ipc = 0;  // to be closed; 0: of this process
  };
  /// A memory of this rank's that peers may map.
  struct Range {
    Word buffer = 0;  // unique for the life of the process, or the number of a window
    Word base = 0, bytes = 0;
    bool is_window = false, may_open = false;
  };
  struct Open {
    Word id = 0;
    Range range;
  };
  explicit BufferRegistry(CommState& state) : state_{state}, gpu_{state.device.gpu} {}
  Range range_around(const char* data, Index bytes);
  bool lives(const Range& range);
  void serve();
  void look_at(int peer, int slot);
  /// Where memory of a peer is here; 0: it cannot be mapped.
  Word map(int peer, const RegistryBoard::Memory& memory, Mapped& mapped);
  void unmap(Mapped& mapped);
  void notify_all();
  /// A closed slot's id; 0 if there is none.
  Word fresh_id();

  CommState& state_;  // which holds this
  std::shared_ptr<Gpu> gpu_;
  int rank_ = 0;
  std::vector<PeerInfo> peers_;
  std::vector<Mapping> boards_;  // of each rank
  RegistryBoard& board(int rank) { return *reinterpret_cast<RegistryBoard*>(boards_[rank].base()); }
  GpuBlock table_;
  std::mutex mutex_;
  std::map<Word, Open> open_;  // my memories, by base
  Word last_id_ = 0;
  std::vector<Mapped> mapped_;           // of the thread: by rank and slot
  std::vector<CUdevice> peer_contexts_;  // retained
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace ccl::detail
