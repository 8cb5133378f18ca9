#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/wire/dry_run.hpp>
#include <ccl/detail/wire/work.hpp>

#include <fmt/format.h>

#include "comm/state.hpp"

namespace ccl::detail {

Error Connections::no_peer_view() const {
  const CommState& state = *Access::state(comm_);
  if (!state.device.gpu) {
    return state.annotate(
        {Errc::not_supported,
         fmt::format("{} addresses its peers' memory, which CPU ranks do not offer; "
                     "use Doubling, Ring or Tree",
                     name_)});
  }
  return state.annotate(
      {Errc::not_supported,
       fmt::format(
           "{} has no kernels for {} ranks; list that number in its RankCounts, or use Ring "
           "or Tree",
           name_, state.identity.ranks())});
}

Error Connections::no_device_code() const {
  const CommState& state = *Access::state(comm_);
  return state.annotate({Errc::no_device_code,
                         fmt::format("{} has no kernel for this element type and reduction in this "
                                     "program (the communicator is on CUDA device {}); include "
                                     "<ccl/ccl.cuh> where it is called, and compile that with nvcc",
                                     name_, state.identity.config().device)});
}

Error Connections::not_on_device() const {
  return Access::state(comm_)->annotate(
      {Errc::invalid_argument,
       fmt::format("{} was given a CUDA stream (the communicator is on CPUs); give it a HostStream "
                   "or none, or set Config::device",
                   name_)});
}

Error Connections::too_many_messages(int messages) const {
  return Access::state(comm_)->annotate(
      {Errc::not_supported,
       fmt::format("{} of {} messages with {} ranks does not fit into a launch (at most {} "
                   "messages, {} ranks); split it",
                   name_, messages, comm_.ranks(), ExchangeWork::max_messages,
                   ExchangeWork::max_ranks)});
}

Error Connections::no_counts() const {
  return Access::state(comm_)->annotate(
      {Errc::not_supported,
       fmt::format("{} takes no counts that lie in memory here; use OneShot with LL128 on GPUs, "
                   "Pairwise on CPU ranks",
                   name_)});
}

Error Connections::row_too_long(Index row_bytes) const {
  return Access::state(comm_)->annotate(
      {Errc::not_supported,
       fmt::format(
           "{} cannot move rows of {} bytes (not one fits into the scratch of a rank); give "
           "it a Plan with larger slots, or shorter rows",
           name_, row_bytes)});
}

Error Connections::no_wire(int peer, bool sends) const {
  const char* const way = sends ? "to" : "from";
  const bool called = info_.call != 0;  // else it is about to be created
  Error error{called ? Errc::invalid_usage : Errc::invalid_argument,
              peer == comm_.rank()
                  ? fmt::format("{} uses a wire {} rank {} itself (a rank has none to itself); let "
                                "copy_send or recv_reduce_copy store what stays",
                                called ? this_call() : name_, way, peer)
                  : fmt::format("{} uses a wire {} rank {} that was not connected (its `peers` did "
                                "not name it); say seats.{}({}) there",
                                called ? this_call() : name_, way, peer, way, peer)};
  error.peer = peer;
  return Access::state(comm_)->annotate(std::move(error));
}

Error Connections::no_such_peer(int peer, const char* way) const {
  return Access::state(comm_)->annotate(
      {Errc::invalid_argument,
       fmt::format(
           "{} has no rank {}, which its algorithm's `peers` names (ranks are 0 to {}); say "
           "seats.{}() of those alone",
           name_, peer, comm_.ranks() - 1, way)});
}

Error Connections::no_such_share(const DryRunResult& found) const {
  if (found.wrong == DryRunResult::shares) {
    return Access::state(comm_)->annotate(
        {Errc::invalid_argument,
         fmt::format("{} cannot cut a message into {} shares (its algorithm's `run` asks for "
                     "context.chunks({})); ask for 1 or more",
                     name_, found.given, found.given)});
  }
  return Access::state(comm_)->annotate(
      {Errc::invalid_argument,
       fmt::format(
           "{} has no share {} (its algorithm's `run` names it on rank {}, and shares are 0 "
           "to {}); name those, or ask for more by context.chunks()",
           name_, found.given, comm_.rank(), found.most - 1)});
}

Result<void> Connections::overflow(const LaneFailure& found) {
  CommState& state = *Access::state(comm_);
  Error error = state.annotate(state.overflow(found));
  give_up(info_);
  state.rendezvous.fail_all(error);
  return fail(std::move(error));
}

Error Connections::slices_too_small(Index needed) const {
  return Access::state(comm_)->annotate(
      {Errc::over_budget,
       fmt::format("{} has slices of {} bytes (its lanes move {} bytes of this element type at "
                   "once); raise CCL_MEMORY_BUDGET, CCL_BUFFSIZE or the plan's slot_bytes",
                   name_, plan_.slot_bytes * plan_.slice_steps, needed)});
}

Error Connections::scratch_too_small() const {
  return Access::state(comm_)->annotate(
      {Errc::over_budget,
       fmt::format("{} has {} bytes of scratch on each rank (its {} ranks want room for a piece of "
                   "each other's messages); raise CCL_MEMORY_BUDGET or the plan's slot_bytes",
                   name_, 2 * plan_.slot_bytes, comm_.ranks())});
}

Error Connections::cuda_failed(int code) const {
  if (code < 0) return slices_too_small(-Index{code});
  return Access::state(comm_)->annotate(
      cuda_error(CUresult(code), fmt::format("launch {}", name_)));
}

}  // namespace ccl::detail
