#pragma once

#include <ccl/algo/chunks.hpp>
#include <ccl/algo/peers.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/detail/launch/call_arguments.hpp>
#include <ccl/detail/wire/format.hpp>
#include <ccl/detail/wire/solo_move.hpp>
#include <ccl/types/position.hpp>

#include <cstddef>

#include "launch/short_wires.hpp"

namespace ccl::detail {

/// Steps of an algorithm on parts of at most one slice, for the thread that runs a call: those of
/// `WirePrims` over `Simple` on one lane. After a failed wait the further steps do nothing.
template <class R, int In, int Out>
class ShortPrims {
  using Do = StepParts;
  using Transfer = LendingChoice::Transfer;

 public:
  ShortPrims(const ShortWires& wires, const CallArguments<R>& given, SpinWait<HostMemory>& spin,
             const Peers<In>& ins, const Peers<Out>& outs)
      : wires_{wires},
        reduction_{given.reduction},
        input_{static_cast<const char*>(given.input)},
        output_{static_cast<char*>(given.output)},
        call_bytes_{given.layout.count * size},
        spin_{spin},
        ins_{ins},
        outs_{outs} {}
  ShortPrims(const ShortPrims&) = delete;
  ShortPrims& operator=(const ShortPrims&) = delete;
  /// Waits until the peers have read what was lent to them.
  ~ShortPrims() {
    if (!lent_) return;
    for (int o = 0; o < Out; ++o) {
      if (lent_to_[o]) wires_.await_lent(outs_.rank[o], spin_);
    }
  }

  void lend() { lends_ = true; }
  void lend_on() {}
  void own_is_output() { input_ = output_; }
  void only_sends() { only_sends_ = true; }

  void send(const Part& part) { step<Do{.own = true, .send = true}>(part); }
  void copy_send(const Part& part) { step<Do{.own = true, .out = true, .send = true}>(part); }
  void recv(const Part& part) { step<Do{.recv = true, .out = true}>(part); }
  void recv_copy_send(const Part& part) { step<Do{.recv = true, .out = true, .send = true}>(part); }
  void recv_reduce_send(const Part& part) {
    step<Do{.recv = true, .own = true, .send = true}>(part);
  }
  void recv_reduce_copy(const Part& part) {
    step<Do{.recv = true, .own = true, .out = true, .post_op = true}>(part);
  }
  void recv_reduce_copy_send(const Part& part) {
    step<Do{.recv = true, .own = true, .out = true, .send = true, .post_op = true}>(part);
  }
  void recv_reduce_finish_send(const Part& part) {
    step<Do{.recv = true, .own = true, .send = true, .post_op = true}>(part);
  }

 private:
  static constexpr Index size = sizeof(typename R::Type);

  template <StepParts Step>
  void step(const Part& part) {
    if (part.count <= 0 || spin_.failed()) return;
    Word at = 0;
    if constexpr (Step.send) {
      for (const int peer : outs_.rank) {
        if (Out > 1 && peer < 0) continue;
        while (!wires_.has_room(peer, part.count * size, at)) {
          if (spin_.ends(peer, at)) return;
        }
      }
    }
    if constexpr (Step.recv) {
      for (const int peer : ins_.rank) {
        if (In > 1 && peer < 0) continue;
        while (!wires_.has_slice(peer, at)) {
          if (spin_.ends(peer, at)) return;
        }
      }
    }
    bool lent[Out] = {};
    move<Step>(part, lent);
    if (spin_.failed()) return;
    if constexpr (Step.send) {
      for (int o = 0; o < Out; ++o) {
        const int peer = outs_.rank[o];
        if (!lent[o] && (Out == 1 || peer >= 0)) wires_.post(peer, part.count * size);
      }
    }
    if constexpr (Step.recv) {
      for (const int peer : ins_.rank) {
        if (In == 1 || peer >= 0) wires_.give_back(peer, part.count * size);
      }
    }
  }
  template <StepParts Step>
  void move(const Part& part, bool* lent) {
    const void* from[In] = {};
    void* slots[Out] = {};
    int sources = 0, filled = 0;
    const char* const own = Step.own ? input_ + part.in * size : nullptr;
    char* const out = Step.out ? output_ + part.out * size : nullptr;
    const Index bytes = part.count * size;
    if constexpr (Step.recv) {
      constexpr bool only_stores = In == 1 && Step.out && !Step.own;
      for (const int peer : ins_.rank) {
        if (In > 1 && peer < 0) continue;
        from[sources++] = wires_.arrived(peer, only_stores ? out : nullptr, bytes, spin_);
      }
      if (spin_.failed()) return;
    }
    const LendingChoice::Slice slice{.only_sends = only_sends_,
                                     .adds_up = reduces<R>,
                                     .to_one_rank = Out == 1,
                                     .past_caches = goes_past_caches(bytes),
                                     .relayed = Step.recv,
                                     .crowded = crowded.load(std::memory_order_relaxed),
                                     .call_bytes = call_bytes_};
    Transfer way = LendingChoice::unlent(slice);
    // The user's memory holds what is sent: before the step, or only after it.
    const bool from_own = Step.own && !Step.recv && !changes_own(reduction_);
    const bool lends = Step.send && lends_ && (from_own || Step.out);
    LendingChoice* timed = nullptr;  // that of the last wire whose slice takes the slot
    const Word began_ns = lends && bytes >= ZeroCopy::min_bytes ? HostMemory::now_ns() : 0;
    if constexpr (Step.send) {
      for (int o = 0; o < Out; ++o) {
        const int peer = outs_.rank[o];
        if (Out > 1 && peer < 0) continue;
        LendingChoice* const choice = lends ? wires_.choice(peer, bytes) : nullptr;
        const Transfer found = choice != nullptr ? choice->transfer_of(slice, began_ns) : way;
        lent[o] = found == Transfer::lend &&
                  wires_.can_be_read(peer, from_own ? own : out, bytes, began_ns);
        if (lent[o] && from_own) wires_.lend(peer, own, bytes);
        if (lent[o]) continue;
        if (found == Transfer::copy_past_caches) way = found;
        timed = found == Transfer::timed_copy ? choice : nullptr;
        slots[filled++] = wires_.next_slot(peer, bytes);
      }
    }
    if (filled > 0 || (out != nullptr && (own != nullptr || out != from[0]))) {
      move_elements<R, Step.post_op, Step.recv ? In : 0>(reduction_, out, slots, filled, own, from,
                                                         sources, part.count,
                                                         way == Transfer::copy_past_caches);
    }
    if (timed != nullptr && filled == 1) {
      timed->note_copy(bytes, sources + int(out != nullptr && own != nullptr), began_ns,
                       HostMemory::now_ns());
    }
    for (int o = 0; o < Out; ++o) {
      if (!lent[o]) continue;
      if (!from_own) wires_.lend(outs_.rank[o], out, bytes);
      lent_ = lent_to_[o] = true;
    }
  }

  const ShortWires& wires_;
  const R& reduction_;
  const char* input_;
  char* const output_;
  const Index call_bytes_;
  SpinWait<HostMemory>& spin_;
  bool only_sends_ = false, lends_ = false, lent_ = false;
  bool lent_to_[Out] = {};
  const Peers<In> ins_;
  const Peers<Out> outs_;
};

/// Context of an algorithm for a call whose shares are one slice each, on the calling thread: other
/// ranks may run the same call by `WireContext` with `Simple` on one lane. A failed wait leaves its
/// `LaneFailure`.
template <class Op, class R>
class ShortContext {
 public:
  ShortContext(const Connections& connections, const CallArguments<R>& given)
      : connections_{connections},
        given_{given},
        wires_{connections},
        spin_{connections.calls().watch} {}
  ShortContext(const ShortContext&) = delete;
  ShortContext& operator=(const ShortContext&) = delete;

  /// True if a call can run so: its wires are in memory that both ends share.
  static bool fits(const Connections& connections, const CallArguments<R>& given) {
    return ShortWires::fit(connections) && !connections.tables().proxied &&
           given.layout.count <= most(connections);
  }

  RingPosition ring() const { return connections_.tables().rings[0]; }
  TreePosition tree() const { return connections_.tables().trees[0]; }
  int root() const { return given_.root; }
  int rank() const { return connections_.comm().rank(); }
  int ranks() const { return connections_.comm().ranks(); }

  /// One round, whose shares are as long as in `WireContext::chunks`.
  Chunks chunks(int shares) const {
    Layout layout = given_.layout;
    layout.split = Op::cuts || (Op::rooted && shares != 1);
    return {layout, shares, 0, 1, most(connections_), grain};
  }
  int window() const {
    const int chunks = wires_.slot_count() / connections_.plan().chunk_steps;
    return chunks < 1 ? 1 : chunks;
  }
  int window(Index) const { return wires_.slot_count() / connections_.plan().slice_steps; }
  template <int In, int Out>
  auto prims(const Peers<In>& ins, const Peers<Out>& outs) {
    return ShortPrims<R, In, Out>{wires_, given_, spin_, ins, outs};
  }

 private:
  static constexpr Index size = sizeof(typename R::Type);
  static_assert(128 % size == 0, "chunks begin at multiples of 128 bytes");
  static constexpr Index grain = 128 / size;

  /// Most elements of a call: whole chunks that are one slice.
  static Index most(const Connections& connections) {
    const Plan& plan = connections.plan();
    return plan.slot_bytes * plan.slice_steps / size / grain * grain;
  }

  const Connections& connections_;
  const CallArguments<R>& given_;
  const ShortWires wires_;
  SpinWait<HostMemory> spin_;
};

}  // namespace ccl::detail
