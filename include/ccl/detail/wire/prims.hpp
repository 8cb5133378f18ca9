#pragma once

#include <ccl/algo/peers.hpp>
#include <ccl/detail/lanes/phases.hpp>
#include <ccl/detail/numeric/network_step.hpp>
#include <ccl/detail/wire/ends.hpp>
#include <ccl/detail/wire/format.hpp>
#include <ccl/detail/wire/landings.hpp>
#include <ccl/detail/wire/plain_slices.hpp>
#include <ccl/detail/wire/posts.hpp>
#include <ccl/detail/wire/tiles.hpp>
#include <ccl/detail/wire/waits.hpp>
#include <ccl/detail/wire/work.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Step that stores what it receives. It is named here, outside of templates: g++ 12 fails with -g
/// if a template is the first to name it (internal compiler error in is_base_type).
using ReceiveStep = FixedStep<StepParts{.recv = true, .out = true}>;

/// Steps of an algorithm on whole parts, on up to MaxIn incoming and MaxOut outgoing wires of one
/// channel. A part crosses in slices of `slice_steps` slots; a step forwards a slice while the next
/// is on its way. Sources are added in the order own, in 0, in 1, ...
///
/// `Proxied`: a proxy may move the bytes of some of the wires. False lets the compiler drop the
/// conditions of such wires: after a divergent branch it does not know that lanes are together
/// again, which made LL128's ring half as long again.
///
/// `Network`: the wire out leads to a network that reduces.
///
/// With `any_align`, all steps of a group of GPU lanes are one function, which is told at run time
/// what a step does. That is a fifth of the code, for wires and buffers that are slower anyway.
template <LaneGroup Group, Protocol<Group> Proto, class R, int Align, int MaxIn, int MaxOut,
          bool Proxied = true, bool Network = false>
class WirePrims {
  static_assert(!Network || (Proxied && MaxOut == 1 && !Proto::carries_flags));
  using Format = WireFormat<Group, Proto, R, Align>;
  using Memory = typename Group::Memory;
  using Do = StepParts;
  static constexpr bool contiguous = Format::contiguous;

 public:
  /// `landings`: the slices that the wire in brings, where parts may land ahead; else null.
  CCL_HD WirePrims(Group group, const WireWork<R>& work, int channel, const Peers<MaxIn>& ins,
                   const Peers<MaxOut>& outs, Landings* landings = nullptr)
      : work_{work},
        row_{work.row(channel)},
        group_{group},
        lane_{group},
        data_{work.input, work.output},
        reduction_{work.reduction},
        ends_{{work.slice_steps}, {}, {}},
        plain_{work.in + row_, work.out + row_, work.column_of, ends_, landings, work.layout.count},
        notes_{PhaseLog::place(work.watch.phases, work.watch.ticket, channel)},
        spin_{work.watch} {
    group_.sync();  // every lane sees the counts that lane 0 left after earlier primitives
    CCL_UNROLL for (int i = 0; i < MaxIn; ++i) {
      const int peer = ins.rank[i];
      if (!has_wire<false>(peer)) continue;
      ends_.template open_in<Proto, Proxied, Format>(i, wire<false>(peer), peer);
    }
    CCL_UNROLL for (int o = 0; o < MaxOut; ++o) {
      const int peer = outs.rank[o];
      if (!has_wire<true>(peer)) continue;
      ends_.template open_out<Proto, Proxied, Format>(o, wire<true>(peer), peer);
    }
    look_at(work_);
    Memory::await_previous();  // what was read until here is constant; counts and data change
    if constexpr (reduces<R>) reduction_.load_here();
    ends_.template load_counts<Memory>();
    notes_.ready();
  }
  WirePrims(const WirePrims&) = delete;
  WirePrims& operator=(const WirePrims&) = delete;
  /// Leaves the counts for the next launch. After a failure they keep the state that it found.
  CCL_HD ~WirePrims() {
    if constexpr (contiguous) plain_.drain(spin_);
    group_.sync();  // every lane has read the counts, even in a launch without a step
    if (group_.rank() == 0 && !spin_.failed()) ends_.template store_counts<Memory>();
    notes_.merge();
  }

  /// Makes `data`, the user's buffer of one message, the place of all later parts.
  CCL_HD void bind(char* data) { data_ = {data, data}; }
  /// Makes the output stored so far this rank's own data in later steps.
  CCL_HD void own_is_output() { data_ = {data_.out(0), data_.out(0)}; }
  /// Permits proxies to read later sends from the user's memory, until these primitives end. Only
  /// answers of the receivers may change it. After `lend_on`, its holder waits (`ZeroCopy::lent`).
  CCL_HD void lend() { plain_.lend(false); }
  CCL_HD void lend_on() { plain_.lend(true); }
  /// Says that this rank receives nothing in the call, on any wire. `messages`: what it sends are
  /// messages, whose receivers may send before they receive.
  CCL_HD void only_sends(bool messages = false) { plain_.only_sends(messages); }

  CCL_HD void send(const Part& part) { step<Do{.own = true, .send = true}>(part); }
  CCL_HD void copy_send(const Part& part) {
    step<Do{.own = true, .out = true, .send = true}>(part);
  }
  CCL_HD void recv(const Part& part) { step<received>(part); }
  CCL_HD void recv_copy_send(const Part& part) {
    step<Do{.recv = true, .out = true, .send = true}>(part);
  }
  CCL_HD void recv_reduce_send(const Part& part) {
    step<Do{.recv = true, .own = true, .send = true}>(part);
  }
  CCL_HD void recv_reduce_copy(const Part& part) {
    step<Do{.recv = true, .own = true, .out = true, .post_op = true}>(part);
  }
  CCL_HD void recv_reduce_copy_send(const Part& part) {
    step<Do{.recv = true, .own = true, .out = true, .send = true, .post_op = true}>(part);
  }
  /// Sends the finished result on and stores nothing here.
  CCL_HD void recv_reduce_finish_send(const Part& part) {
    step<Do{.recv = true, .own = true, .send = true, .post_op = true}>(part);
  }
  /// Stores a whole sum that a network has made, finished.
  CCL_HD void recv_finish(const Part& part) { finish_step<false>(part); }
  CCL_HD void recv_finish_copy_send(const Part& part) { finish_step<true>(part); }

  /// Makes later parts those of one host: of an all-gather, that host alone sends their data to the
  /// network, and of a reduce-scatter it alone gets their sums.
  CCL_HD void window(int host) {
    constexpr NetworkMove move = reduces<R> ? NetworkMove::reduce_scatter : NetworkMove::all_gather;
    window_ = NetworkStep::window(move, host);
  }
  /// Takes part in the all-gather of a part that another host sends.
  CCL_HD void send_none(const Part& part) {
    if (lacks_wire()) return;
    constexpr FixedStep<Do{.send = true}> none;
    for (Index at = 0; at < part.count; at += ends_.shape.slice) {
      const Index left = part.count - at;
      await_slice<Proto, Proxied>(none, group_, lane_, ends_, spin_);
      close(none, left < ends_.shape.slice ? int(left) : ends_.shape.slice);
    }
  }

  /// True if a step of one slice on the first wire would not wait. The same on all lanes.
  CCL_HD bool can_send() {
    if (lacks_wire()) return true;  // and the step does nothing
    OutEnd& out = ends_.out[0];
    if (!out.has_credit(ends_.shape)) out.drained = Memory::load_credit(out.credit);
    return group_.all(out.has_credit(ends_.shape));
  }
  CCL_HD bool can_recv() {
    if (lacks_wire()) return true;
    const InEnd& in = ends_.in[0];
    if (in.counted) return group_.all(group_.rank() != 0 || in.has_slice<Memory>(ends_.shape));
    return group_.all(lane_.has_arrived(lane_.load(in.slot(ends_.shape)), in.received + 1));
  }
  /// Prepares for `can_recv` of the next `n` elements, at most a slice, of a message of which
  /// `left` elements are missing. If they arrive late enough to land in place, `recv` moves
  /// nothing.
  void expect(Index n, Index left) {
    if (lacks_wire()) return;
    plain_.land(data_, left);
    plain_.template offer<ReceiveStep>(data_, 0, n);
    plain_.want(n);
  }
  /// Receives the next `n` elements of the message, which have arrived, and of which `left` are
  /// missing.
  void recv_expected(Index n, Index left) {
    if (!lacks_wire()) plain_.land_behind(data_, left);
    plain_.follow(left - n);
    recv({0, 0, n});
  }
  /// True if the latest slice was lent to the receiver's lanes.
  bool has_lent() const { return plain_.has_lent() && !failed(); }
  /// True if any slice was lent, also to proxies.
  bool has_lent_any() const { return plain_.has_lent_any(); }
  CCL_HD bool failed() const { return spin_.failed(); }
  /// Number of steps done on the first wire.
  CCL_HD Word step() const { return ends_.steps_done(); }

 private:
  static constexpr Do received{.recv = true, .out = true};
  CCL_HD Word tag() const {
    if constexpr (Network && reduces<R>) return window_ | network_tag_of(reduction_);
    return Network ? window_ : 0;
  }
  using Plain = cuda::std::conditional_t<contiguous, PlainSlices<Memory, R, Align, MaxIn, MaxOut>,
                                         NoPlainSlices>;

  /// False if the algorithm names no peer. One CPU lane also fails without a connected wire: an
  /// algorithm of the user's own may not have asked for it. Kernels do not check.
  template <bool Sends>
  CCL_HD bool has_wire(int peer) {
    if (Group::width > 1 || peer < 0) return peer >= 0;
    if (peer < work_.ranks && wire<Sends>(peer).slots) return true;
    lacks_wire_ = true;
    spin_.give_up_without_wire(peer, Sends);
    return false;
  }
  template <bool Sends>
  CCL_HD const Wire& wire(int peer) const {
    return (Sends ? work_.out : work_.in)[row_ + work_.column(peer)];
  }
  /// No step may use a wire then: steps assume that a single wire is open.
  CCL_HD bool lacks_wire() const { return Group::width == 1 && lacks_wire_; }
  static constexpr bool steps_at_run_time = Align == any_align && !contiguous;
  template <StepParts Step>
  CCL_HD void step(const Part& part) {
    if (lacks_wire()) return;
    if constexpr (steps_at_run_time) {
      step_apart(part, Step);
    } else {
      run_step(part, FixedStep<Step>{});
    }
  }
  template <bool Sends>
  CCL_HD void finish_step(const Part& part) {
    if (lacks_wire()) return;
    constexpr Do whole{.recv = true, .out = true, .send = Sends, .post_op = completes<R>()};
    run_step(part, FixedStep<whole>{});
  }
  CCL_HD_APART void step_apart(const Part& part, StepParts step) { run_step(part, step); }
  template <class Step>
  CCL_HD void run_step(const Part& part, Step step) {
    using Count = cuda::std::conditional_t<contiguous, Index, int>;  // a chunk in a GPU's slots
    const auto count = Count(part.count);
    for (Count at = 0; at < count; at += ends_.shape.slice) {
      const int n = count - at < ends_.shape.slice ? int(count - at) : ends_.shape.slice;
      if constexpr (contiguous) {
        plain_.template offer<Step>(data_, part.out + at, n);
        if constexpr (Step::recv) {
          plain_.land_first(data_);
          plain_.want(n);
        }
      }
      const bool ready = await_slice<Proto, Proxied>(step, group_, lane_, ends_, spin_);
      if constexpr (contiguous) {
        if constexpr (Step::recv) {
          if (ready) plain_.land_next(data_);
        }
        if (ready) {
          plain_.template move<Step>(reduction_, data_, part.in + at, part.out + at, n,
                                     count - at - n, spin_);
        }
      } else if (ready || !Proto::carries_flags) {  // without flags, only slots need the credit
        TileMover<Group, Proto, R, Align, MaxIn, MaxOut> mover{group_,     lane_, data_,
                                                               reduction_, ends_, spin_};
        mover.move(step, part.in + at, part.out + at, n, ready);
      }
      close(step, n);
      if (step.recv) notes_.received();
    }
  }

  /// Publishes the filled slices and gives the drained ones back.
  template <class Step>
  CCL_HD void close(Step step, int n) {
    group_.sync();  // every lane has stored its tiles of the filled and read its of the drained
    const bool lead = group_.rank() == 0 && !spin_.failed();
    if (step.send) {
      CCL_UNROLL for (int o = 0; o < MaxOut; ++o) {
        if (!ends_.uses_out(o)) continue;
        if constexpr (contiguous) {
          if (plain_.post_short(o, n, lead)) continue;
        }
        OutEnd& out = ends_.out[o];
        if (Proxied && lead && out.proxied) {
          Word bytes = Format::wire_bytes(n);
          if constexpr (contiguous) bytes |= plain_.is_lent(o) ? ZeroCopy::mark : 0;
          write_sizes<contiguous>(wire<true>(out.peer), out, ends_.shape, bytes, tag());
        }
        post_slice<Memory, Proto, Proxied>(out, ends_.shape, lead);
      }
    }
    if (step.recv) {
      CCL_UNROLL for (int i = 0; i < MaxIn; ++i) {
        if (!ends_.uses_in(i)) continue;
        if constexpr (contiguous) {
          if (plain_.is_returned(i)) {
            ends_.in[i].received += unsigned(ends_.shape.steps);
            continue;
          }
        }
        return_slice<Memory>(ends_.in[i], ends_.shape, lead);
      }
    }
  }

  const WireWork<R>& work_;
  Index row_;  // of this channel among the wires
  Group group_;
  typename Format::Lane lane_;
  typename Format::Data data_;
  R reduction_;
  WireEnds<MaxIn, MaxOut> ends_;
  Plain plain_;
  Word window_ = 0;          // with `Network`: see `window`
  bool lacks_wire_ = false;  // of one CPU lane
  LaneNotes<Group> notes_;
  SpinWait<Memory> spin_;
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
