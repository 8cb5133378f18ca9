#pragma once

#include <ccl/detail/wire/call_word.hpp>
#include <ccl/detail/wire/context.hpp>
#include <ccl/element/element.hpp>
#include <ccl/types/macros.hpp>

#include <cuda/std/type_traits>
#include <cuda/std/utility>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// True if elements of `T` can be NaN.
template <class T>
CCL_HD constexpr bool can_be_nan() {
  if constexpr (has_data_type<T>) {
    return !Integer<T>;
  } else {
    return false;
  }
}
/// By the bits, because a program may be compiled with -ffast-math.
template <class T>
CCL_HD bool is_nan(const T& value) {
  const auto wide = Element<T>::widen(value);
  if constexpr (sizeof wide == sizeof(Word)) {
    Word bits = 0;
    __builtin_memcpy(&bits, &wide, sizeof bits);
    return (bits & ~Word{0} >> 1) > Word{0x7ff} << 52;
  } else {
    static_assert(sizeof wide == sizeof(unsigned));
    unsigned bits = 0;
    __builtin_memcpy(&bits, &wide, sizeof bits);
    return (bits & 0x7fff'ffffu) > 0x7f80'0000u;
  }
}

/// Steps of an algorithm that look for NaN in this rank's own data before they send or combine it.
/// After a NaN, no step of the launch's channel does anything.
template <class Inner, LaneGroup Group, class Work>
class NanCheckedPrims {
  using R = cuda::std::remove_cvref_t<decltype(Work::reduction)>;
  using T = typename R::Type;
  using Memory = typename Group::Memory;

 public:
  // An aggregate, because steps cannot be moved.
  Inner inner;
  Group group;
  const Work& work;
  bool& stopped;  // of all steps of the context
  bool own_is_input = true;

  CCL_HD void own_is_output() {
    inner.own_is_output();
    own_is_input = false;  // the output holds what was looked at as input
  }
  CCL_HD void lend() { inner.lend(); }
  CCL_HD void lend_on() { inner.lend_on(); }
  CCL_HD void only_sends() { inner.only_sends(); }
  CCL_HD void send(const Part& part) {
    if (may_use(part)) inner.send(part);
  }
  CCL_HD void copy_send(const Part& part) {
    if (may_use(part)) inner.copy_send(part);
  }
  CCL_HD void recv(const Part& part) {
    if (!stopped) inner.recv(part);
  }
  CCL_HD void recv_copy_send(const Part& part) {
    if (!stopped) inner.recv_copy_send(part);
  }
  CCL_HD void recv_reduce_send(const Part& part) {
    if (may_use(part)) inner.recv_reduce_send(part);
  }
  CCL_HD void recv_reduce_copy(const Part& part) {
    if (may_use(part)) inner.recv_reduce_copy(part);
  }
  CCL_HD void recv_reduce_copy_send(const Part& part) {
    if (may_use(part)) inner.recv_reduce_copy_send(part);
  }
  CCL_HD void recv_reduce_finish_send(const Part& part) {
    if (may_use(part)) inner.recv_reduce_finish_send(part);
  }
  CCL_HD void recv_finish(const Part& part) {
    if (!stopped) inner.recv_finish(part);
  }
  CCL_HD void recv_finish_copy_send(const Part& part) {
    if (!stopped) inner.recv_finish_copy_send(part);
  }
  CCL_HD void window(int host) { inner.window(host); }
  CCL_HD void send_none(const Part& part) {
    if (!stopped) inner.send_none(part);
  }
  CCL_HD bool can_send() { return stopped || inner.can_send(); }
  CCL_HD bool can_recv() { return stopped || inner.can_recv(); }
  CCL_HD bool failed() const { return stopped || inner.failed(); }
  CCL_HD Word step() const { return inner.step(); }

 private:
  CCL_HD const T* input() const { return static_cast<const T*>(work.input); }
  CCL_HD bool has_nan(Index begin, Index end) const {
    bool found = false;
    for (Index i = begin + group.rank(); i < end; i += Group::width) {
      found = found | is_nan(input()[i]);
    }
    return !group.all(!found);
  }
  CCL_HD bool may_use(const Part& part) {
    if (stopped) return false;
    if (own_is_input && has_nan(part.in, part.in + part.count)) {
      stopped = true;
      report(part);
    }
    return !stopped;
  }
  /// True if results replace the input, so that what lies before a part may be one.
  CCL_HD bool is_in_place(Index end) const {
    const T* const out = static_cast<const T*>(work.output);
    return out >= input() && out < input() + end;
  }
  /// Reports the first NaN of the input; in place, the first of `part`, which has one.
  CCL_HD_APART void report(const Part& part) const {
    constexpr Index run = Index{Group::width} * 64;
    const Index end = part.in + part.count;
    Index at = is_in_place(end) ? part.in : 0;
    while (at + run < end && !has_nan(at, at + run)) at += run;
    if (group.rank() != 0) return;
    while (at + 1 < end && !is_nan(input()[at])) ++at;
    report_check<Memory>(work.watch, LaneFailure::not_a_number, work.rank, Word(at),
                         CallWord::of<R>(work.layout.count, CallWord::no_root));
  }
};

/// Context of an algorithm whose reductions look for NaN.
template <class Inner>
class NanCheckedContext : public Inner {
  using Group = decltype(cuda::std::declval<Inner>().group());
  using Work = cuda::std::remove_cvref_t<decltype(cuda::std::declval<Inner>().work())>;

 public:
  explicit CCL_HD NanCheckedContext(const Inner& inner) : Inner{inner} {}
  template <int In, int Out>
  CCL_HD auto prims(const Peers<In>& ins, const Peers<Out>& outs) const {
    using Steps = decltype(Inner::template prims<In, Out>(ins, outs));
    return NanCheckedPrims<Steps, Group, Work>{Inner::template prims<In, Out>(ins, outs),
                                               this->group(), this->work(), stopped_};
  }
  template <int In>
  CCL_HD auto to_network(const Peers<In>& ins) const {
    using Steps = decltype(Inner::template to_network<In>(ins));
    return NanCheckedPrims<Steps, Group, Work>{Inner::template to_network<In>(ins), this->group(),
                                               this->work(), stopped_};
  }
  template <int Out>
  CCL_HD auto from_network(const Peers<Out>& outs) const {
    using Steps = decltype(Inner::template from_network<Out>(outs));
    return NanCheckedPrims<Steps, Group, Work>{Inner::template from_network<Out>(outs),
                                               this->group(), this->work(), stopped_};
  }

 private:
  mutable bool stopped_ = false;
};
template <class Inner>
inline constexpr bool has_lanes<NanCheckedContext<Inner>> = has_lanes<Inner>;

/// Returns the work of a launch for messages of bytes over the same wires.
template <class R>
CCL_HD WireWork<Bytes> bytes_of(const WireWork<R>& work) {
  WireWork<Bytes> bytes{work, Bytes{}};
  bytes.watch = work.watch;
  return bytes;
}

template <class R>
CCL_HD bool has_wire(const WireWork<R>& work, const Wire* wires, int channel, int peer) {
  return peer != work.rank && wires[work.row(channel) + work.column(peer)].slots != nullptr;
}

/// Sends the word of the call over each wire of the channel, in a packet of its own ahead of the
/// data, and compares those that arrive. Both ends have the same wires, which no call connects, and
/// all send before they wait. Returns false if a word differs, or if none has come.
template <class Op, LaneGroup Group, class Proto, class R, int Align, bool Proxied>
CCL_HD_APART bool same_calls(Group group, const WireWork<R>& work, int channel) {
  using Memory = typename Group::Memory;
  using Steps = WirePrims<Group, Proto, Bytes, Align, 1, 1, Proxied>;
  const WireWork<Bytes> bytes = bytes_of(work);
  const Word mine = CallWord::of<R>(work.layout.count, Op::rooted ? work.root : CallWord::no_root);
  alignas(16) Word words[2] = {mine, 0};  // each lane has its own, and holds its part of a packet
  const Part part{0, 0, Index{sizeof words}};
  for (int p = 0; p < work.ranks; ++p) {
    if (!has_wire(work, work.out, channel, p)) continue;
    Steps steps{group, bytes, channel, Peers<1>{{-1}}, Peers<1>{{p}}};
    steps.bind(reinterpret_cast<char*>(words));
    steps.send(part);
  }
  bool same = true;
  for (int p = 0; p < work.ranks && same; ++p) {
    if (!has_wire(work, work.in, channel, p)) continue;
    words[0] = mine;
    bool came = true;
    {
      Steps steps{group, bytes, channel, Peers<1>{{p}}, Peers<1>{{-1}}};
      steps.bind(reinterpret_cast<char*>(words));
      steps.recv(part);
      came = !steps.failed();
    }
    const bool equal = !came || words[0] == mine;
    if (!equal) report_check<Memory>(work.watch, LaneFailure::other_call, p, words[0], mine);
    same = group.all(came && equal);
  }
  return same;
}
template <class Op, class Group, class Proto, class R, int Align, bool Proxied>
CCL_HD bool same_calls(
    const WireContext<Op, Group, Proto, R, Align, WireWork<R>, Proxied>& context) {
  return same_calls<Op, Group, Proto, R, Align, Proxied>(context.group(), context.work(),
                                                         context.channel());
}

}  // namespace ccl::detail

CCL_ANY_SPACE_END
