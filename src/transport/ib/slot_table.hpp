#pragma once

#include <ccl/types/word.hpp>

#include <cstdint>

#include "transport/ib/link.hpp"
#include "transport/ib/verbs/queue_pair.hpp"

namespace ccl::detail {

/// Writes of free slots by the receiver to one channel's table in the sender's memory. Each has an
/// immediate without content: it wakes a sleeping sender.
class IbSlotTable {
 public:
  static constexpr int slots_per_write = 4;
  static constexpr int max_writes = 64;  // in flight on a queue pair

  /// Restarts the counts for new queue pairs.
  void restart() { posted_ = done_ = 0; }
  bool has_room() const { return posted_ - done_ < max_writes; }
  /// Writes `count` slots, from `draft` with `key` on, to `address` with `remote_key`. Returns the
  /// code of ibv_post_send.
  int write(const IbQp& qp, std::size_t channel, const IbSlot* draft, Word count, std::uint32_t key,
            std::uint64_t address, std::uint32_t remote_key);

  /// Number of receives that the sender needs, one for each write without a completion. Each slot
  /// may have one, and as many may arrive before the first are handled.
  static int receives(int slot_count) { return 2 * slot_count; }
  /// Posts a receive. Returns the code of ibv_post_recv.
  static int receive(const IbQp& qp, std::size_t channel);

  static bool is_of_a_board(const ibv_wc& completion) { return (completion.wr_id & mark) != 0; }
  static std::size_t channel_of(const ibv_wc& completion) {
    return std::size_t(completion.wr_id >> 48 & 0x7fff);
  }
  void completed(const ibv_wc& completion) { done_ = (completion.wr_id & low_bits) + 1; }

 private:
  static constexpr Word mark = Word(1) << 63;
  static constexpr Word low_bits = ~Word(0) >> 16;
  static constexpr Word signal_every = 8;
  Word posted_ = 0, done_ = 0;  // writes
};

}  // namespace ccl::detail
