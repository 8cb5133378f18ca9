#pragma once

#include <ccl/algo/peers.hpp>
#include <ccl/detail/transport/zero_copy.hpp>
#include <ccl/detail/base/bytes.hpp>
#include <ccl/detail/lanes/collect.hpp>
#include <ccl/detail/lanes/pair_lane.hpp>
#include <ccl/proto/protocol.hpp>
#include <ccl/detail/wire/solo_move.hpp>
#include <ccl/detail/numeric/reduction.hpp>
#include <ccl/detail/numeric/user_buffer.hpp>
#include <ccl/detail/wire/work.hpp>

namespace ccl::detail {

/// What an algorithm may do on up to MaxIn incoming and MaxOut outgoing wires of one channel: steps
/// on whole parts. A part crosses in slices of `slice_steps` slots; a step forwards a slice while
/// the next is on its way. Sources are added in the order own, in 0, in 1, ...
///
/// Groups of one CPU lane move slices of plain protocols (Simple) as arrays of elements; all others
/// move tiles.
/// `Proxied`: a proxy may move the bytes of some of the wires. Where none does the compiler is to
/// know: a condition in each step that only some wires meet made LL128's ring half as long again,
/// as of lanes that have branched it does not know that they are together afterwards.
template <LaneGroup Group, Protocol<Group> Proto, class R, int Align, int MaxIn, int MaxOut,
          bool Proxied = true>
class WirePrims {
 public:
  using T = typename R::Type;
  using Data = UserBuffer<T, Align>;
  using Lane = typename Proto::template Lane<Group, Element<T>::words_per_cell>;
  using Memory = typename Group::Memory;
  using Pair = detail::PairLane<Proto, Group, T>;
  static constexpr bool contiguous =
      Group::width == 1 && !Proto::carries_flags && detail::LiesPlainly<Proto>;
  static constexpr int tile_elements = Lane::tile_cells * Data::per_cell;
  static constexpr Index tile_bytes = Index{Lane::tile_packets} * Index{sizeof(Packet)};
  /// What a slice must hold: less, and steps move nothing, for ever.
  static constexpr Index min_slice_bytes = contiguous ? Index{sizeof(T)} : tile_bytes;

  /// Elements that a slice of `steps` slots holds.
  CCL_HD static constexpr Index slice_capacity(const Wire& wire, int steps) {
    const Index packets = Index{wire.slot_packets} * steps;
    if constexpr (contiguous) return packets * Index{sizeof(Packet)} / Index{sizeof(T)};
    return packets / Lane::tile_packets * tile_elements;
  }

  CCL_HD WirePrims(Group group, const WireWork<R>& work, int channel, const Peers<MaxIn>& ins,
                   const Peers<MaxOut>& outs)
      : work_{work},
        row_{channel * work.ranks},
        group_{group},
        lane_{group},
        data_{work.input, work.output},
        reduction_{work.reduction},
        steps_{work.slice_steps},
        spin_wait_{work.watch} {
    group_.sync();  // what lane 0 left of earlier primitives on these wires, every lane sees
    CCL_UNROLL for (int i = 0; i < MaxIn; ++i) {
      if (has_wire<false>(ins.rank[i])) {
        open_in(in_[i], work.in[row_ + ins.rank[i]], ins.rank[i]);
      }
    }
    CCL_UNROLL for (int o = 0; o < MaxOut; ++o) {
      if (has_wire<true>(outs.rank[o])) {
        open_out(out_[o], work.out[row_ + outs.rank[o]], outs.rank[o]);
      }
    }
    detail::look_at(work_);
    Memory::await_previous();  // what was read until here stays, counts and data change
    if constexpr (detail::reduces<R>) reduction_.load_here();
    CCL_UNROLL for (int i = 0; i < MaxIn; ++i) {
      if (has_in(i)) in_[i].received = *in_[i].kept;
    }
    CCL_UNROLL for (int o = 0; o < MaxOut; ++o) {
      if (!has_out(o)) continue;
      out_[o].sent = *out_[o].kept;
      out_[o].drained = Memory::load_credit(out_[o].credit);
    }
  }
  WirePrims(const WirePrims&) = delete;
  WirePrims& operator=(const WirePrims&) = delete;
  /// Leaves the counts for the next launch; who diagnoses may read them at any time.
  CCL_HD ~WirePrims() {
    if constexpr (contiguous) drain();
    group_.sync();  // every lane has read the counts, even of a launch without a step
    if (group_.rank() != 0 || spin_wait_.failed()) return;  // then they say how far it came
    CCL_UNROLL for (int i = 0; i < MaxIn; ++i) {
      if (has_in(i)) Memory::store_relaxed(in_[i].kept, in_[i].received);
    }
    CCL_UNROLL for (int o = 0; o < MaxOut; ++o) {
      if (has_out(o)) Memory::store_relaxed(out_[o].kept, out_[o].sent);
    }
  }

  /// From now on, parts lie at `data`: the user's buffer of one message.
  CCL_HD void bind(char* data) { data_ = Data{data, data}; }

  /// From now on, what this rank contributes is what it has stored so far.
  CCL_HD void own_is_output() { data_ = Data{data_.out(0), data_.out(0)}; }

  /// The user's memory that is sent from now on changes only by what its receivers' answers bring,
  /// if at all, until these primitives go: a proxy may take it from there.
  CCL_HD void lend() { lends_ = true; }
  /// The same beyond their end: whoever holds the memory waits (see `ZeroCopy::lent`).
  CCL_HD void lend_on() { lends_ = lends_after_end_ = true; }

  CCL_HD void send(const Part& part) { step<load | put>(part); }
  CCL_HD void copy_send(const Part& part) { step<load | store | put>(part); }
  CCL_HD void recv(const Part& part) { step<get | store>(part); }
  CCL_HD void recv_copy_send(const Part& part) { step<get | store | put>(part); }
  CCL_HD void recv_reduce_send(const Part& part) { step<get | load | put>(part); }
  CCL_HD void recv_reduce_copy(const Part& part) { step<get | load | store | finish>(part); }
  CCL_HD void recv_reduce_copy_send(const Part& part) {
    step<get | load | store | finish | put>(part);
  }
  /// The whole result goes on to the rank that wants it; none stays here.
  CCL_HD void recv_reduce_finish_send(const Part& part) { step<get | load | finish | put>(part); }

  /// Would a send, or a recv, of one slice go through without waiting for the peer? All lanes get
  /// the same answer. Of the first wire of each direction.
  CCL_HD bool can_send() {
    if (lacks_wire()) return true;  // and the step does nothing
    Out& out = out_[0];
    if (!has_credit(out)) out.drained = Memory::load_credit(out.credit);
    return group_.all(has_credit(out));
  }
  CCL_HD bool can_recv() {
    if (lacks_wire()) return true;
    const In& in = in_[0];
    if (in.counted) return group_.all(group_.rank() != 0 || has_come(in));  // as in `open`
    return group_.all(lane_.has_arrived(lane_.load(slot(in.slots, in.received)), in.received + 1));
  }
  /// Before a look at whether the next `n` elements, at most a slice, can be received: `recv` will
  /// have nothing to move if they come late enough to go where they belong.
  void expect(Index n) {
    if (lacks_wire()) return;
    offer<get | store>(0, n);
    want(n);
  }
  CCL_HD bool failed() const { return spin_wait_.failed(); }
  /// Of the first wire: how many steps are behind it.
  CCL_HD Word step() const { return has_in(0) ? in_[0].received : out_[0].sent; }

 private:
  enum Does { get = 1, load = 2, store = 4, put = 8, finish = 16 };  // in this order, tile by tile
  // The ends of the wires, as far as every slice needs them: registers are scarce.
  struct In {
    const Packet* slots = nullptr;
    const Word* posted = nullptr;  // where packets carry no flags
    Word* credit = nullptr;        // the wire's `drained`
    Word* kept = nullptr;          // the wire's `received`
    int peer = -1;
    bool counted = false;  // `posted` tells, not packets by themselves
    Word received = 0;
  };
  struct Out {
    Packet* slots = nullptr;
    Word* posted = nullptr;  // where packets carry no flags
    const Word* credit = nullptr;
    Word* kept = nullptr;  // the wire's `sent`
    int peer = -1;
    bool proxied = false;  // someone else moves the bytes, and wants to know how many
    Word sent = 0;
    Word drained = 0;  // what the receiver was last seen to have given back
  };
  CCL_HD bool has_in(int i) const { return in_[i].peer >= 0; }
  CCL_HD bool has_out(int o) const { return out_[o].peer >= 0; }
  // In a step: a lone wire is always there, and the compiler is to know.
  CCL_HD bool receives_into(int i) const { return MaxIn == 1 || has_in(i); }
  CCL_HD bool fills_line(int o) const { return MaxOut == 1 || has_out(o); }
  /// Of a peer that an algorithm names; none if it names none. One CPU lane looks whether the wire
  /// was connected: an algorithm of a program's own may not have asked for it. Kernels do not look.
  template <bool Sends>
  CCL_HD bool has_wire(int peer) {
    if constexpr (Group::width == 1) {
      if (peer < 0) return false;
      const Wire* const wires = Sends ? work_.out : work_.in;
      if (peer < work_.ranks && wires[row_ + peer].slots != nullptr) return true;
      lacks_wire_ = true;
      spin_wait_.give_up_without_wire(peer, Sends);
      return false;
    } else {
      return peer >= 0;
    }
  }
  /// No step touches a wire then, nor may: steps take a lone wire to be there.
  CCL_HD bool lacks_wire() const { return Group::width == 1 && lacks_wire_; }
  CCL_HD void open_in(In& in, const Wire& wire, int peer) {
    in.slots = wire.slots;
    in.posted = wire.posted;
    in.counted = !Proto::carries_flags || (Proxied && wire.proxied);
    in.credit = wire.drained;
    in.kept = wire.received;
    in.peer = peer;
    take_shape(wire);
  }
  CCL_HD void open_out(Out& out, const Wire& wire, int peer) {
    out.slots = wire.slots;
    out.posted = wire.posted;
    out.proxied = Proxied && wire.proxied;
    out.credit = wire.drained;
    out.kept = wire.sent;
    out.peer = peer;
    take_shape(wire);
  }
  /// All wires of a launch have one shape.
  CCL_HD void take_shape(const Wire& wire) {
    slice_ = int(slice_capacity(wire, steps_));
    slot_count_ = wire.slot_count;
    slot_packets_ = wire.slot_packets;
  }
  template <class P>
  CCL_HD P* slot(P* slots, Word step) const {
    return slots + Word(unsigned(step) & unsigned(slot_count_ - 1)) * unsigned(slot_packets_);
  }

  template <int What>
  CCL_HD void step(const Part& part) {
    if (lacks_wire()) return;
    using Count = cuda::std::conditional_t<contiguous, Index, int>;  // a chunk in a GPU's slots
    const auto count = Count(part.count);
    for (Count at = 0; at < count; at += slice_) {
      const int n = count - at < slice_ ? int(count - at) : slice_;
      if constexpr (contiguous) {
        offer<What>(part.out + at, n);
        if constexpr ((What & get) != 0) want(n);
      }
      const bool opened = open<What>();
      if constexpr (contiguous) {
        if (opened) move_array<What>(part.in + at, part.out + at, n);
      } else if (opened || !Proto::carries_flags) {  // without flags only what is put must not be
        move_tiles<What>(part.in + at, part.out + at, n, opened);
      }
      close<What>(n);
    }
  }

  /// Until a slice is free to fill on every wire out and, where the wire tells it, one is filled to
  /// drain on every wire in. Some lanes may give up, and others not: false for all that share a
  /// flag or a slot, as one without credit is nobody's to fill.
  template <int What>
  CCL_HD bool open() {
    if constexpr (Proto::carries_flags) {
      // Lanes look for themselves and meet nobody: it is the same word for all of them.
      await<What>();
      return (What & put) == 0 || lane_.agree(!spin_wait_.failed());
    } else {
      if (group_.rank() == 0) await<What>();
      return group_.all(!spin_wait_.failed());  // what lane 0 acquired, every lane has
    }
  }
  template <int What>
  CCL_HD void await() {
    if constexpr ((What & put) != 0) {
      CCL_UNROLL for (int o = 0; o < MaxOut; ++o) {
        if (fills_line(o)) await_credit(out_[o]);
      }
    }
    if constexpr ((What & get) != 0) {
      CCL_UNROLL for (int i = 0; i < MaxIn; ++i) {
        if (!receives_into(i) || (Proto::carries_flags && !(Proxied && in_[i].counted))) continue;
        while (!has_come(in_[i]) && !spin_wait_.ends(in_[i].peer, in_[i].received)) {
        }
      }
    }
  }
  /// Is the next slice free to fill, as far as we know?
  CCL_HD bool has_credit(const Out& out) const {
    return unsigned(out.sent) - unsigned(out.drained) <= unsigned(slot_count_ - steps_);
  }
  /// Is the next slice here, all steps of it?
  CCL_HD bool has_come(const In& in) const {
    return unsigned(Memory::load_acquire(in.posted)) - unsigned(in.received) >= unsigned(steps_);
  }
  CCL_HD void await_credit(Out& out) {
    while (!has_credit(out)) {
      out.drained = Memory::load_credit(out.credit);
      if (!has_credit(out) && spin_wait_.ends(out.peer, out.sent)) break;
    }
  }

  /// Gives the drained slices back and publishes the filled ones.
  template <int What>
  CCL_HD void close(int n) {
    group_.sync();  // every lane has read its share of the ones and written its share of the others
    const bool lead = group_.rank() == 0 && !spin_wait_.failed();
    if constexpr ((What & put) != 0) {
      CCL_UNROLL for (int o = 0; o < MaxOut; ++o) {
        if (!fills_line(o)) continue;
        Out& out = out_[o];
        if (Proxied && lead && out.proxied) {
          Word bytes = wire_bytes(n);
          if constexpr (contiguous) bytes |= lent_[o] == out.sent + 1 ? ZeroCopy::mark : 0;
          const Wire& wire = work_.out[row_ + out.peer];
          tell_sizes(wire.sizes + (int(out.sent) & (slot_count_ - 1)), bytes);
        }
        if (lead && (!Proto::carries_flags || (Proxied && out.proxied))) {
          Memory::store_release(out.posted, out.sent + unsigned(steps_));
        }
        out.sent += unsigned(steps_);
      }
    }
    if constexpr ((What & get) != 0) {
      CCL_UNROLL for (int i = 0; i < MaxIn; ++i) {
        if (!receives_into(i)) continue;
        in_[i].received += unsigned(steps_);
        if (lead) Memory::store_credit(in_[i].credit, in_[i].received);
      }
    }
  }
  /// Bytes of the wire that n elements take.
  CCL_HD static Word wire_bytes(int n) {
    if constexpr (contiguous) return Word(n) * sizeof(T);
    if constexpr (!Proto::carries_flags && Lane::tile_packets == Group::width) {
      return Word(div_up(n, tile_elements / Group::width)) * sizeof(Packet);  // a packet of a lane
    }
    return Word(div_up(n, tile_elements)) * Word(tile_bytes);
  }

  /// A proxy moves steps one by one: a slice fills its slots in order, the last ones perhaps not.
  CCL_HD void tell_sizes(Word* sizes, Word bytes) const {
    const Word slot_bytes = Word(slot_packets_) * sizeof(Packet);
    if constexpr (contiguous) {
      if (bytes >= ZeroCopy::mark) sizes[0] = bytes;  // a slice of one step
      if (bytes >= ZeroCopy::mark) return;
    }
    CCL_ROLL for (int s = 0; s < steps_; ++s) {
      sizes[s] = bytes < slot_bytes ? bytes : slot_bytes;
      bytes -= sizes[s];
    }
  }

  /// Of a wire past whose slots a slice of n elements may go.
  ZeroCopy* zero_copy(const Wire* wires, int peer, Index n) const {
    const bool worth = steps_ == 1 && n * Index{sizeof(T)} >= ZeroCopy::min_bytes;
    return worth ? wires[row_ + peer].zero_copy : nullptr;
  }
  /// Tells proxies that it waits for a slice of n elements on every wire in.
  void want(Index n) {
    for (int i = 0; i < MaxIn; ++i) {
      if (!receives_into(i) || has_come(in_[i])) continue;
      ZeroCopy* const past = work_.in[row_ + in_[i].peer].zero_copy;
      if (past == nullptr) continue;
      past->want(in_[i].received + unsigned(steps_), steps_ == 1 ? n * Index{sizeof(T)} : -1);
    }
  }
  /// What is only stored may land where it belongs.
  template <int What>
  void offer(Index out_at, Index n) {
    if constexpr (MaxIn == 1 && (What & (get | load | store)) == (get | store)) {
      if (ZeroCopy* const past = zero_copy(work_.in, in_[0].peer, n); past != nullptr) {
        past->offer(in_[0].received, data_.out(out_at), n * Index{sizeof(T)});
      }
    }
  }
  /// Whether it has.
  template <int What>
  bool landed(Index n) const {
    if constexpr (MaxIn == 1 && (What & (get | load | store)) == (get | store)) {
      if (zero_copy(work_.in, in_[0].peer, n) == nullptr) return false;
      const Word* const sizes = work_.in[row_ + in_[0].peer].sizes;
      return sizes[int(in_[0].received) & (slot_count_ - 1)] >= ZeroCopy::mark;
    }
    return false;
  }
  /// At the end: what was lent has left, or nobody touches it any more.
  void drain() {
    for (int o = 0; o < MaxOut && !lends_after_end_; ++o) {
      if (!has_out(o)) continue;
      while (Memory::load_credit(out_[o].credit) < lent_[o]) {
        if (spin_wait_.ends(out_[o].peer, out_[o].sent)) break;
      }
    }
    if (!spin_wait_.failed()) return;
    for (int o = 0; o < MaxOut; ++o) {
      if (!has_out(o)) continue;
      if (ZeroCopy* const past = work_.out[row_ + out_[o].peer].zero_copy) past->revoke();
    }
    for (int i = 0; i < MaxIn; ++i) {
      if (!has_in(i)) continue;
      if (ZeroCopy* const past = work_.in[row_ + in_[i].peer].zero_copy) past->revoke();
    }
  }

  /// One CPU lane: slots hold plain elements, side by side.
  template <int What>
  void move_array(Index in_at, Index out_at, Index n) {
    const void* from[MaxIn]{};
    int sources = 0;
    if constexpr ((What & get) != 0) {
      for (int i = 0; i < MaxIn; ++i) {
        if (receives_into(i)) from[sources++] = slot(in_[i].slots, in_[i].received);
      }
    }
    void* const out = (What & store) != 0 ? data_.out(out_at) : nullptr;
    const void* const own = (What & load) != 0 ? data_.in(in_at) : nullptr;
    if (landed<What>(n)) from[0] = out;
    void* slots[MaxOut]{};
    int filled = 0;
    if constexpr ((What & put) != 0) {
      // What goes out lies in the user's memory as it is, or will when this slice is stored.
      constexpr bool as_it_is = (What & (get | load)) == load && !detail::prepares<R>();
      for (int o = 0; o < MaxOut; ++o) {
        if (!fills_line(o)) continue;
        if constexpr (as_it_is || (What & store) != 0) {
          ZeroCopy* const past = lends_ ? zero_copy(work_.out, out_[o].peer, n) : nullptr;
          if (past != nullptr) {
            past->lend(out_[o].sent, as_it_is ? own : out);
            lent_[o] = out_[o].sent + 1;
            continue;
          }
        }
        slots[filled++] = slot(out_[o].slots, out_[o].sent);
      }
    }
    if (filled == 0 && (out == nullptr || (out == from[0] && own == nullptr))) return;
    detail::move_elements<R, (What & finish) != 0, (What & get) != 0 ? MaxIn : 0>(
        reduction_, out, slots, filled, own, from, sources, n);
  }

  template <int What>
  CCL_HD void move_tiles(Index in_at, Index out_at, int n, bool fill) {
    // Registers: a tree's node holds the ends of four wires, and a tile of each.
    constexpr int batch = MaxIn > 1 || MaxOut > 1 ? 2 : Proto::batch;
    Ends ends;
    if constexpr ((What & get) != 0) {
      CCL_UNROLL for (int i = 0; i < MaxIn; ++i) {
        if (receives_into(i)) ends.from[i] = slot(in_[i].slots, in_[i].received);
      }
    }
    if constexpr ((What & put) != 0) {
      CCL_UNROLL for (int o = 0; o < MaxOut; ++o) {
        if (fills_line(o)) ends.to[o] = slot(out_[o].slots, out_[o].sent);
      }
    }
    int left = n;
    // Both ends of a wire take the same tiles for pairs, whatever their batches are.
    if constexpr (!cuda::std::is_void_v<Pair>) {
      const Pair pair{group_};
      CCL_ROLL for (; left >= batch * tile_elements; left -= batch * tile_elements) {
        move<What, batch / 2, Fill::full>(pair, ends, in_at + (n - left), out_at + (n - left), left,
                                          fill);
      }
      if (batch > 2 && left >= 2 * tile_elements) {
        move<What, 1, Fill::full>(pair, ends, in_at + (n - left), out_at + (n - left), left, fill);
        left -= 2 * tile_elements;
      }
    } else {
      CCL_ROLL for (; left >= batch * tile_elements; left -= batch * tile_elements) {
        move<What, batch, Fill::full>(lane_, ends, in_at + (n - left), out_at + (n - left), left,
                                      fill);
      }
    }
    if constexpr (!Proto::carries_flags) {
      // What makes no batch is one, too, with loads that are not made: tile by tile takes longer.
      constexpr int access = Lane::stride * Data::per_cell;
      if (const int whole = left % access == 0 ? left : left / tile_elements * tile_elements;
          whole > 0) {
        move<What, batch, Fill::cells>(lane_, ends, in_at + (n - left), out_at + (n - left), whole,
                                       fill);
        left -= whole;
        ends.advance(div_up(whole, tile_elements) - batch);
      }
      if (left > 0) {
        move<What, 1, Fill::any>(lane_, ends, in_at + (n - left), out_at + (n - left), left, fill);
      }
    } else {
      // The last tile and those before it that make no batch: few, and not worth code of their own.
      CCL_ROLL for (; left > 0; left -= tile_elements) {
        move<What, 1, Fill::any>(lane_, ends, in_at + (n - left), out_at + (n - left), left, fill);
      }
    }
  }

  /// Where the next tile of a slice comes from and goes to.
  struct Ends {
    const Packet* from[MaxIn];
    Packet* to[MaxOut];
    CCL_HD void advance(int tiles) {
      CCL_UNROLL for (int i = 0; i < MaxIn; ++i) from[i] += tiles * Lane::tile_packets;
      CCL_UNROLL for (int o = 0; o < MaxOut; ++o) to[o] += tiles * Lane::tile_packets;
    }
  };

  /// N tiles through registers: everything is loaded before anything is looked at.
  template <int What, int N, Fill How, class Tile>
  CCL_HD void move(const Tile& lane, Ends& ends, Index in_at, Index out_at, int left, bool fill) {
    using Fragment = typename Tile::Fragment;
    constexpr int elements = Tile::tile_cells * Data::per_cell;
    Fragment f[N];
    if constexpr ((What & load) != 0) {
      CCL_UNROLL for (int n = 0; n < N; ++n) {
        f[n] = data_.template load<How>(lane, in_at + n * elements, left - n * elements);
      }
    }
    if constexpr ((What & get) != 0) {
      Fragments<Fragment, N> got[MaxIn];
      CCL_UNROLL for (int i = 0; i < MaxIn; ++i) {
        if (!receives_into(i)) continue;
        if constexpr (How == Fill::cells) {
          CCL_UNROLL for (int n = 0; n < N; ++n) {
            if (n * elements < left) {
              got[i].of[n] = lane.unpack(lane.load(ends.from[i] + n * Tile::tile_packets));
            }
          }
        } else {
          got[i] = collect<N>(lane, ends.from[i], in_[i].received + 1, in_[i].peer, spin_wait_);
        }
        ends.from[i] += N * Tile::tile_packets;
      }
      CCL_UNROLL for (int n = 0; n < N; ++n) {
        if constexpr ((What & load) == 0) {
          f[n] = got[0].of[n];
        } else if constexpr (detail::reduces<R>) {
          auto sum = CellReducer<R, Tile::words>::from_own(reduction_, f[n]);
          CCL_UNROLL for (int i = 0; i < MaxIn; ++i) {
            if (receives_into(i)) sum.add_received(got[i].of[n]);
          }
          f[n] = (What & finish) != 0 ? sum.finish() : sum.result();
        }
      }
    } else if constexpr (detail::prepares<R>()) {
      CCL_UNROLL for (int n = 0; n < N; ++n) {
        f[n] = CellReducer<R, Tile::words>::from_own(reduction_, f[n]).result();
      }
    }
    if constexpr ((What & put) != 0) {
      const int first = lane.cell(0) * Data::per_cell;
      // What is left of a wait that was given up must not pass for data: it has the flag of the
      // step before. `collect` gives up with all of the lanes that share a flag, or with none.
      const Word real = !spin_wait_.failed();
      CCL_UNROLL for (int o = 0; o < MaxOut; ++o) {
        if (!fills_line(o)) continue;
        CCL_UNROLL for (int n = 0; n < N; ++n) {
          // Nobody waits for what is not there, if packets carry no flags.
          const bool there = How == Fill::full || first + n * elements < left;
          if (!Proto::carries_flags && !(fill && there)) continue;
          lane.store(ends.to[o] + n * Tile::tile_packets, f[n], out_[o].sent + real);
        }
        ends.to[o] += N * Tile::tile_packets;
      }
    }
    if constexpr ((What & store) != 0) {
      CCL_UNROLL for (int n = 0; n < N; ++n) {
        data_.template store<How>(lane, out_at + n * elements, left - n * elements, f[n]);
      }
    }
  }

  const WireWork<R>& work_;
  int row_;  // of this channel among the wires
  Group group_;
  Lane lane_;
  Data data_;
  R reduction_;
  int steps_;
  int slice_ = 1;  // elements
  int slot_count_ = 1, slot_packets_ = 0;
  In in_[MaxIn];
  Out out_[MaxOut];
  bool lends_ = false, lends_after_end_ = false;
  bool lacks_wire_ = false;  // of one CPU lane
  Word lent_[MaxOut] = {};   // one more than the last step that was, by wire out
  SpinWait<Memory> spin_wait_;
};

}  // namespace ccl::detail
