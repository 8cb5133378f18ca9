#pragma once

#include <ccl/algo/rank_counts.hpp>
#include <ccl/detail/lanes/far_queue.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Memory that kernels of a `DeviceComm` use. Must be equal on all ranks.
struct DeviceRequirements {
  int blocks = 1;         ///< maximum blocks of a launch; each has a barrier of its own
  int signals = 0;        ///< signal ids; each has a word for every rank that signals
  int counters = 0;       ///< counter ids, which the blocks of one rank share
  Index ll_bytes = 0;     ///< packets of `Tiles` over `LL`: the sum of their `bytes`
  Index ll128_bytes = 0;  ///< packets of `Tiles` over `LL128`
};

namespace detail {

/// Packets of one protocol in the scratch of a rank. The halves alternate between launches.
///
/// Protocols do not share packets, because a flag must never be read from the data of another.
struct TeamPackets {
  Index offset = 0;  // bytes
  Index half_bytes = 0;
};

/// Division of the scratch of each rank, in bytes from its begin; equal on all ranks. A row has one
/// word for each rank that writes to it.
struct TeamLayout {
  static constexpr Index line_bytes = 128;
  static constexpr int parts = 32;  // warps of a block, at most
  Index row_bytes = line_bytes;
  Index barriers = 0;  // a row for each block
  Index signals = 0;   // a row for each signal
  Index begun = 0;     // a row: launches that each peer has begun
  Index counters = 0;  // a line for each counter, of this rank alone
  Index epochs = 0;    // a word for each block, of this rank alone
  Index taken = 0;     // a line: turns of the queue to far ranks, of this rank alone
  Index turns = 0;     // `parts` words for each block, of this rank alone
  TeamPackets ll, ll128;
  Index bytes = 0;

  static constexpr TeamLayout of(const DeviceRequirements& needs, int ranks) {
    TeamLayout layout;
    layout.row_bytes = div_up(ranks * Index{sizeof(Word)}, line_bytes) * line_bytes;
    const auto take = [&layout](Index size) {
      const Index at = layout.bytes;
      layout.bytes += div_up(size, line_bytes) * line_bytes;
      return at;
    };
    const auto take_packets = [&take](Index size) {
      const Index half = div_up(size, 2 * line_bytes) * line_bytes;
      return TeamPackets{take(2 * half), half};
    };
    layout.barriers = take(needs.blocks * layout.row_bytes);
    layout.signals = take(needs.signals * layout.row_bytes);
    layout.begun = take(layout.row_bytes);
    layout.counters = take(needs.counters * line_bytes);
    layout.epochs = take(needs.blocks * Index{sizeof(Word)});
    layout.taken = take(line_bytes);
    layout.turns = take(needs.blocks * parts * Index{sizeof(Word)});
    layout.ll = take_packets(needs.ll_bytes);
    layout.ll128 = take_packets(needs.ll128_bytes);
    return layout;
  }
};

/// Addresses and limits of a team. Trivially copyable.
struct TeamData {
  int rank = 0, ranks = 1;
  int blocks = 0, signals = 0, counters = 0;
  TeamLayout layout;
  Index window_bytes = 0;
  char* window[max_view_ranks] = {};   // the user's memory of each rank
  char* scratch[max_view_ranks] = {};  // `layout.bytes` of each rank, zero at first
  int far_ranks = 0;                   // ranks without an address here, whose `scratch` is null
  FarQueue queue;                      // to them
  AbortWatch watch;

  CCL_HD bool is_far(int peer) const { return far_ranks > 0 && scratch[peer] == nullptr; }
  CCL_HD Word* word(int owner, Index row, int writer) const {
    return reinterpret_cast<Word*>(scratch[owner] + row) + writer;
  }
  CCL_HD Index barrier_row(int block) const { return layout.barriers + block * layout.row_bytes; }
  CCL_HD Index signal_row(int id) const { return layout.signals + id * layout.row_bytes; }
  CCL_HD Word* barrier(int owner, int block, int writer) const {
    return word(owner, barrier_row(block), writer);
  }
  CCL_HD Word* signal(int owner, int id, int writer) const {
    return word(owner, signal_row(id), writer);
  }
  CCL_HD Word* begun(int owner, int writer) const { return word(owner, layout.begun, writer); }
  CCL_HD Word* counter(int id) const {
    return word(rank, layout.counters + id * TeamLayout::line_bytes, 0);
  }
  CCL_HD Word* epochs() const { return word(rank, layout.epochs, 0); }
  CCL_HD Word* turn(int block, int part) const {
    return word(rank, layout.turns, block * TeamLayout::parts + part);
  }
};

}  // namespace detail

/// Ranks whose memory a kernel addresses, as the argument of the kernel. Trivially copyable; the
/// `DeviceComm` that made it must outlive the kernels that use it.
class Team {
 public:
  static constexpr int max_ranks = max_view_ranks;

  Team() = default;
  explicit Team(const detail::TeamData& data) : data_{data} {}

  CCL_HD int rank() const { return data_.rank; }
  CCL_HD int ranks() const { return data_.ranks; }
  /// Returns the bytes of the window on each rank.
  CCL_HD Index window_bytes() const { return data_.window_bytes; }
  /// True if loads and stores of this rank's kernels reach the memory of rank `rank`. The others
  /// are on other hosts, and calls reach them by the proxy.
  CCL_HD bool is_near(int rank) const { return !data_.is_far(rank); }
  /// Returns the window of rank `rank`, as this rank addresses it; null if it is not near.
  template <class T>
  CCL_HD T* window(int rank) const {
    return reinterpret_cast<T*>(data_.window[rank]);
  }
  CCL_HD const detail::TeamData& data() const { return data_; }

 private:
  detail::TeamData data_;
};

/// Team with ranks of other hosts, to which calls go by the proxy. A kernel that takes it runs on
/// one host, too. It is a type of its own, because the code for other hosts takes registers.
class NetworkTeam : public Team {
 public:
  NetworkTeam() = default;
  explicit NetworkTeam(const detail::TeamData& data) : Team{data} {}
};

}  // namespace ccl

CCL_ANY_SPACE_END
