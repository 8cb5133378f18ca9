#pragma once

#include <ccl/detail/exchange/message_list.hpp>
#include <ccl/detail/wire/work.hpp>
#include <ccl/types/position.hpp>

#include <optional>
#include <span>

namespace ccl::detail {

/// Launches of an exchange over wires, each with the messages that fit into it. A message without
/// bytes is in none.
///
/// Ranks divide their messages on their own, and no division can deadlock. All ranks have one order
/// of messages: first all that are the first between two ranks, then all that are the second, and
/// so on; among these by the distance from the sender to the receiver along the ring. Every launch
/// has the next messages in this order, and a send and a receive of one place are in one launch.
/// The first message of all that is not complete is then in a running launch at both ends.
class ExchangeBatches {
 public:
  /// `table` and the order of `ring` must outlive the object. All ranks give the same ring.
  ExchangeBatches(const MessageTable& table, const RingPosition& ring);
  ExchangeBatches(const ExchangeBatches&) = delete;
  ExchangeBatches& operator=(const ExchangeBatches&) = delete;

  /// Stores the messages of the next launch in `work`, which may be none. Returns the bytes of the
  /// longest.
  Index next(ExchangeWork& work);
  /// True if messages are left for another launch.
  bool left() const { return nth_ < rounds_; }

 private:
  /// Messages between this rank and those at one distance, in both directions.
  struct AtDistance {
    std::span<const Message> to, from;
  };
  AtDistance at_distance(int distance) const;
  /// Position in the order of messages: the n-th between two ranks at a distance.
  struct End {
    int nth, distance;
  };
  /// Returns the position of the first message that does not fit into the next launch.
  End end_of_batch() const;
  /// Adds the messages of one peer and direction that lie before `end`.
  void add(ExchangeWork& work, std::span<const Message> of, int peer, bool sends, int distance,
           const End& end) const;

  std::optional<MessageTable> filled_;  // without empty messages, for several launches
  const MessageTable* table_;
  RingPosition ring_;
  bool one_launch_ = false;
  int rounds_ = 0;              // most messages between this rank and another, in one direction
  int nth_ = 0, distance_ = 0;  // of the first message that no launch had
};

}  // namespace ccl::detail
