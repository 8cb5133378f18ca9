#pragma once

#include <ccl/detail/base/copies.hpp>
#include <ccl/detail/base/min_max.hpp>
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/transport/zero_copy.hpp>
#include <ccl/detail/wire/solo_move.hpp>
#include <ccl/detail/wire/work.hpp>

#include <cerrno>
#include <cstddef>

#include <sys/uio.h>

namespace ccl::detail {

/// Ends of the wires of a composition with one channel, and steps of one slice on them, for the
/// thread that runs a call. They are those of `Simple` on one lane, in the same order of memory.
///
/// The count that a rank has read last of a peer lies in the cursor of that wire (`Cursor::seen`).
class ShortWires {
 public:
  explicit ShortWires(const Connections& connections)
      : tables_{connections.tables()},
        ranks_{connections.comm().ranks()},
        steps_{connections.plan().slice_steps},
        slot_count_{connections.plan().slot_count},
        slice_bytes_{connections.plan().slot_bytes * steps_} {}

  /// True if calls of a composition can use it.
  static bool fit(const Connections& connections) {
    const WireTables& tables = connections.tables();
    return connections.plan().channels == 1 && tables.column_of == nullptr &&
           tables.cursors != nullptr && connections.calls().watch.phases == nullptr &&
           !connections.closes_idle();
  }
  Index slice_bytes() const { return slice_bytes_; }
  int slot_count() const { return slot_count_; }
  template <bool Sends>
  const Wire& wire(int peer) const {
    return (Sends ? tables_.out : tables_.in)[peer];
  }
  /// True if both ends of the wire share its memory.
  template <bool Sends>
  bool is_shared(int peer) const {
    const Wire& on = wire<Sends>(peer);
    return on.slots != nullptr && !on.proxied && (on.zero_copy == nullptr || on.zero_copy->pulls());
  }

  /// True if there is room for the next slice to `peer`, of `bytes` bytes. Sets `step` to the steps
  /// done before.
  bool has_room(int peer, Index bytes, Word& step) const {
    const Wire& to = wire<true>(peer);
    Cursor& kept = tables_.cursors[peer];
    step = *to.sent;
    const Index room = (is_short(to, bytes) ? to.short_slot_count : to.slot_count) - steps_;
    if (kept.message == Cursor::seen && Index(step) - kept.done <= room) return true;
    kept = {Cursor::seen, Index(HostMemory::load_credit(to.drained))};
    return Index(step) - kept.done <= room;
  }
  /// Returns the place of the next slice to `peer`, of `bytes` bytes.
  void* next_slot(int peer, Index bytes) const {
    const Wire& to = wire<true>(peer);
    if (is_short(to, bytes)) return to.short_slot(*to.sent)->data;
    return to.slot(*to.sent);
  }
  /// Publishes the next slice to `peer`, whose slots are filled with `bytes` bytes.
  void post(int peer, Index bytes) const {
    const Wire& to = wire<true>(peer);
    const Word step = *to.sent, next = step + Word(steps_);
    // The data, for `has_slice` of the peer.
    if (is_short(to, bytes)) {
      to.short_slot(step)->publish<HostMemory>(step);
      HostMemory::store_relaxed(to.sent, next);
      return;
    }
    HostMemory::store_release(to.posted, next);
    HostMemory::store_relaxed(to.sent, next);
    fetch_ahead<true>(to.slot(next), bytes);  // for the next message
  }
  /// Returns what decides whether a slice of `bytes` bytes is lent to `peer`; null if it cannot be.
  LendingChoice* choice(int peer, Index bytes) const {
    const Wire& to = wire<true>(peer);
    const bool can = steps_ == 1 && bytes >= ZeroCopy::min_bytes && to.zero_copy != nullptr &&
                     to.zero_copy->can_lend();
    return can ? &to.zero_copy->choice() : nullptr;
  }
  /// True if `peer` can read memory of this process. There is a choice for it.
  bool can_be_read(int peer, const void* at, Index bytes, Word now_ns) const {
    return wire<true>(peer).zero_copy->can_be_read(at, bytes, now_ns);
  }
  /// Lends the next slice to `peer`, which can read it, and publishes it. The caller waits
  /// (`await_lent`) before the memory may change.
  void lend(int peer, const void* at, Index bytes) const {
    const Wire& to = wire<true>(peer);
    const Word step = *to.sent;
    to.zero_copy->lend_to_peer(step);
    to.short_slot(step)->lend<HostMemory>(step, at, bytes);
    HostMemory::store_release(to.posted, step + 1);
    HostMemory::store_relaxed(to.sent, step + 1);
  }
  /// Waits until `peer` has returned all that was lent to it. After a failure, takes it back.
  void await_lent(int peer, SpinWait<HostMemory>& spin) const {
    const Wire& to = wire<true>(peer);
    const Word lent = to.zero_copy->lent();
    while (!spin.failed() && HostMemory::load_credit(to.drained) < lent) {
      (void)spin.ends(peer, lent);
    }
    if (spin.failed()) to.zero_copy->revoke();
  }
  /// True if the next slice of `peer` is there. Sets `step` to the steps done before.
  bool has_slice(int peer, Word& step) const {
    const Wire& from = wire<false>(peer);
    Cursor& kept = tables_.cursors[ranks_ + peer];
    step = *from.received;
    if (kept.message == Cursor::seen && kept.done - Index(step) >= steps_) return true;
    if (is_in_short_slot(from, step)) return true;
    kept = {Cursor::seen, Index(HostMemory::load_acquire(from.posted))};
    return kept.done - Index(step) >= steps_;
  }
  /// Returns the place of the next slice of `peer`, of `bytes` bytes. One that lies in memory of
  /// the peer is copied to `out`, or into its slot if that is null. `spin` fails if that is
  /// impossible.
  const void* arrived(int peer, void* out, Index bytes, SpinWait<HostMemory>& spin) const {
    const Wire& from = wire<false>(peer);
    const Word step = *from.received;
    if (is_in_short_slot(from, step)) return from.short_slot(step)->data;
    if (bytes < ZeroCopy::min_bytes || from.zero_copy == nullptr ||
        !from.short_slot(step)->is_lent<HostMemory>(step)) {
      return from.slot(step);
    }
    const ShortSlot::Lent lent = from.short_slot(step)->lent();
    const iovec to{out != nullptr ? out : from.slot(step), std::size_t(bytes)};
    const int failed = lent.bytes == Word(bytes)
                           ? from.zero_copy->pull(reinterpret_cast<const void*>(lent.at), &to, 1)
                           : EMSGSIZE;
    if (failed != 0) spin.give_up_unread(peer, step, failed);
    return to.iov_base;
  }
  /// Gives the slots of a slice of `peer` back, which are read: `bytes` bytes.
  void give_back(int peer, Index bytes) const {
    const Wire& from = wire<false>(peer);
    const Word next = *from.received + Word(steps_);
    HostMemory::store_credit(from.drained, next);
    HostMemory::store_relaxed(from.received, next);
    const Cursor& kept = tables_.cursors[ranks_ + peer];
    if (kept.done - Index(next) >= steps_) fetch_ahead<false>(from.slot(next), bytes);
  }

  /// Sends a slice to `peer` if there is room for it. Sets `step` to the steps done before.
  /// `only_sends`: this rank receives nothing in the call. Sets `lent` if the message was lent.
  bool send(int peer, const Message& message, Word& step, bool only_sends, bool& lent) const {
    if (!has_room(peer, message.bytes, step)) return false;
    using Transfer = LendingChoice::Transfer;
    const LendingChoice::Slice slice{.only_sends = only_sends,
                                     .is_message = true,
                                     .past_caches = goes_past_caches(message.bytes)};
    LendingChoice* const of_wire = choice(peer, message.bytes);
    const Word began_ns = of_wire != nullptr ? HostMemory::now_ns() : 0;
    Transfer way = LendingChoice::unlent(slice);
    if (of_wire != nullptr) way = of_wire->transfer_of(slice, began_ns);
    lent = way == Transfer::lend && can_be_read(peer, message.data, message.bytes, began_ns);
    if (lent) return lend(peer, message.data, message.bytes), true;
    const auto copy = way == Transfer::copy_past_caches ? copy_past_caches : copy_away;
    copy(next_slot(peer, message.bytes), message.data, std::size_t(message.bytes));
    if (way == Transfer::timed_copy) {
      of_wire->note_copy(message.bytes, 0, began_ns, HostMemory::now_ns());
    }
    post(peer, message.bytes);
    return true;
  }
  /// Receives a slice of `peer` if it is there. Returns false, too, if that fails.
  bool recv(int peer, const Message& message, Word& step, SpinWait<HostMemory>& spin) const {
    if (!has_slice(peer, step)) return false;
    const void* const at = arrived(peer, message.data, message.bytes, spin);
    if (spin.failed()) return false;
    if (at != message.data) copy_here(message.data, at, std::size_t(message.bytes));
    give_back(peer, message.bytes);
    return true;
  }

 private:
  static bool is_short(const Wire& wire, Index bytes) {
    return wire.short_slot_count != 0 && bytes <= ShortSlot::most;
  }
  static bool is_in_short_slot(const Wire& wire, Word step) {
    return wire.short_slot_count != 0 && wire.short_slot(step)->contains<HostMemory>(step);
  }
  /// Begins to fetch the first lines of memory that follows soon: for stores, or for loads.
  template <bool ForStores>
  static void fetch_ahead(const void* at, Index bytes) {
    constexpr Index line = 64, most = 8 * line;
    const char* const begin = static_cast<const char*>(at);
    for (Index n = 0; n < min_of(bytes, most); n += line) __builtin_prefetch(begin + n, ForStores);
  }

  const WireTables& tables_;
  const int ranks_, steps_, slot_count_;
  const Index slice_bytes_;
};

}  // namespace ccl::detail
