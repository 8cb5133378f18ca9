#include <ccl/algo/rank_counts.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/detail/launch/errors.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/wire/dry_run.hpp>
#include <ccl/transport/shm.hpp>

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "comm/state.hpp"

namespace ccl::detail {

std::string call_text(const Connections& connections) {
  const CallInfo& call = connections.calls().latest;
  const bool numbered = call.number != 0;
  return fmt::format("{}, {} {}", connections.name(), numbered ? "operation" : "call",
                     numbered ? call.number : call.call);
}

Error no_peer_view(const Connections& connections) {
  return Access::state(connections.comm())
      ->annotate({Errc::not_supported,
                  fmt::format("{} addresses its peers' memory, which CPU ranks do not offer; "
                              "use Doubling, Ring or Tree",
                              connections.name())});
}

Error too_many_for_peer_view(const Connections& connections, int most) {
  const CommState& state = *Access::state(connections.comm());
  return state.annotate(
      {Errc::not_supported,
       fmt::format(
           "{} has no kernels for {} ranks (a rank addresses the memory of at most {}); {}use "
           "Ring or Tree",
           connections.name(), state.identity.ranks(), most,
           state.identity.ranks() > most ? "" : "list that number in its RankCounts, or ")});
}

Error copies_across_hosts(const Connections& connections) {
  const CommState& state = *Access::state(connections.comm());
  return state.annotate(
      {Errc::not_supported,
       fmt::format("{} signals through memory of one host (the ranks are on {} hosts of one NVLink "
                   "domain); use Direct",
                   connections.name(), state.identity.hosts())});
}

Error no_device_code(const Connections& connections) {
  const CommState& state = *Access::state(connections.comm());
  return state.annotate({Errc::no_device_code,
                         fmt::format("{} has no kernel for this element type and reduction in this "
                                     "program (the communicator is on CUDA device {}); include "
                                     "<ccl/ccl.cuh> where it is called, and compile that with nvcc",
                                     connections.name(), state.identity.config().device)});
}

Error no_switch_code(const Connections& connections) {
  const CommState& state = *Access::state(connections.comm());
  return state.annotate(
      {Errc::no_device_code,
       fmt::format(
           "{} has no kernel with the instructions of NVLink multicast in this program (the "
           "communicator is on CUDA device {}); include <ccl/nvls.cuh> where it is called, "
           "and compile that with nvcc for sm_90 or later",
           connections.name(), state.identity.config().device)});
}

Error not_on_device(const Connections& connections) {
  return Access::state(connections.comm())
      ->annotate(
          {Errc::invalid_argument,
           fmt::format(
               "{} was given a CUDA stream (the communicator is on CPUs); give it a HostStream "
               "or none, or set Config::device",
               connections.name())});
}

Error no_counts(const Connections& connections) {
  return Access::state(connections.comm())
      ->annotate({Errc::not_supported,
                  fmt::format(
                      "{} takes no counts that lie in memory here; use OneShot with LL128 on GPUs, "
                      "Pairwise on CPU ranks",
                      connections.name())});
}

Error row_too_long(const Connections& connections, Index row_bytes) {
  return Access::state(connections.comm())
      ->annotate(
          {Errc::not_supported,
           fmt::format(
               "{} cannot move rows of {} bytes (not one fits into the scratch of a rank); give "
               "it a Plan with larger slots, or shorter rows",
               connections.name(), row_bytes)});
}

Error no_wire(const Connections& connections, int peer, bool sends) {
  const char* const way = sends ? "to" : "from";
  // False while the composition is created.
  const bool called = connections.calls().latest.call != 0;
  Error error{called ? Errc::invalid_usage : Errc::invalid_argument,
              peer == connections.comm().rank()
                  ? fmt::format("{} uses a wire {} rank {} itself (a rank has none to itself); let "
                                "copy_send or recv_reduce_copy store what stays",
                                called ? call_text(connections) : connections.name(), way, peer)
                  : fmt::format("{} uses a wire {} rank {} that was not connected (its `peers` did "
                                "not name it); call positions.{}({}) there",
                                called ? call_text(connections) : connections.name(), way, peer,
                                way, peer)};
  error.peer = peer;
  return Access::state(connections.comm())->annotate(std::move(error));
}

Error unread_memory(const Connections& connections, const LaneFailure& found) {
  const int peer = int(found.peer) - 1, os_code = int(found.count);
  const std::string call = call_text(connections);
  Error error{Errc::system, {}};
  if (os_code == EMSGSIZE) {
    error = {Errc::mismatch,
             fmt::format("rank {} sends another number of bytes in {} than this rank receives (at "
                         "step {}); give the same counts and type on both",
                         peer, call, found.step)};
  } else if (os_code == ESRCH || os_code == ECANCELED) {
    error = {Errc::peer_lost,
             fmt::format("memory that rank {} sends in {} is gone ({}); see its own error", peer,
                         call, os_code == ESRCH ? "its process has ended" : "its call has failed")};
  } else {
    error.what = fmt::format(
        "memory that rank {} sends in {} cannot be read ({}); CCL_CMA_ENABLE=0 does without", peer,
        call, std::strerror(os_code));
    error.os_code = os_code;
  }
  error.peer = peer;
  error.transport = ShmTransport::name;
  return Access::state(connections.comm())->annotate(std::move(error));
}

Error no_such_peer(const Connections& connections, int peer, const char* way) {
  return Access::state(connections.comm())
      ->annotate(
          {Errc::invalid_argument,
           fmt::format(
               "{} has no rank {}, which its algorithm's `peers` names (ranks are 0 to {}); call "
               "positions.{}() for those alone",
               connections.name(), peer, connections.comm().ranks() - 1, way)});
}

Error no_such_share(const Connections& connections, const DryRunResult& found) {
  if (found.wrong == DryRunResult::shares) {
    return Access::state(connections.comm())
        ->annotate(
            {Errc::invalid_argument,
             fmt::format("{} cannot cut a message into {} shares (its algorithm's `run` asks for "
                         "context.chunks({})); ask for 1 or more",
                         connections.name(), found.given, found.given)});
  }
  return Access::state(connections.comm())
      ->annotate(
          {Errc::invalid_argument,
           fmt::format(
               "{} has no share {} (its algorithm's `run` names it on rank {}, and shares are 0 "
               "to {}); name those, or ask for more by context.chunks()",
               connections.name(), found.given, connections.comm().rank(), found.most - 1)});
}

Error no_such_step(const Connections& connections, const DryRunResult& found) {
  const auto text = [&]() -> std::string {
    switch (found.wrong) {
      case DryRunResult::gap:
        return fmt::format(
            "has rank {} after a -1 in context.prims() (the ranks come first, then "
            "-1 for each wire that is not there); put it first",
            found.given);
      case DryRunResult::from_many:
        return fmt::format(
            "receives over {} wires in a step that does not reduce (only one of "
            "them can be the result); take prims of one wire in for each, or a "
            "step that reduces",
            found.given);
      case DryRunResult::from_none:
        return "receives in a step of prims that have no wire in (all ranks given for it are -1); "
               "take send or copy_send there";
      default:
        return "sends in a step of prims whose only wire out is -1; take recv or recv_reduce_copy "
               "there, or prims of two wires out, which may both be -1";
    }
  };
  const CommState& state = *Access::state(connections.comm());
  return state.annotate(
      {Errc::invalid_argument, fmt::format("{}: its algorithm's `run` on rank {} {}",
                                           connections.name(), connections.comm().rank(), text())});
}

Error slices_too_small(const Connections& connections, Index needed) {
  return Access::state(connections.comm())
      ->annotate(
          {Errc::over_budget,
           fmt::format("{} has slices of {} bytes (its lanes move {} bytes of this element type at "
                       "once); raise CCL_MEMORY_BUDGET, CCL_BUFFSIZE or the plan's slot_bytes",
                       connections.name(),
                       connections.plan().slot_bytes * connections.plan().slice_steps, needed)});
}

Error scratch_too_small(const Connections& connections) {
  return Access::state(connections.comm())
      ->annotate(
          {Errc::over_budget,
           fmt::format(
               "{} has {} bytes of scratch on each rank (its {} ranks want room for a piece of "
               "each other's messages); raise CCL_MEMORY_BUDGET or the plan's slot_bytes",
               connections.name(), 2 * connections.plan().slot_bytes, connections.comm().ranks())});
}

Error cuda_failed(const Connections& connections, int code) {
  if (code < 0) return slices_too_small(connections, -Index{code});
  const bool called = connections.calls().latest.call != 0;  // false for a rank alone
  const auto what = fmt::format("launch {}", called ? call_text(connections) : connections.name());
  return Access::state(connections.comm())->annotate(cuda_error(CUresult(code), what));
}

Error not_in_window(const Connections& connections, const void* data) {
  const CommState& state = *Access::state(connections.comm());
  if (data == nullptr) {
    return state.annotate(
        {Errc::invalid_argument,
         fmt::format("{} moves one message to a rank and one from a rank, each time (it tells "
                     "peers nothing of others); use CopyEngine or Direct",
                     connections.name())});
  }
  return state.annotate(
      {Errc::invalid_argument,
       fmt::format("{} was given a receive buffer at {} that is in no window (peers "
                   "write straight into it); register it with Window::create, or "
                   "use CopyEngine",
                   connections.name(), data)});
}

}  // namespace ccl::detail
