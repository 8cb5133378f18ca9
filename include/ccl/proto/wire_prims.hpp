#pragma once

#include <ccl/bytes.hpp>
#include <ccl/proto/collect.hpp>
#include <ccl/proto/solo_move.hpp>
#include <ccl/reduction.hpp>
#include <ccl/span.hpp>
#include <ccl/wire_work.hpp>

namespace ccl {

/// Up to N peers, by rank; -1 for none, and none before a rank.
template <int N>
struct Peers {
  int rank[N];
};

/// What an algorithm may do on up to MaxIn incoming and MaxOut outgoing wires of one channel: steps
/// on whole parts. A part crosses in slices of `slice_steps` slots; a step forwards a slice while
/// the next is on its way. Sources are added in the order own, in 0, in 1, ...
///
/// Groups of one CPU lane move Simple's slices as plain arrays of elements; all others move tiles.
template <LaneGroup Group, Protocol<Group> Proto, class R, int Align, int MaxIn, int MaxOut>
class WirePrims {
 public:
  using T = typename R::Type;
  using Data = Span<T, Align>;
  using Lane = typename Proto::template Lane<Group, Element<T>::words_per_cell>;
  using Memory = typename Group::Memory;
  using Fragment = typename Lane::Fragment;
  static constexpr bool contiguous = Group::width == 1 && !Proto::carries_flags;

  /// Elements that a slice of `steps` slots holds.
  CCL_HD static constexpr Index slice_capacity(const Wire& wire, int steps) {
    const Index packets = Index{wire.slot_packets} * steps;
    if constexpr (contiguous) return packets * Index{sizeof(Packet)} / Index{sizeof(T)};
    return packets / Lane::tile_packets * tile_elements;
  }

  CCL_HD WirePrims(Group group, const WireWork<R>& work, int channel, const Peers<MaxIn>& ins,
                   const Peers<MaxOut>& outs)
      : group_{group},
        lane_{group},
        data_{work.input, work.output},
        reduction_{work.reduction},
        steps_{work.slice_steps},
        patience_{work.watch} {
    CCL_UNROLL for (int i = 0; i < MaxIn; ++i) {
      if (ins.rank[i] >= 0) open_in(i, work.in[channel * work.ranks + ins.rank[i]], ins.rank[i]);
    }
    CCL_UNROLL for (int o = 0; o < MaxOut; ++o) {
      if (outs.rank[o] >= 0)
        open_out(o, work.out[channel * work.ranks + outs.rank[o]], outs.rank[o]);
    }
  }
  WirePrims(const WirePrims&) = delete;
  WirePrims& operator=(const WirePrims&) = delete;
  /// Leaves the counts for the next launch.
  CCL_HD ~WirePrims() {
    if (group_.rank() != 0) return;
    CCL_UNROLL for (int i = 0; i < MaxIn; ++i) {
      if (has_in(i)) *in_[i].wire.received = in_[i].received;
    }
    CCL_UNROLL for (int o = 0; o < MaxOut; ++o) {
      if (has_out(o)) *out_[o].wire.sent = out_[o].sent;
    }
  }

  /// From now on, parts lie at `data`: the user's buffer of one message.
  CCL_HD void bind(char* data) { data_ = Data{data, data}; }

  CCL_HD void send(const Part& part) { step<load | put>(part); }
  CCL_HD void copy_send(const Part& part) { step<load | store | put>(part); }
  CCL_HD void recv(const Part& part) { step<get | store>(part); }
  CCL_HD void recv_copy_send(const Part& part) { step<get | store | put>(part); }
  CCL_HD void recv_reduce_send(const Part& part) { step<get | load | put>(part); }
  CCL_HD void recv_reduce_copy(const Part& part) { step<get | load | store | finish>(part); }
  CCL_HD void recv_reduce_copy_send(const Part& part) {
    step<get | load | store | finish | put>(part);
  }

  /// Would a send, or a recv, of one slice go through without waiting for the peer? All lanes get
  /// the same answer. Of the first wire of each direction.
  CCL_HD bool can_send() {
    if (out_[0].drained + Word(out_[0].wire.slot_count - steps_) < out_[0].sent) {
      out_[0].drained = Memory::load_credit(out_[0].wire.drained);
    }
    return group_.all(out_[0].drained + Word(out_[0].wire.slot_count - steps_) >= out_[0].sent);
  }
  CCL_HD bool can_recv() {
    const In& in = in_[0];
    if (!Proto::carries_flags || in.wire.proxied) {
      return group_.all(Memory::load_acquire(in.wire.posted) > in.received);
    }
    const Packet* const tile = in.wire.slot(in.received);
    return group_.all(lane_.here(lane_.load(tile), in.received + 1));
  }
  CCL_HD bool gave_up() const { return patience_.gave_up(); }

 private:
  enum Does { get = 1, load = 2, store = 4, put = 8, finish = 16 };  // in this order, tile by tile
  static constexpr int tile_elements = Lane::tile_cells * Data::per_cell;
  struct In {
    Wire wire;
    Word received = 0;
    int peer = -1;
  };
  struct Out {
    Wire wire;
    Word sent = 0;
    Word drained = 0;  // what the receiver was last seen to have given back
    int peer = -1;
  };
  CCL_HD bool has_in(int i) const { return in_[i].peer >= 0; }
  CCL_HD bool has_out(int o) const { return out_[o].peer >= 0; }
  // In a step: a lone wire is always there, and the compiler is to know.
  CCL_HD bool takes(int i) const { return MaxIn == 1 || has_in(i); }
  CCL_HD bool fills(int o) const { return MaxOut == 1 || has_out(o); }
  CCL_HD void open_in(int i, const Wire& wire, int peer) {
    in_[i] = {wire, *wire.received, peer};
    slice_ = slice_capacity(wire, steps_);
  }
  CCL_HD void open_out(int o, const Wire& wire, int peer) {
    out_[o] = {wire, *wire.sent, 0, peer};
    out_[o].drained = Memory::load_credit(wire.drained);
    slice_ = slice_capacity(wire, steps_);
  }

  template <int What>
  CCL_HD void step(const Part& part) {
    for (Index at = 0; at < part.count; at += slice_) {
      const Index n = part.count - at < slice_ ? part.count - at : slice_;
      open<What>();
      if constexpr (contiguous) {
        move_array<What>(part.in + at, part.out + at, n);
      } else {
        move_tiles<What>(part.in + at, part.out + at, n);
      }
      close<What>(n);
    }
  }

  /// Until a slice is free to fill on every wire out and, where the wire tells it, one is filled to
  /// drain on every wire in.
  template <int What>
  CCL_HD void open() {
    if (group_.rank() == 0) {
      if constexpr ((What & put) != 0) {
        CCL_UNROLL for (int o = 0; o < MaxOut; ++o) {
          if (fills(o)) await_credit(out_[o]);
        }
      }
      if constexpr ((What & get) != 0) {
        CCL_UNROLL for (int i = 0; i < MaxIn; ++i) {
          if (!takes(i) || (Proto::carries_flags && !in_[i].wire.proxied)) continue;
          while (Memory::load_acquire(in_[i].wire.posted) <= in_[i].received &&
                 !patience_.ends(in_[i].peer, in_[i].received)) {
          }
        }
      }
    }
    group_.sync();  // what lane 0 acquired, every lane has
  }
  CCL_HD void await_credit(Out& out) {
    while (out.drained + Word(out.wire.slot_count - steps_) < out.sent) {
      out.drained = Memory::load_credit(out.wire.drained);
      if (out.drained + Word(out.wire.slot_count - steps_) >= out.sent) break;
      if (patience_.ends(out.peer, out.sent)) break;
    }
  }

  /// Gives the drained slices back and publishes the filled ones.
  template <int What>
  CCL_HD void close(Index n) {
    group_.sync();  // every lane has read its share of the ones and written its share of the others
    const bool lead = group_.rank() == 0 && !patience_.gave_up();
    if constexpr ((What & put) != 0) {
      CCL_UNROLL for (int o = 0; o < MaxOut; ++o) {
        if (!fills(o)) continue;
        Out& out = out_[o];
        if (lead && out.wire.proxied) {
          out.wire.sizes[out.sent & Word(out.wire.slot_count - 1)] = wire_bytes(n);
        }
        out.sent += Word(steps_);
        if (lead && (!Proto::carries_flags || out.wire.proxied)) {
          Memory::store_release(out.wire.posted, out.sent);
        }
      }
    }
    if constexpr ((What & get) != 0) {
      CCL_UNROLL for (int i = 0; i < MaxIn; ++i) {
        if (!takes(i)) continue;
        in_[i].received += Word(steps_);
        if (lead) Memory::store_credit(in_[i].wire.drained, in_[i].received);
      }
    }
  }
  /// Bytes of the wire that n elements take.
  CCL_HD static Word wire_bytes(Index n) {
    if constexpr (contiguous) return Word(n * Index{sizeof(T)});
    return Word(div_up<Index>(n, tile_elements) * Lane::tile_packets * Index{sizeof(Packet)});
  }

  /// One CPU lane: slots hold plain elements, side by side.
  template <int What>
  void move_array(Index in_at, Index out_at, Index n) {
    const void* from[MaxIn]{};
    int sources = 0;
    if constexpr ((What & get) != 0) {
      for (int i = 0; i < MaxIn; ++i) {
        if (takes(i)) from[sources++] = in_[i].wire.slot(in_[i].received);
      }
    }
    void* to[MaxOut + 1]{};
    int targets = 0;
    if constexpr ((What & store) != 0) to[targets++] = data_.out(out_at);
    if constexpr ((What & put) != 0) {
      for (int o = 0; o < MaxOut; ++o) {
        if (fills(o)) to[targets++] = out_[o].wire.slot(out_[o].sent);
      }
    }
    if (patience_.gave_up()) return;
    const void* const own = (What & load) != 0 ? data_.in(in_at) : nullptr;
    detail::move_elements<R, (What & finish) != 0, (What & get) != 0 ? MaxIn : 0>(
        reduction_, to, targets, own, from, sources, n);
  }

  template <int What>
  CCL_HD void move_tiles(Index in_at, Index out_at, Index n) {
    constexpr int batch = MaxIn > 1 || MaxOut > 1 ? 1 : Proto::batch;
    const int tiles = int(div_up<Index>(n, tile_elements));
    int t = 0;
    for (; t + batch <= tiles; t += batch) move<What, batch>(in_at, out_at, n, t);
    for (; t < tiles; ++t) move<What, 1>(in_at, out_at, n, t);
  }

  /// N tiles through registers: everything is loaded before anything is looked at.
  template <int What, int N>
  CCL_HD void move(Index in_at, Index out_at, Index count, int t) {
    Fragment f[N];
    if constexpr ((What & load) != 0) {
      CCL_UNROLL for (int n = 0; n < N; ++n) {
        const Index at = Index{t + n} * tile_elements;
        f[n] = data_.load(lane_, in_at + at, count - at);
      }
    }
    if constexpr ((What & get) != 0) {
      Fragments<Fragment, N> got[MaxIn]{};
      CCL_UNROLL for (int i = 0; i < MaxIn; ++i) {
        if (takes(i)) got[i] = take<N>(in_[i], t);
      }
      CCL_UNROLL for (int n = 0; n < N; ++n) {
        if constexpr ((What & load) == 0) {
          f[n] = got[0].of[n];
        } else if constexpr (detail::reduces<R>) {
          auto sum = CellReducer<R, Lane::words>::from_own(reduction_, f[n]);
          CCL_UNROLL for (int i = 0; i < MaxIn; ++i) {
            if (takes(i)) sum.add_received(got[i].of[n]);
          }
          f[n] = (What & finish) != 0 ? sum.finish() : sum.result();
        }
      }
    } else if constexpr (detail::reduces<R>) {
      CCL_UNROLL for (int n = 0; n < N; ++n) {
        f[n] = CellReducer<R, Lane::words>::from_own(reduction_, f[n]).result();
      }
    }
    if constexpr ((What & put) != 0) {
      CCL_UNROLL for (int o = 0; o < MaxOut; ++o) {
        if (!fills(o)) continue;
        Packet* const to = out_[o].wire.slot(out_[o].sent) + Index{t} * Lane::tile_packets;
        CCL_UNROLL for (int n = 0; n < N; ++n) {
          lane_.store(to + n * Lane::tile_packets, f[n], out_[o].sent + 1);
        }
      }
    }
    if constexpr ((What & store) != 0) {
      CCL_UNROLL for (int n = 0; n < N; ++n) {
        const Index at = Index{t + n} * tile_elements;
        data_.store(lane_, out_at + at, count - at, f[n]);
      }
    }
  }
  template <int N>
  CCL_HD Fragments<Fragment, N> take(const In& in, int t) {
    return collect<N>(lane_, in.wire.slot(in.received) + Index{t} * Lane::tile_packets,
                      in.received + 1, in.peer, patience_);
  }
  Group group_;
  Lane lane_;
  Data data_;
  R reduction_;
  int steps_;
  Index slice_ = 1;  // elements
  In in_[MaxIn];
  Out out_[MaxOut];
  Patience<Memory> patience_;
};

}  // namespace ccl
