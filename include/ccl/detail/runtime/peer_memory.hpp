#pragma once

#include <ccl/detail/lanes/peer_view.hpp>
#include <ccl/detail/lanes/window_place.hpp>
#include <ccl/transport/transport.hpp>
#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include <memory>
#include <string>
#include <vector>

namespace ccl::detail {

class Connections;

/// Buffer of this rank in a window whose memory multicast reaches at all ranks.
struct BoundPlace {
  Word place = WindowPlaceWord::in_no_window;  // that: multicast does not reach the buffer
  Packet* const* each = nullptr;               // begin of the window at each rank, for lanes
  Word all = 0;                        // multicast address of the window's begin; 0: it is emulated
  Index offset = 0;                    // bytes, a multiple of those of a packet
  std::shared_ptr<const void> keep{};  // keeps the mappings
};

/// Scratch memory that the ranks of one composition map of each other, and the registry of user
/// buffers that they map on demand. The composition owns it.
class PeerMemory {
 public:
  explicit PeerMemory(Connections& owner) : owner_{owner} {}
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  /// Maps the scratch of all ranks, two slots of the plan each. Collective; `so_far` is the result
  /// of this rank's preparation.
  Result<void> map(const Result<void>& so_far);
  /// Maps multicast memory of all ranks in the place of the scratch, on GPUs or on CPU ranks.
  /// Collective, as `map`.
  Result<void> map_multicast(MulticastKind kind, const Result<void>& so_far);
  const PeerView& view() const { return view_; }
  /// Multicast address of the scratch, for `multimem` instructions alone; 0: it is emulated.
  Word all() const { return all_; }
  /// Ranks that reduce slices of an all-reduce over multicast memory, in the order of the slices.
  const std::vector<int>& heads() const { return heads_; }
  /// Maximum channels of a launch over multicast memory on a GPU; the same on all ranks.
  int max_channels() const { return max_channels_; }
  /// Lets multicast of this memory's kind reach the open windows, and those that ranks will create.
  /// A window that it cannot reach stays as it is, and the log says why. Collective.
  Result<void> bind_windows();
  /// True if buffers of calls may lie in windows that multicast reaches. The same on all ranks for
  /// calls between the same creations and closes of windows.
  bool binds_windows() const;
  /// Finds a buffer that begins at a packet of such a window.
  BoundPlace bound(const void* data, Index bytes) const;
  /// Returns where a buffer is, and why multicast does not reach it: "at offset 64 of window 3".
  std::string where(const void* data, Index bytes) const;
  /// Word in which a launch leaves its `TakenWay`; the host reads it by `latest_way`.
  Word* taken() const { return taken_; }
  Result<Word> latest_way() const;

  /// Counter of the composition's launches. Exchanges keep their state in the same memory.
  const Epoch& epoch() const { return epoch_; }
  /// True if cuMem allocated the scratch, so that the driver orders no copy behind kernels.
  bool by_cumem() const { return by_cumem_; }

  /// Opens the communicator's registry of user buffers, once. Collective; on a GPU.
  Result<void> open_registry();
  /// Registers this rank's buffer, so that peers begin to map it. Returns the entry in which peers
  /// find it, or 0 if they cannot map it.
  Word remote_buffer(const char* data, Index bytes) const;
  /// Device address of the peers' mapped buffers; null without a registry.
  const Word* registry_table() const;

 private:
  /// Bytes of a rank's scratch with the mailboxes behind it.
  std::size_t block_bytes() const;
  /// Fails if the ranks of the edge cannot address each other's memory, or with too short lines.
  Result<void> can_address(const Edge& edge) const;
  /// As `map`. `with_table`: the view has a table, however few ranks there are.
  Result<void> map_scratch(const Result<void>& so_far, bool with_table);
  /// Fails if this rank cannot share multicast memory with each other rank.
  Result<void> can_multicast(MulticastKind kind) const;
  Result<void> map_on_host(const Result<void>& so_far);
  Result<void> map_by_switches(const Result<void>& so_far);

  Connections& owner_;
  PeerView view_;
  Epoch epoch_;
  bool by_cumem_ = false;
  Word all_ = 0;
  MulticastKind kind_ = MulticastKind::none;
  Word* taken_ = nullptr;
  Word host_taken_ = 0;  // on CPU ranks
  int max_channels_ = 0;
  std::vector<int> heads_;
  std::vector<Packet*> table_;     // scratch of all ranks, on CPU ranks
  std::vector<Word> host_counts_;  // copies of the epoch, on CPU ranks
};

}  // namespace ccl::detail
