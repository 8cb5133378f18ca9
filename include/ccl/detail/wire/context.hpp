#pragma once

#include <ccl/detail/wire/exchange_steps.hpp>
#include <ccl/detail/wire/prims.hpp>

namespace ccl::detail {

/// What an algorithm over wires is given: one channel of one rank's launch. Of an exchange, a
/// `server`'s part of it: one of several groups that share the channel's peers.
template <class Op, LaneGroup Group, Protocol<Group> Proto, class R, int Align,
          class Work = WireWork<R>, bool Proxied = true>
class WireContext {
  using Format = WireFormat<Group, Proto, R, Align>;

 public:
  CCL_HD WireContext(Group group, const Work& work, int channel, int server = 0)
      : group_{group}, work_{work}, channel_{channel}, server_{server} {}

  CCL_HD auto ring() const {
    if constexpr (Group::width > 1) {
      return NearRingPosition{work_.rings[channel_]};
    } else {
      return work_.rings[channel_];
    }
  }
  CCL_HD TreePosition tree() const { return work_.trees[channel_]; }
  CCL_HD int root() const { return work_.root; }
  CCL_HD int rank() const { return work_.rank; }
  CCL_HD int ranks() const { return work_.ranks; }

  /// This channel's rounds of the message, with a chunk for each of `shares` shares.
  CCL_HD Chunks chunks(int shares) const {
    constexpr Index grain = grain_elements();
    const Wire& any = any_wire();
    const Index slice = Format::slice_capacity(any, work_.slice_steps);
    const Index most = slice * (work_.chunk_steps / work_.slice_steps);
    Index chunk = most / grain * grain;
    Layout layout = work_.layout;
    layout.split = Op::cuts || (Op::rooted && shares != 1);  // now the compiler knows, too
    if constexpr (Group::width == 1) {
      // A GPU's slots hold fewer.
      if (chunk > Chunks::max_elements) chunk = Chunks::max_elements / grain * grain;
      // Where elements are long, chunks that keep alignment, which a CPU can do without, might not
      // fit the wire, and ranks send one before they receive.
      if (chunk == 0) return {layout, shares, channel_, work_.channels, most < 1 ? 1 : most, 1};
    }
    return {layout, shares, channel_, work_.channels, chunk < grain ? grain : chunk, grain};
  }
  /// Chunks that a wire holds: what may be sent before the peer receives.
  CCL_HD int window() const {
    const Wire& any = any_wire();
    const int chunks = any.slot_count / work_.chunk_steps;
    return chunks < 1 ? 1 : chunks;
  }
  /// The same of chunks of `count` elements, which take the slots that they fill.
  CCL_HD int window(Index count) const {
    const Wire& any = any_wire();
    const Index slices = div_up(count, Format::slice_capacity(any, work_.slice_steps));
    const int most = any.slot_count / work_.slice_steps;
    const int chunks = slices < 1 ? most : slices < most ? most / int(slices) : 1;
    return chunks;
  }
  template <int In, int Out>
  CCL_HD WirePrims<Group, Proto, R, Align, In, Out, Proxied> prims(const Peers<In>& ins,
                                                                   const Peers<Out>& outs) const {
    return {group_, work_, channel_, ins, outs};
  }
  CCL_HD Exchange<Group, Proto, R, Align, Work> exchange() const {
    return {group_, work_, channel_, server_};
  }

 private:
  /// Chunks begin at multiples of 128 bytes, so that aligned buffers stay aligned; of 16 bytes at
  /// least where a tile of many lanes holds fewer elements, as a chunk must fit the wire.
  CCL_HD static constexpr Index grain_elements() {
    constexpr Index most = Format::tile_elements;
    Index n = 128;
    while (n > 1 && (n / 2) * Index{sizeof(typename R::Type)} % 128 == 0) n /= 2;
    while (Group::width > 1 && n > most) n /= 2;
    return n;
  }
  /// All wires of a launch have one shape: any of them will do.
  CCL_HD const Wire& any_wire() const {
    const Wire* const in = work_.in + channel_ * work_.ranks;
    const Wire* const out = work_.out + channel_ * work_.ranks;
    for (int p = 0; p < work_.ranks; ++p) {
      if (in[p].slots != nullptr) return in[p];
    }
    for (int p = 0; p < work_.ranks; ++p) {
      if (out[p].slots != nullptr) return out[p];
    }
    return in[0];
  }

  Group group_;
  const Work& work_;
  int channel_, server_;
};

/// One launch over wires, as an executor runs it: one group works on one channel. `Proxied`: see
/// `WirePrims`.
template <class Op, class Algo, class Proto, int Align, class R, bool Proxied = true>
struct WireBody {
  using Work = WireWork<R>;
  /// Of one GPU block, at most. A tree's all-reduce holds the ends of eight wires in registers, and
  /// a block of half the lanes has twice as many for each.
  static constexpr int max_lanes = Op::reduces && Algo::wires > 2 ? 256 : 512;
  template <LaneGroup Group>
  static constexpr Index min_slice_bytes =
      WireFormat<Group, Proto, R, Align>::min_slice_bytes;
  const Work& work;

  template <LaneGroup Group>
  CCL_HD void operator()(Group group, int channel) const {
    WireContext<Op, Group, Proto, R, Align, Work, Proxied> context{group, work, channel};
    Algo::run(Op{}, context);
  }
};

/// One exchange of CPU lanes to which wires may still come.
template <class Op, class Algo, class Proto>
struct OnDemandBody {
  const OnDemandWork& work;
  template <LaneGroup Group>
  CCL_HD void operator()(Group group, int channel) const {
    WireContext<Op, Group, Proto, Bytes, 1, OnDemandWork> context{group, work, channel};
    Algo::run(Op{}, context);
  }
};

/// One launch of an exchange whose messages travel with it: group n serves channel n modulo their
/// number.
template <class Op, class Algo, class Proto, int Align>
struct ExchangeBody {
  using Work = ExchangeWork;
  static constexpr int max_lanes = 512;
  template <LaneGroup Group>
  static constexpr Index min_slice_bytes =
      WireFormat<Group, Proto, Bytes, Align>::min_slice_bytes;
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
