#pragma once

#include <ccl/algo/pairwise.hpp>
#include <ccl/detail/base/copies.hpp>
#include <ccl/detail/wire/prims.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Steps of `Pairwise`: moves a slice of the next message to or from any peer that is ready.
/// Messages are bytes, at multiples of `Align`. The part of a channel in a message is a run of
/// whole 128-byte lines.
template <LaneGroup Group, Protocol<Group> Proto, class R, int Align, class Work = WireWork<R>>
class Exchange {
  using Memory = typename Group::Memory;
  using Prims = WirePrims<Group, Proto, R, Align, 1, 1>;
  using Format = WireFormat<Group, Proto, R, Align>;
  static_assert(sizeof(typename R::Type) == 1, "Messages are bytes.");

 public:
  CCL_HD Exchange(Group group, const Work& work, int channel, int server = 0)
      : group_{group}, work_{work}, channel_{channel}, server_{server}, spin_wait_{work.watch} {
    if constexpr (Format::contiguous) only_sends_ = !receives_from_others();
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  CCL_HD ~Exchange() {
    if constexpr (Format::contiguous) drain();
  }

  CCL_HD int rank() const { return work_.rank; }
  CCL_HD int ranks() const { return work_.ranks; }
  /// Index of this group among those that share the channel. Each group moves data only in its own
  /// turns.
  CCL_HD int server() const { return server_; }
  CCL_HD int servers() const { return work_.servers; }

  /// All lanes call it first.
  CCL_HD void begin() { Memory::await_previous(); }

  /// Copies the messages of this rank to itself. All lanes.
  CCL_HD void copy_own() {
    if (server_ != 0) return;
    const MessageRun from = work_.run(true, rank()), to = work_.run(false, rank());
    for (int i = 0; i < from.count && i < to.count; ++i) {
      const Message out = work_.part(from.message[i], channel_),
                    in = work_.part(to.message[i], channel_);
      const Index n = out.bytes < in.bytes ? out.bytes : in.bytes;
      if (out.data == in.data) continue;
      if constexpr (Group::width == 1) {
        copy_here(in.data, out.data, size_t(n));
      } else {
        copy_by_lanes(in.data, out.data, n);
      }
    }
  }

  /// Number of visits of a round over all peers. See `Pairwise::visit_at`.
  CCL_HD int visits() const {
    if constexpr (lists_visits) return work_.visits;
    return Pairwise::visits(ranks());
  }
  /// Moves at most one slice to or from the peer of visit n, once a round. Returns false when
  /// nothing is left.
  CCL_HD bool visit(int n) {
    if constexpr (lists_visits) {
      const auto next = work_.visit[n];
      const MessageRun messages = work_.run(next);
      return next.sends ? some<true>(next.peer, messages) : some<false>(next.peer, messages);
    } else {
      const auto next = Pairwise::visit_at(work_.rings[channel_], n);
      const MessageRun messages = work_.run(next.sends, next.peer);
      return next.sends ? some<true>(next.peer, messages) : some<false>(next.peer, messages);
    }
  }

  /// Ends a round over all peers. Polls once if no peer was ready.
  CCL_HD void rest() {
    if (!moved_ && group_.all(spin_wait_.ends(waiting_, step_))) failed_ = true;
    moved_ = first_ = false;
  }

 private:
  static constexpr bool lists_visits = requires(const Work& work) { work.visits; };
  static constexpr int looks = 4;   // polls of one peer per turn
  static constexpr Index run = 16;  // bytes per lane in `copy_by_lanes`

  CCL_HD void copy_by_lanes(char* to, const char* from, Index n) const {
    for (Index at = group_.rank() * run; at < n; at += Group::width * run) {
      const Index m = n - at < run ? n - at : run;
      if (m == run) {
        __builtin_memcpy(__builtin_assume_aligned(to + at, Align),
                         __builtin_assume_aligned(from + at, Align), run);
      } else {
        __builtin_memcpy(to + at, from + at, size_t(m));
      }
    }
  }
  template <bool Sends>
  CCL_HD bool some(int peer, const MessageRun& messages) {
    if (failed_) return false;
    const int n = messages.count;
    if (n == 0) return false;
    Cursor& kept = (Sends ? work_.sends : work_.recvs).cursor[channel_ * ranks() + peer];
    Cursor at = first_ ? Cursor{} : kept;
    Message now{};
    for (; at.message < n; ++at.message, at.done = 0) {
      now = work_.part(messages.message[at.message], channel_);
      if (at.done < now.bytes) break;
    }
    if (at.message < n && !has_wire<Sends>(peer)) {
      if (group_.rank() == 0) kept = at;  // replaces the cursor of an earlier exchange
      waiting_ = peer;
      step_ = 0;
      return true;
    }
    if constexpr (Format::contiguous) {
      if (at.message < n && would_wait<Sends>(wire<Sends>(peer))) {
        kept = at;
        waiting_ = peer;
        return true;
      }
    }
    if (at.message < n) {
      Prims prims{group_, work_, channel_, {Sends ? -1 : peer}, {Sends ? peer : -1}};
      const Index slice = Format::slice_capacity(wire<Sends>(peer), work_.slice_steps);
      prims.bind(now.data + at.done);
      if constexpr (Format::contiguous) {
        if constexpr (Sends) {
          prims.lend_on();
          if (only_sends_) prims.only_sends(true);
        } else {
          const Index left = now.bytes - at.done;
          prims.expect(left < slice ? left : slice, left);
        }
      }
      if (is_ready<Sends>(prims, peer)) {
        at.done += move<Sends>(prims, now, at.done, slice);
        moved_ = true;
        // Lanes that poll apart may fail apart, and must leave together.
        if (!group_.all(!prims.failed())) failed_ = true;
      } else {
        waiting_ = peer;
        step_ = prims.step();
      }
    }
    group_.sync();  // every lane has read the cursor
    if (group_.rank() == 0) kept = at;
    group_.sync();
    return at.message < n;
  }

  /// True if a slice can be moved to or from this peer now.
  template <bool Sends>
  CCL_HD bool is_ready(Prims& prims, int peer) {
    bool ready = Sends ? prims.can_send() : prims.can_recv();
    if constexpr (!Format::contiguous) {
      // Words in host memory: a new start with this peer takes longer than a few polls.
      const int more = wire<Sends>(peer).proxied ? looks - 1 : 0;
      for (int look = 0; look < more && !ready; ++look) {
        ready = Sends ? prims.can_send() : prims.can_recv();
      }
    }
    return ready;
  }
  /// Moves the next slice of a message, `done` bytes of which are moved. Returns the number of
  /// bytes.
  template <bool Sends>
  CCL_HD Index move(Prims& prims, const Message& message, Index done, Index slice) {
    const Index left = message.bytes - done;
    const Index count = left < slice ? left : slice;
    if constexpr (Sends && Format::contiguous) {
      prims.send({0, 0, count});
      const Index more = send_more(prims, message, done + count, slice);
      has_lent_ = has_lent_ || prims.has_lent_any();
      return count + more;
    } else if constexpr (Sends) {
      prims.send({0, 0, count});
    } else if constexpr (Format::contiguous) {
      prims.recv_expected(count, left);
    } else {
      prims.recv({0, 0, count});
    }
    return count;
  }

  /// Lends what follows of a message, `done` bytes of which are sent, as far as the wire has room,
  /// so that the peer copies it at once. Returns the number of bytes.
  Index send_more(Prims& prims, const Message& message, Index done, Index slice) {
    Index more = 0;
    while (done + more < message.bytes && prims.has_lent() && prims.can_send()) {
      const Index left = message.bytes - done - more, n = left < slice ? left : slice;
      prims.bind(message.data + done + more);
      prims.send({0, 0, n});
      more += n;
    }
    return more;
  }
  bool receives_from_others() const {
    for (int p = 0; p < ranks(); ++p) {
      if (p != rank() && work_.run(false, p).count > 0) return true;
    }
    return false;
  }
  template <bool Sends>
  CCL_HD const Wire& wire(int peer) const {
    return (Sends ? work_.out : work_.in)[channel_ * ranks() + peer];
  }
  /// True if the next slice has to wait for its slots, where that is all it waits for. Leaves the
  /// steps done on the wire in `step_`. Such a look is much cheaper than primitives. One CPU lane.
  template <bool Sends>
  bool would_wait(const Wire& wire) {
    const bool by_proxy = wire.zero_copy != nullptr && !wire.zero_copy->pulls();
    if (wire.slots == nullptr || by_proxy || work_.watch.phases != nullptr) return false;
    const auto steps = unsigned(work_.slice_steps);
    step_ = Sends ? *wire.sent : *wire.received;
    if constexpr (Sends) {
      return unsigned(step_) - unsigned(Memory::load_credit(wire.drained)) >
             unsigned(wire.slot_count) - steps;
    } else {
      if (wire.short_slot_count != 0 && wire.short_slot(step_)->template contains<Memory>(step_))
        return false;
      return int(unsigned(Memory::load_acquire(wire.posted)) - unsigned(step_)) < int(steps);
    }
  }
  template <bool Sends>
  CCL_HD bool has_wire(int peer) const {
    if constexpr (requires { work_.there; }) {
      return Memory::load_acquire(work_.there[Sends] + peer) != 0;
    }
    return true;
  }
  /// Waits until the proxies have read what was lent. After a failure, revokes all memory. One CPU
  /// lane, at the end.
  void drain() {
    for (int p = 0; p < ranks() && has_lent_; ++p) {
      if (!has_wire<true>(p) || wire<true>(p).zero_copy == nullptr) continue;
      const Word lent = wire<true>(p).zero_copy->lent();
      while (!failed_ && Memory::load_credit(wire<true>(p).drained) < lent) {
        failed_ = spin_wait_.ends(p, lent);
      }
    }
    if (!failed_) return;
    for (int p = 0; p < ranks(); ++p) {
      if (has_wire<true>(p) && wire<true>(p).zero_copy != nullptr)
        wire<true>(p).zero_copy->revoke();
      if (has_wire<false>(p) && wire<false>(p).zero_copy != nullptr)
        wire<false>(p).zero_copy->revoke();
    }
  }

  Group group_;
  const Work& work_;
  int channel_, server_;
  bool first_ = true;  // the first round: no cursor is set
  bool moved_ = false, failed_ = false;
  bool only_sends_ = false;  // no message comes from another rank
  bool has_lent_ = false;    // so that somebody may still read it at the end
  int waiting_ = -1;
  Word step_ = 0;
  SpinWait<Memory> spin_wait_;
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
