#pragma once

#include <ccl/detail/peer/direct_registry.hpp>
#include <ccl/detail/peer/launch.hpp>

#include <memory>

namespace ccl::detail {

/// Returns the work of a launch that reads the peers' buffers, and offers them this rank's.
template <class Op, class R>
DirectWork<R> direct_work(const Connections& connections, const CallArguments<R>& given) {
  DirectWork<R> work{given.reduction};
  const PeerMemory& memory = connections.peer_memory();
  work.peers = memory.view();
  work.epoch = memory.epoch();
  work.layout = given.layout;
  work.layout.split = given.layout.split || Op::rooted;
  work.root = given.root;
  work.input = given.input;
  work.output = given.output;
  work.table = memory.registry_table();
  work.watch = connections.calls().watch;
  constexpr Index size = sizeof(typename R::Type);
  const int ranks = connections.comm().ranks();
  const Index bytes = given.layout.count * size;
  work.where_input = memory.remote_buffer(static_cast<const char*>(given.input),
                                          work.layout.split ? bytes : bytes * ranks);
  using Shares = DirectShares<Op, typename R::Type>;
  const bool is_target = Shares::sums_for_all || connections.comm().rank() == given.root;
  if (Shares::sums_travel && is_target) {
    work.where_output = memory.remote_buffer(static_cast<const char*>(given.output), bytes);
  }
  work.max_rings = Shares::max_rings(work.peers, connections.max_blocks());
  return work;
}

/// Launches a reduction that reads the peers' buffers.
template <class Op, class Algo, class Proto, class R>
Result<void> launch_direct(const std::shared_ptr<Connections>& connections, const CallInfo& info,
                           const CallArguments<R>& given, Stream stream) {
  const auto kernel = DirectKernels<Op, Algo, Proto, R>::launch;
  if (kernel == nullptr) return fail(no_device_code(*connections));
  if (given.layout.count == 0) return check_ready(connections->comm());
  using Shares = DirectShares<Op, typename R::Type>;
  const PeerView& view = connections->peer_memory().view();
  if (Shares::max_rings(view, connections->max_blocks()) == 0) {
    return fail(scratch_too_small(*connections));
  }
  CCL_TRY(Launch && launch, Launch::begin_on_device(connections, info, stream));
  const DirectWork<R> work = direct_work<Op>(*connections, given);
  return launch.finish(kernel(work, launch.target()));
}

}  // namespace ccl::detail
