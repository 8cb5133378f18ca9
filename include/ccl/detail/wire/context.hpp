#pragma once

#include <ccl/detail/transport/registered_memory.hpp>
#include <ccl/detail/transport/zero_copy.hpp>
#include <ccl/detail/wire/exchange_steps.hpp>
#include <ccl/detail/wire/landings.hpp>
#include <ccl/detail/wire/prims.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Context of an algorithm over wires: one channel of one rank's launch. In an exchange, several
/// groups (`server`s) share the peers of a channel, and each has a context.
template <class Op, LaneGroup Group, Protocol<Group> Proto, class R, int Align,
          class Work = WireWork<R>, bool Proxied = true>
class WireContext {
  using Format = WireFormat<Group, Proto, R, Align>;
  static constexpr bool contiguous = Format::contiguous;

 public:
  CCL_HD WireContext(Group group, const Work& work, int channel, int server = 0)
      : group_{group}, work_{work}, channel_{channel}, server_{server} {}
  /// Begins a context that wraps `other`, without its landings.
  CCL_HD WireContext(const WireContext& other)
      : WireContext{other.group_, other.work_, other.channel_, other.server_} {}
  WireContext& operator=(const WireContext&) = delete;

  CCL_HD auto ring() const {
    if constexpr (Group::width > 1) {
      return NearRingPosition{work_.rings[channel_]};
    } else {
      return work_.rings[channel_];
    }
  }
  CCL_HD TreePosition tree() const { return work_.trees[channel_]; }
  CCL_HD HostPosition host() const { return work_.hosts[channel_]; }
  CCL_HD int root() const { return work_.root; }
  CCL_HD int rank() const { return work_.rank; }
  CCL_HD int ranks() const { return work_.ranks; }

  /// Rounds of the message on this channel, with a chunk for each of `shares` shares.
  CCL_HD Chunks chunks(int shares) const {
    constexpr Index grain = grain_elements();
    const Index slice = slice_capacity();
    const Index most = slice * (work_.chunk_steps / work_.slice_steps);
    Index chunk = most / grain * grain;
    Layout layout = work_.layout;
    layout.split = Op::cuts || (Op::rooted && shares != 1);  // a constant for the compiler
    if constexpr (Group::width == 1) {
      // A GPU's slots hold fewer.
      if (chunk > Chunks::max_elements) chunk = Chunks::max_elements / grain * grain;
      // Aligned chunks of long elements may exceed the wire, and ranks send a chunk before they
      // receive one. A CPU needs no alignment.
      if (chunk == 0) return {layout, shares, channel_, work_.channels, most < 1 ? 1 : most, 1};
    }
    return {layout, shares, channel_, work_.channels, chunk < grain ? grain : chunk, grain};
  }
  /// Number of chunks that a wire holds, which a rank may send before the peer receives.
  CCL_HD int window() const {
    const int chunks = work_.slot_count / work_.chunk_steps;
    return chunks < 1 ? 1 : chunks;
  }
  /// Number of chunks of `count` elements that a wire holds.
  CCL_HD int window(Index count) const {
    const Index slices = div_up(count, slice_capacity());
    const int most = work_.slot_count / work_.slice_steps;
    const int chunks = slices < 1 ? most : slices < most ? most / int(slices) : 1;
    return chunks;
  }
  template <int In, int Out>
  CCL_HD auto prims(const Peers<In>& ins, const Peers<Out>& outs) const {
    if constexpr (Align == any_align) {
      // All primitives of a kernel share the function of their steps.
      constexpr int most = In > Out ? In : Out;
      return Prims<most, most>{group_, work_, channel_, widened<most>(ins), widened<most>(outs)};
    } else if constexpr (contiguous) {
      return Prims<In, Out>{group_, work_, channel_,
                            ins,    outs,  In == 1 ? landings_.of(ins.rank[0]) : nullptr};
    } else {
      return Prims<In, Out>{group_, work_, channel_, ins, outs};
    }
  }
  /// Primitives of a head whose wire out leads to the network that reduces.
  template <int In>
  CCL_HD auto to_network(const Peers<In>& ins) const {
    return WirePrims<Group, Proto, R, Align, In, 1, true, true>{group_, work_, channel_, ins,
                                                                Peers<1>{{work_.rank}}};
  }
  /// Primitives of a head whose wire in comes from that network.
  template <int Out>
  CCL_HD auto from_network(const Peers<Out>& outs) const {
    return WirePrims<Group, Proto, R, Align, 1, Out>{group_, work_, channel_,
                                                     Peers<1>{{work_.rank}}, outs};
  }
  /// Lists what `Algo` will receive, if peers may write it to registered memory of this rank.
  template <class Algo>
  void list_landings() {
    const Index slice_bytes = slice_capacity() * Index{sizeof(typename R::Type)};
    if (work_.slice_steps != 1 || slice_bytes < ZeroCopy::min_bytes) return;  // as `PlainSlices`
    if (!work_.proxied || find_registered(work_.output, 1) == nullptr) return;
    LandingContext<WireContext> context{*this, landings_};
    Algo::run(Op{}, context);
  }
  /// Waits until the proxies have read what primitives lent (`lend_on`). After a failure, revokes
  /// the memory of all wires of the channel. One CPU lane, at the end of the call.
  void await_lent() {
    SpinWait<typename Group::Memory> spin{work_.watch};
    const auto each = [&](const Wire* wires, auto visit) {
      for (int peer = 0; peer < work_.ranks; ++peer) {
        const Wire& wire = wires[work_.row(channel_) + work_.column(peer)];
        if (wire.zero_copy != nullptr) visit(peer, wire);
      }
    };
    each(work_.out, [&](int peer, const Wire& wire) {
      const Word lent = wire.zero_copy->lent();
      while (!spin.failed() && Group::Memory::load_credit(wire.drained) < lent) {
        (void)spin.ends(peer, lent);
      }
    });
    if (!spin.failed()) return;
    const auto revoke = [](int, const Wire& wire) { wire.zero_copy->revoke(); };
    each(work_.out, revoke);
    each(work_.in, revoke);
  }
  CCL_HD Exchange<Group, Proto, R, Align, Work> exchange() const {
    return {group_, work_, channel_, server_};
  }
  /// Elements in a slice. All wires of the launch have one shape.
  CCL_HD Index slice_capacity() const {
    return Format::slice_capacity(work_.slot_packets, work_.slice_steps);
  }
  // For `Checked`.
  CCL_HD Group group() const { return group_; }
  CCL_HD const Work& work() const { return work_; }
  CCL_HD int channel() const { return channel_; }

 private:
  template <int In, int Out>
  using Prims = WirePrims<Group, Proto, R, Align, In, Out, Proxied>;
  template <int Most, int N>
  CCL_HD static Peers<Most> widened(const Peers<N>& peers) {
    Peers<Most> all;
    CCL_UNROLL for (int i = 0; i < Most; ++i) all.rank[i] = i < N ? peers.rank[i < N ? i : 0] : -1;
    return all;
  }
  /// Elements to whose multiples chunks are cut. Chunks begin at multiples of 128 bytes, which
  /// keeps aligned buffers aligned. If a tile of many lanes holds fewer elements, they begin at
  /// multiples of 16 bytes at least, because a chunk must fit the wire.
  CCL_HD static constexpr Index grain_elements() {
    constexpr Index most = Format::tile_elements;
    Index n = 128;
    while (n > 1 && (n / 2) * Index{sizeof(typename R::Type)} % 128 == 0) n /= 2;
    while (Group::width > 1 && n > most) n /= 2;
    return n;
  }

  Group group_;
  const Work& work_;
  int channel_, server_;
  cuda::std::conditional_t<contiguous, LandingTable, NoLandings> landings_;
};

/// True for contexts of collectives whose steps lanes take, and for contexts that wrap these. False
/// for contexts that take the place of a launch, such as those of a simulation.
template <class Context>
inline constexpr bool has_lanes = false;
template <class Op, class Group, class Proto, class R, int Align, bool Proxied>
inline constexpr bool has_lanes<WireContext<Op, Group, Proto, R, Align, WireWork<R>, Proxied>> =
    true;

/// Notes the begin and the end of a channel of CPU lanes.
template <class Group, bool cpu = Group::width == 1>
class TimedRun {
 public:
  CCL_HD TimedRun(const AbortWatch& watch, int channel)
      : notes_{PhaseLog::place(watch.phases, watch.ticket, channel)} {
    notes_.begin(watch.ticket);
  }
  TimedRun(const TimedRun&) = delete;
  TimedRun& operator=(const TimedRun&) = delete;
  CCL_HD ~TimedRun() { notes_.end(); }

 private:
  PhaseNotes<typename Group::Memory> notes_;
};
template <class Group>
class TimedRun<Group, false> {
 public:
  CCL_HD TimedRun(const AbortWatch&, int) {}
};

/// Body of one launch over wires: one group works on one channel. `Proxied`: see `WirePrims`.
template <class Op, class Algo, class Proto, int Align, class R, bool Proxied = true>
struct WireBody {
  using Work = WireWork<R>;
  /// Maximum lanes of a GPU block. A tree's all-reduce holds the ends of eight wires in registers,
  /// and half the lanes have twice the registers each. So does a head that sends to seven ranks.
  static constexpr int max_lanes = (Op::reduces && Algo::wires > 2) || Algo::wires > 6 ? 256 : 512;
  template <LaneGroup Group>
  static constexpr Index min_slice_bytes = WireFormat<Group, Proto, R, Align>::min_slice_bytes;
  const Work& work;

  template <LaneGroup Group>
  CCL_HD void operator()(Group group, int channel) const {
    const TimedRun<Group> timed{work.watch, channel};
    WireContext<Op, Group, Proto, R, Align, Work, Proxied> context{group, work, channel};
    if constexpr (WireFormat<Group, Proto, R, Align>::contiguous && lands_ahead<Algo>) {
      context.template list_landings<Algo>();
    }
    Algo::run(Op{}, context);
    if constexpr (WireFormat<Group, Proto, R, Align>::contiguous && lends_to_end<Algo>) {
      context.await_lent();
    }
  }
};

/// Body of an exchange of CPU lanes whose wires are connected on demand.
template <class Op, class Algo, class Proto>
struct OnDemandBody {
  const OnDemandWork& work;
  template <LaneGroup Group>
  CCL_HD void operator()(Group group, int channel) const {
    const TimedRun<Group> timed{work.watch, channel};
    WireContext<Op, Group, Proto, Bytes, 1, OnDemandWork> context{group, work, channel};
    Algo::run(Op{}, context);
  }
};

/// Body of an exchange whose messages are kernel arguments. Group n serves channel n modulo the
/// number of channels.
template <class Op, class Algo, class Proto, int Align>
struct ExchangeBody {
  using Work = ExchangeWork;
  static constexpr int max_lanes = 512;
  template <LaneGroup Group>
  static constexpr Index min_slice_bytes = WireFormat<Group, Proto, Bytes, Align>::min_slice_bytes;
  const Work& work;

  template <LaneGroup Group>
  CCL_HD void operator()(Group group, int n) const {
    const int server = n / work.channels;
    WireContext<Op, Group, Proto, Bytes, Align, Work> context{group, work,
                                                              n - server * work.channels, server};
    Algo::run(Op{}, context);
  }
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
