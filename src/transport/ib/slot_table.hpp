#pragma once

#include <ccl/types/word.hpp>

#include <cstdint>

#include "transport/ib/link.hpp"
#include "transport/ib/queue_pair.hpp"

namespace ccl::detail {

/// The receiver's writes of free slots to the board of one channel, which lies in the sender's
/// memory. Each has an immediate, which says nothing: it wakes a sender that sleeps.
class IbSlotTable {
 public:
  static constexpr int slots_per_write = 4;
  static constexpr int max_writes = 64;  // under way on a queue pair

  /// From here on over new queue pairs.
  void restart() { posted_ = done_ = 0; }
  bool has_room() const { return posted_ - done_ < max_writes; }
  /// `count` slots, from `draft` with `key` on, to `address` with `remote_key`. The code of
  /// ibv_post_send.
  int write(const IbQp& qp, std::size_t channel, const IbSlot* draft, Word count, std::uint32_t key,
            std::uint64_t address, std::uint32_t remote_key);

  /// The sender is to have a receive for each write that it has not noticed: of every slot, since
  /// what has a slot of its own is noticed before the slot is filled, and some that come meanwhile.
  static int receives(int slot_count) { return 2 * slot_count; }
  /// The code of ibv_post_recv.
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
