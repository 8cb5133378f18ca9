#pragma once

#include <ccl/detail/lanes/phases.hpp>
#include <ccl/detail/wire/context.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Notes that the steps made before it have opened their wires.
template <class Notes>
struct Opened {
  explicit CCL_HD Opened(Notes& notes) { notes.ready(); }
};

/// Steps of an algorithm that note when they have received. The steps themselves are unchanged.
template <class Inner, class Notes>
class TracedPrims {
 public:
  // An aggregate, because steps cannot be moved.
  Inner inner;   // waits for the launch before
  Notes& notes;  // of all steps of the context
  Opened<Notes> opened{notes};

  CCL_HD void own_is_output() { inner.own_is_output(); }
  CCL_HD void lend() { inner.lend(); }
  CCL_HD void lend_on() { inner.lend_on(); }
  CCL_HD void only_sends() { inner.only_sends(); }
  CCL_HD void send(const Part& part) { inner.send(part); }
  CCL_HD void copy_send(const Part& part) { inner.copy_send(part); }
  CCL_HD void recv(const Part& part) {
    inner.recv(part);
    notes.received();
  }
  CCL_HD void recv_copy_send(const Part& part) {
    inner.recv_copy_send(part);
    notes.received();
  }
  CCL_HD void recv_reduce_send(const Part& part) {
    inner.recv_reduce_send(part);
    notes.received();
  }
  CCL_HD void recv_reduce_copy(const Part& part) {
    inner.recv_reduce_copy(part);
    notes.received();
  }
  CCL_HD void recv_reduce_copy_send(const Part& part) {
    inner.recv_reduce_copy_send(part);
    notes.received();
  }
  CCL_HD void recv_reduce_finish_send(const Part& part) {
    inner.recv_reduce_finish_send(part);
    notes.received();
  }
  CCL_HD void recv_finish(const Part& part) {
    inner.recv_finish(part);
    notes.received();
  }
  CCL_HD void recv_finish_copy_send(const Part& part) {
    inner.recv_finish_copy_send(part);
    notes.received();
  }
  CCL_HD void window(int host) { inner.window(host); }
  CCL_HD void send_none(const Part& part) { inner.send_none(part); }
  CCL_HD bool can_send() { return inner.can_send(); }
  CCL_HD bool can_recv() { return inner.can_recv(); }
  CCL_HD bool failed() const { return inner.failed(); }
  CCL_HD Word step() const { return inner.step(); }
};

/// Context of an algorithm whose steps note times.
template <class Inner, class Notes>
class TracedContext : public Inner {
 public:
  CCL_HD TracedContext(const Inner& inner, Notes& notes) : Inner{inner}, notes_{notes} {}
  template <int In, int Out>
  CCL_HD auto prims(const Peers<In>& ins, const Peers<Out>& outs) const {
    using Steps = decltype(Inner::template prims<In, Out>(ins, outs));
    return TracedPrims<Steps, Notes>{Inner::template prims<In, Out>(ins, outs), notes_};
  }
  template <int In>
  CCL_HD auto to_network(const Peers<In>& ins) const {
    using Steps = decltype(Inner::template to_network<In>(ins));
    return TracedPrims<Steps, Notes>{Inner::template to_network<In>(ins), notes_};
  }
  template <int Out>
  CCL_HD auto from_network(const Peers<Out>& outs) const {
    using Steps = decltype(Inner::template from_network<Out>(outs));
    return TracedPrims<Steps, Notes>{Inner::template from_network<Out>(outs), notes_};
  }

 private:
  Notes& notes_;
};
template <class Inner, class Notes>
inline constexpr bool has_lanes<TracedContext<Inner, Notes>> = has_lanes<Inner>;

}  // namespace ccl::detail

CCL_ANY_SPACE_END
