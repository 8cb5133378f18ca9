#pragma once

#include <ccl/detail/launch/call_arguments.hpp>
#include <ccl/detail/launch/errors.hpp>
#include <ccl/detail/launch/launch.hpp>
#include <ccl/detail/peer/registry.hpp>
#include <ccl/detail/peer/work.hpp>
#include <ccl/detail/runtime/connections.hpp>

#include <memory>
#include <utility>

namespace ccl::detail {

/// Returns the work of a launch over peer memory.
template <class Op, class Algo, class R>
PeerWork<R> peer_work(const Connections& connections, const CallArguments<R>& given) {
  PeerWork<R> work{given.reduction};
  work.peers = connections.peer_memory().view();
  work.epoch = connections.peer_memory().epoch();
  work.layout = given.layout;
  work.layout.split = (given.layout.split || Op::rooted) && Algo::splits;
  work.root = given.root;
  work.input = given.input;
  work.output = given.output;
  work.watch = connections.calls().watch;
  return work;
}

/// `kernels` launches the kernels of the composition with the work that `work_of` returns.
/// `max_elements` is that of `PeerKernels`.
template <class R>
Result<void> launch_over_peers(const std::shared_ptr<Connections>& connections,
                               const CallInfo& info, const CallArguments<R>& given, Stream stream,
                               int (*kernels)(const PeerWork<R>&, const DeviceTarget&),
                               Index (*max_elements)(const PeerWork<R>&),
                               PeerWork<R> (*work_of)(const Connections&,
                                                      const CallArguments<R>&)) {
  if (kernels == nullptr) return fail(no_device_code(*connections));
  // An empty message has no launch, because it has no tile whose flags could count it.
  if (given.layout.count == 0) return check_ready(connections->comm());
  Launch::Lock lock{connections->calls().mutex};
  PeerWork<R> work = work_of(*connections, given);
  if (max_elements(work) < 1) {
    return fail(scratch_too_small(*connections));  // a launch that has begun would fail all ranks
  }
  CCL_TRY(Launch && launch, Launch::begin_on_device(connections, info, stream, std::move(lock)));
  work.watch = connections->calls().watch;  // with the ticket of this call
  return launch.finish(kernels(work, launch.target()));
}

}  // namespace ccl::detail
