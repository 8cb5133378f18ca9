#pragma once

#include <ccl/detail/base/min_max.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/detail/numeric/user_buffer.hpp>
#include <ccl/detail/transport/zero_copy.hpp>
#include <ccl/detail/wire/ends.hpp>
#include <ccl/detail/wire/format.hpp>
#include <ccl/detail/wire/landings.hpp>
#include <ccl/detail/wire/solo_move.hpp>
#include <ccl/types/macros.hpp>

#include <cerrno>

#include <sys/uio.h>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Slices of one CPU lane over plain protocols: arrays of elements, side by side in the slots.
/// A wire with a `ZeroCopy` moves a slice of one step from or to the user's memory, past its slot.
template <class Memory, class R, int Align, int MaxIn, int MaxOut>
class PlainSlices {
  using Data = UserBuffer<typename R::Type, Align>;
  using Transfer = LendingChoice::Transfer;
  using Ends = WireEnds<MaxIn, MaxOut>;
  static constexpr Index size = sizeof(typename R::Type);

 public:
  /// `in` and `out`: the wires of the channel, by peer or by `column_of` the peer. `count`:
  /// elements of the call's message, or of a share of it.
  CCL_HD PlainSlices(const Wire* in, const Wire* out, const int* column_of, Ends& ends,
                     Landings* landings, Index count)
      : in_{in},
        out_{out},
        column_of_{column_of},
        ends_{ends},
        landings_{landings},
        call_bytes_{count * size} {}

  /// Permits the proxies to read what is sent from the user's memory. `after_end`: also after the
  /// primitives end, until the holder of the memory has waited.
  void lend(bool after_end) {
    lends_ = true;
    lends_after_end_ = lends_after_end_ || after_end;
  }
  /// Publishes the next slice of wire `o`, of n elements, if its place is a short slot. Returns
  /// false if it is not. `lead`: the slice is filled.
  bool post_short(int o, Index n, bool lead) {
    OutEnd& out = ends_.out[o];
    ShortSlot* const place = out.short_slot(ends_.shape, n * size);
    if (place == nullptr) return false;
    if (lead) place->publish<Memory>(out.sent);
    out.sent += unsigned(ends_.shape.steps);
    return true;
  }
  /// True if the proxy reads the next slice of wire `o` from the user's memory.
  bool is_lent(int o) const { return lent_[o] == ends_.out[o].sent + 1; }

  /// True if any slice was lent.
  bool has_lent_any() const {
    for (const Word step : lent_) {
      if (step != 0) return true;
    }
    return false;
  }
  /// True if the latest slice of the first wire out was lent to lanes of the receiver.
  bool has_lent() const {
    const OutEnd& out = ends_.out[0];
    const ZeroCopy* const past = wire(out_, out.peer).zero_copy;
    return past != nullptr && past->pulls() && lent_[0] != 0 && lent_[0] == out.sent;
  }

  /// True if the next slice of wire `i` was returned together with one before.
  bool is_returned(int i) const {
    const InEnd& in = ends_.in[i];
    const ZeroCopy* const past = wire(in_, in.peer).zero_copy;
    return past != nullptr && in.received < past->pulled() && !past->pulled_to_slots();
  }
  /// Offers the place of the next n elements to the proxy, in steps that only store what arrives.
  template <class Step>
  void offer(const Data& data, Index out_at, Index n) {
    if constexpr (only_stores<Step>) {
      if (ZeroCopy* const past = zero_copy(in_, ends_.in[0].peer, n); past != nullptr) {
        past->offer(ends_.in[0].received, data.out(out_at), n * size);
      }
    }
  }
  /// Names the places of the next n elements, which the peer may write before the lane waits for
  /// them, as far as slots are not returned. They must be slices that only store what arrives.
  void land(const Data& data, Index n) {
    for (int ahead = 0; ahead < ends_.shape.slot_count; ++ahead) {
      if (!land(data, ahead, n)) return;
    }
  }
  /// Names the place of the slice that follows when the slot of the next one, which has arrived, is
  /// returned.
  void land_behind(const Data& data, Index n) { land(data, ends_.shape.slot_count, n); }
  /// Names the places of the slices of `Landings` whose slots are not returned, before the first
  /// one is awaited.
  void land_first(const Data& data) {
    if (landings_ == nullptr || !landings_->begin()) return;
    for (int ahead = 0; ahead < ends_.shape.slot_count; ++ahead) land_listed(data, ahead);
  }
  /// Names the place of the slice that follows when the slot of the next one, which has arrived, is
  /// returned.
  void land_next(const Data& data) {
    if (landings_ == nullptr) return;
    land_listed(data, ends_.shape.slot_count);
    landings_->advance();
  }
  /// Reports to the proxies that the lane waits for a slice of n elements on every wire in.
  void want(Index n) {
    for (int i = 0; i < MaxIn; ++i) {
      if (!ends_.uses_in(i) || ends_.in[i].template has_slice<Memory>(ends_.shape)) continue;
      ZeroCopy* const past = wire(in_, ends_.in[i].peer).zero_copy;
      if (past == nullptr) continue;
      const int steps = ends_.shape.steps;
      past->want(ends_.in[i].received + unsigned(steps), steps == 1 ? n * size : -1);
    }
  }

  /// Announces that `n` elements of the message follow those that are received next.
  void follow(Index n) { follow_ = n; }
  /// Moves a slice of n elements; `left` elements of its part follow.
  template <class Step>
  void move(const R& reduction, const Data& data, Index in_at, Index out_at, Index n, Index left,
            SpinWait<Memory>& spin) {
    const void* from[MaxIn]{};
    int sources = 0;
    if constexpr (Step::recv) {
      for (int i = 0; i < MaxIn; ++i) {
        if (ends_.uses_in(i)) from[sources++] = ends_.in[i].template arrived<Memory>(ends_.shape);
      }
    }
    void* const out = Step::out ? data.out(out_at) : nullptr;
    const void* const own = Step::own ? data.in(in_at) : nullptr;
    if (has_landed<Step>(n)) from[0] = out;
    if constexpr (Step::recv) {
      pull<Step>(from, data, out_at, n, max_of(left, follow_), spin);
      if (spin.failed()) return;
    }
    void* slots[MaxOut]{};
    int filled = 0;
    Transfer way = Transfer::copy;
    if constexpr (Step::send) filled = lend_or_fill<Step>(reduction, own, out, n, slots, way);
    if constexpr (only_finishes<Step>) {
      return finish_elements(reduction, out, slots, filled, from, n);
    }
    if (filled == 0 && (out == nullptr || (out == from[0] && own == nullptr))) return;
    LendingChoice* const choice =
        way == Transfer::timed_copy ? &wire(out_, ends_.out[0].peer).zero_copy->choice() : nullptr;
    const Word began_ns = choice != nullptr ? Memory::now_ns() : 0;
    move_elements<R, Step::post_op, Step::recv ? MaxIn : 0>(
        reduction, out, slots, filled, own, from, sources, n, way == Transfer::copy_past_caches);
    if (choice != nullptr) {
      choice->note_copy(n * size, sources + int(out != nullptr && own != nullptr), began_ns,
                        Memory::now_ns());
    }
  }
  /// Says that this rank receives nothing in the call. `messages`: it is an exchange.
  void only_sends(bool messages) {
    only_sends_ = true;
    sends_messages_ = messages;
  }

  /// Waits until the proxies have read what was lent. After a failure, revokes all memory.
  void drain(SpinWait<Memory>& spin) {
    for (int o = 0; o < MaxOut && !lends_after_end_; ++o) {
      OutEnd& out = ends_.out[o];
      if (!out.is_open()) continue;
      while (Memory::load_credit(out.credit) < lent_[o]) {
        if (spin.ends(out.peer, out.sent)) break;
      }
    }
    if (!spin.failed()) return;
    for (const OutEnd& out : ends_.out) revoke(out_, out.peer);
    for (const InEnd& in : ends_.in) revoke(in_, in.peer);
  }

 private:
  template <class Step>
  static constexpr bool only_stores = MaxIn == 1 && Step::recv && Step::out && !Step::own;

  /// Returns the facts of a slice of n elements that this rank sends.
  template <class Step>
  LendingChoice::Slice slice_of(Index n) const {
    bool past_caches = goes_past_caches(n * size);
    for (const OutEnd& out : ends_.out) {
      if (out.is_open() && out.proxied) past_caches = false;  // the proxy reads the slot at once
    }
    return {.only_sends = only_sends_,
            .adds_up = reduces<R>,
            .is_message = sends_messages_,
            .to_one_rank = MaxOut == 1,
            .past_caches = past_caches,
            .relayed = Step::recv,
            .crowded = crowded.load(std::memory_order_relaxed),
            .call_bytes = call_bytes_};
  }
  const Wire& wire(const Wire* wires, int peer) const {
    return wires[column_of_ == nullptr ? peer : column_of_[peer]];
  }
  /// Returns null if a slice of n elements goes through the slots.
  ZeroCopy* zero_copy(const Wire* wires, int peer, Index n) const {
    const bool pays = ends_.shape.steps == 1 && n * size >= ZeroCopy::min_bytes;
    return pays ? wire(wires, peer).zero_copy : nullptr;
  }
  /// True if the proxy has put the slice where it was offered.
  template <class Step>
  bool has_landed(Index n) const {
    if constexpr (only_stores<Step>) {
      const InEnd& in = ends_.in[0];
      const ZeroCopy* const past = zero_copy(in_, in.peer, n);
      if (past == nullptr || past->pulls()) return false;
      return wire(in_, in.peer).sizes[int(in.received) & (ends_.shape.slot_count - 1)] >=
             ZeroCopy::mark;
    }
    return false;
  }
  /// Copies the slices that lie in memory of their senders: to the output, where steps only store
  /// them, else to their slots.
  template <class Step>
  void pull(const void** from, const Data& data, Index out_at, Index n, Index left,
            SpinWait<Memory>& spin) {
    int source = 0;
    for (int i = 0; i < MaxIn; ++i) {
      if (!ends_.uses_in(i)) continue;
      const InEnd& in = ends_.in[i];
      const void*& place = from[source++];
      ZeroCopy* const past = zero_copy(in_, in.peer, n);
      if (past == nullptr || !past->pulls()) continue;
      if (in.received < past->pulled()) {  // its short slot may be that of a later step
        if (!past->pulled_to_slots()) place = data.out(out_at);
        continue;
      }
      const ShortSlot* const lent = in.template lent<Memory>(ends_.shape);
      if (lent == nullptr) continue;
      void* const to = only_stores<Step> ? data.out(out_at) : slot_of(in, 0);
      const int failed = lent->lent().bytes == Word(n * size)
                             ? pull_run<Step>(*past, in, lent->lent(), to, left)
                             : EMSGSIZE;
      if (failed != 0) return spin.give_up_unread(in.peer, in.received, failed);
      place = to;
    }
  }
  /// Copies the next slice to `to`, and with it those posted ones that follow it in the sender's
  /// memory and whose places are known: a system call takes as long as a copy of 8 KiB.
  template <class Step>
  int pull_run(ZeroCopy& past, const InEnd& in, const ShortSlot::Lent& first, void* to,
               Index left) {
    constexpr bool adds = Step::recv && Step::own && Step::out && !Step::send;
    iovec places[PeerProcess::max_pieces] = {{to, first.bytes}};
    const int posted = int(unsigned(Memory::load_acquire(in.posted)) - unsigned(in.received));
    int n = 1;
    for (Word bytes = first.bytes; n < PeerProcess::max_pieces && n < posted; ++n) {
      const ShortSlot* const slot = in.template lent<Memory>(ends_.shape, n);
      if (slot == nullptr) break;
      const ShortSlot::Lent next = slot->lent();
      if (next.at != first.at + bytes) break;
      void* place = nullptr;
      Index room = 0;
      if (only_stores<Step>) {
        room = min_of(left - (n - 1) * ends_.shape.slice, Index{ends_.shape.slice}) * size;
        place = static_cast<char*>(to) + bytes;
      } else if (adds) {
        room = Index(next.bytes);
        place = slot_of(in, n);
        if (room > Index{ends_.shape.slice} * size) break;
      }
      if (room <= 0 || Word(room) != next.bytes) break;
      places[n] = {place, next.bytes};
      bytes += next.bytes;
    }
    const int failed = past.pull(reinterpret_cast<const void*>(first.at), places, n);
    if (failed != 0) return failed;
    past.set_pulled(in.received + unsigned(n), !only_stores<Step>);
    // At once, so that the sender lends as many again.
    if (only_stores<Step>) Memory::store_credit(in.credit, in.received + unsigned(n));
    return 0;
  }
  void* slot_of(const InEnd& in, int ahead) const {
    return const_cast<Packet*>(ends_.shape.slot(in.slots, in.received + unsigned(ahead)));
  }
  /// Lends the slice to the proxies that may read it from the user's memory. Lists the slots of the
  /// other wires out, and returns their number. Sets `way` to how they are filled.
  template <class Step>
  int lend_or_fill(const R& reduction, const void* own, const void* out, Index n, void** slots,
                   Transfer& way) {
    // True if the user's memory holds the slice unchanged. After a store it does, too.
    constexpr bool only_own = Step::own && !Step::recv;
    const bool unchanged = only_own && !changes_own(reduction);
    const LendingChoice::Slice slice = slice_of<Step>(n);
    way = LendingChoice::unlent(slice);
    int filled = 0;
    for (int o = 0; o < MaxOut; ++o) {
      if (!ends_.uses_out(o)) continue;
      OutEnd& end = ends_.out[o];
      if constexpr (only_own || Step::out) {
        const bool lends = lends_ && (unchanged || Step::out);
        ZeroCopy* const past = lends ? zero_copy(out_, end.peer, n) : nullptr;
        const void* const at = unchanged ? own : out;
        if (past != nullptr && (past->pulls() ? lend_to_peer(*past, end, at, n, slice, way)
                                              : past->lend(end.sent, at, n * size))) {
          lent_[o] = end.sent + 1;
          continue;
        }
      }
      ShortSlot* const place = end.short_slot(ends_.shape, n * size);
      slots[filled++] = place != nullptr ? static_cast<void*>(place->data) : end.slot(ends_.shape);
    }
    return filled;
  }
  /// Lends the slice to the lanes of the receiver, if it goes so. Else returns false and sets
  /// `way`, whose time tells only of a copy into one slot.
  bool lend_to_peer(ZeroCopy& past, OutEnd& end, const void* at, Index n,
                    const LendingChoice::Slice& slice, Transfer& way) {
    if (!past.can_lend()) return false;
    const Word now_ns = steady_ns();
    const Transfer found = past.choice().transfer_of(slice, now_ns);
    if (found != Transfer::lend) {
      if (MaxOut == 1) way = found;
      return false;
    }
    if (!past.can_be_read(at, n * size, now_ns)) return false;
    past.lend_to_peer(end.sent);
    ends_.shape.short_slot(end.shorts, end.sent)->template lend<Memory>(end.sent, at, n * size);
    return true;
  }
  /// Names the place of the slice that is `ahead` slices after the next one. Returns false if there
  /// is none.
  bool land(const Data& data, int ahead, Index n) {
    const Index at = Index(ahead) * ends_.shape.slice;
    const Index left = n - at, each = left < ends_.shape.slice ? left : ends_.shape.slice;
    return name_place(data, ahead, at, each);
  }
  void land_listed(const Data& data, int ahead) {
    const Landings::Slice* const slice = landings_->at(ahead);
    if (slice != nullptr) name_place(data, ahead, slice->out, slice->count);
  }
  bool name_place(const Data& data, int ahead, Index out_at, Index n) {
    const InEnd& in = ends_.in[0];
    ZeroCopy* const past = zero_copy(in_, in.peer, n);
    if (past == nullptr || !past->lands()) return false;
    past->land(in.received + Word(ahead), data.out(out_at), n * size);
    return true;
  }
  void revoke(const Wire* wires, int peer) const {
    if (peer < 0) return;
    if (ZeroCopy* const past = wire(wires, peer).zero_copy) past->revoke();
  }

  const Wire* const in_;
  const Wire* const out_;
  const int* const column_of_;
  Ends& ends_;
  Landings* const landings_;
  const Index call_bytes_;
  Index follow_ = 0;  // elements of the message behind those received next
  bool lends_ = false, lends_after_end_ = false;
  bool only_sends_ = false, sends_messages_ = false;
  Word lent_[MaxOut] = {};  // by wire out: one more than the last step that was lent
};

/// Replaces `PlainSlices` for groups that move tiles.
struct NoPlainSlices {
  CCL_HD NoPlainSlices(const Wire*, const Wire*, const int*, const auto&, const Landings*, Index) {}
  CCL_HD void lend(bool) {}
  CCL_HD void only_sends(bool) {}
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
