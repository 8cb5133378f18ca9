#pragma once

#include <ccl/algo/traits.hpp>
#include <ccl/detail/peer/work.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/wire/work.hpp>

namespace ccl::detail {

/// What a call over wires or over a peer view is given, checked. The buffers are the user's.
template <class R>
struct CallArguments {
  R reduction;
  const void* input;
  void* output;
  Layout layout;
  int root;

  /// A launch is told of them, but for the reduction.
  template <class Work>
  void tell(Work& work) const {
    work.input = input;
    work.output = output;
    work.layout = layout;
    work.root = root;
  }
};

/// What a launch over wires is told on a GPU, where the trees of all roots lie one after another.
template <class Op, class Algo, class R>
WireWork<R> wire_work_on_device(Connections& connections, const CallArguments<R>& given) {
  auto work = connections.work(given.reduction);
  if (wires_by_root<Op, Algo>) work.trees += Index{work.channels} * given.root;
  given.tell(work);
  return work;
}

/// What a launch over a peer view is told.
template <class Op, class Algo, class R>
PeerWork<R> peer_work(const Connections& connections, const CallArguments<R>& given) {
  PeerWork<R> work{given.reduction};
  work.peers = connections.peers();
  work.epoch = connections.epoch();
  work.watch = connections.watch();
  given.tell(work);
  work.layout.split = (work.layout.split || Op::rooted) && Algo::splits;
  return work;
}

}  // namespace ccl::detail
