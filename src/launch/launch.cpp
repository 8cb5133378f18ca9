#include <ccl/detail/exchange/message_list.hpp>
#include <ccl/detail/launch/errors.hpp>
#include <ccl/detail/launch/launch.hpp>
#include <ccl/detail/wire/work.hpp>
#include <ccl/transport/collnet.hpp>
#include <ccl/types/operations.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/call_bounds.hpp"
#include "base/exceptions.hpp"
#include "comm/lane_checks.hpp"
#include "comm/observe/failure_dump.hpp"
#include "comm/observe/nvtx.hpp"
#include "comm/part_rules.hpp"
#include "comm/peer_waits.hpp"
#include "comm/state.hpp"
#include "launch/failed_launch.hpp"

namespace ccl::detail {
namespace {
/// Records the end of a call, if the communicator keeps records.
void record_end(CommState& state, const CallInfo& call, bool well) {
  const auto recorder = state.observers.recorder();
  CallCounters& counters = state.observers.counters();
  if (recorder) recorder->ended(call.ticket, well, counters.end_tally(call.counter));
  if (!well) counters.failed(call.counter);
}

/// Returns the name of the composition that another rank called. Both ranks have the same
/// compositions. The number distinguishes compositions of one name.
std::string name_of(CommState& state, const CallInfo& call) {
  const auto lock = state.observers.lock_compositions();
  for (const Connections* one : state.observers.compositions()) {
    if (one->number() == call.composition) {
      return fmt::format("{}, number {} of those created", one->name(), call.composition + 1);
    }
  }
  return fmt::format("{}, number {} of those created, which this rank has dropped", call.what,
                     call.composition + 1);
}
Error given_host_stream(const Connections& connections) {
  const CommState& state = *Access::state(connections.comm());
  return state.annotate(
      {Errc::invalid_argument, fmt::format("{} was given a HostStream (the communicator is on CUDA "
                                           "device {}); give it a cudaStream_t",
                                           connections.name(), state.identity.config().device)});
}
}  // namespace

QueuedCall::QueuedCall(std::shared_ptr<Connections> of, const CallInfo& info)
    : connections_{std::move(of)}, info_{info} {
  CommState& state = *Access::state(connections_->comm());
  info_.composition = connections_->number();
  info_.call = connections_->calls().next_call();
  if (!state.observers.recorder() || !state.status.ok()) return;
  const int ranks = state.identity.ranks();
  const auto [cell, tally] =
      state.observers.counters().call(connections_->operation(), info_, ranks);
  info_.counter = cell;
  Operation op;
  put_name(op.what, connections_->name());
  std::memcpy(op.type, info.type, sizeof op.type);
  std::memcpy(op.redop, info.redop, sizeof op.redop);
  op.count = info.count;
  op.root = info.root;
  op.composition = info_.composition;
  op.call = info_.call;
  const auto [ticket, number] =
      state.observers.recorder()->note(op, std::string_view{info.what} == SendRecv::name, tally);
  info_.ticket = ticket;
  info_.number = number;
}

void QueuedCall::record_failure() const {
  record_end(*Access::state(connections_->comm()), info_, false);
}

Launch::Launch(Launch&& other) noexcept
    : call_{std::move(other.call_)},
      lock_{std::move(other.lock_)},
      target_{other.target_},
      queued_{other.queued_},
      shown_{std::exchange(other.shown_, false)},
      finished_{std::exchange(other.finished_, true)} {}

Launch::~Launch() {
  if (shown_) end_nvtx_range();
  if (finished_) return;
  CommState& state = *Access::state(connections().comm());
  if (queued_) (void)completes([&] { leave_order(); });
  record_end(state, call_.info(), false);
}

/// Marks the stream, because some of the launch may be queued: what it uses must outlive that.
void Launch::leave_order() {
  GpuOrder& order = *Access::state(connections().comm())->device.order;
  if (order.captures(target_.stream)) {
    order.give_up();
  } else {
    (void)order.after(target_.stream);
  }
}

Result<Launch> Launch::begin(QueuedCall&& call, Lock lock) {
  if (lock.mutex() == nullptr) lock = Lock{call.connections().calls().mutex};
  Result<Launch> launch{cuda::std::in_place, Key{}, std::move(call), std::move(lock)};
  if (auto done = launch->start(); !done) launch = fail(std::move(done).error());
  return launch;
}

Result<void> Launch::start() {
  Connections& connections = call_.connections();
  CommState& state = *Access::state(connections.comm());
  const CallInfo& info = call_.info();
  CallState& calls = connections.calls();
  calls.latest = info;
  shown_ = begin_nvtx_range(connections, info);
  CCL_CHECK(state.ready());
  calls.lane_failure = {};
  calls.watch.ticket = info.ticket;
  if (state.observers.recorder()) state.observers.recorder()->started(info.ticket);
  if (connections.tables().proxied && state.device.gpu) {
    // The proxy's first thread carries one channel. Waking the others takes as long as a hop.
    const bool several = info.count * Index{sizeof(Word)} > connections.plan().channel_bytes;
    several ? state.proxy.wake_polled() : state.proxy.wake();
  }
  return state.limits.check ? check() : Result<void>{};
}

Result<void> Launch::check() const {
  CommState& state = *Access::state(connections().comm());
  const CallInfo& info = call_.info();
  // A rank without messages need not call an exchange: `same_messages` compares those.
  if (std::string_view{info.what} == SendRecv::name) return {};
  const Communicator& comm = connections().comm();
  std::vector<CallInfo> all(comm.ranks());
  all[comm.rank()] = info;
  const auto lock = state.rendezvous.lock();
  CCL_CHECK(state.rendezvous.after_rendezvous(state.rendezvous.bootstrap()->all_gather(
      all.data(), Index{sizeof(CallInfo)}, state.limits.timeout_s,
      {"the check of", connections().name()})));
  CCL_CHECK(check_gathered(state, all, [ranks = comm.ranks()](const CallInfo& of, int) {
    return wrong_call(of, ranks);
  }));
  for (int r = 0; r < comm.ranks(); ++r) {
    const CallInfo& other = all[r];
    const auto differs = [&](const char* what, const auto& theirs, const auto& mine) {
      return state.rendezvous.disagree(
          fmt::format("{} of {} differs: rank {} gave {}, rank {} gave {} (all ranks must make the "
                      "same calls in the same order)",
                      what, call_text(connections()), r, theirs, comm.rank(), mine),
          r);
    };
    using Text = std::string_view;
    if (other.composition != info.composition) {
      return state.rendezvous.disagree(
          fmt::format("rank {} calls {} where rank {} calls {} (all ranks must make the same calls "
                      "in the same order)",
                      r, name_of(state, other), comm.rank(), name_of(state, info)),
          r);
    }
    if (other.call != info.call) return differs("number", other.call, info.call);
    if (Text{other.type} != Text{info.type}) return differs("type", other.type, info.type);
    if (other.element_bytes != info.element_bytes) {
      return differs("size of an element", other.element_bytes, info.element_bytes);
    }
    if (Text{other.redop} != Text{info.redop}) return differs("reduction", other.redop, info.redop);
    if (other.place != info.place) {
      return differs("receive buffer", place_text(other.place), place_text(info.place));
    }
    if (other.count != info.count) return differs("count", other.count, info.count);
    if (other.root != info.root) return differs("root", other.root, info.root);
  }
  return {};
}

Result<void> Launch::on_device(Stream stream, std::shared_ptr<void> keep) {
  CommState& state = *Access::state(connections().comm());
  GpuOrder& order = *state.device.order;
  auto done =
      keep ? order.before(stream.cuda(), keep) : order.before(stream.cuda(), call_.connections_);
  if (!done) {
    return fail_queueing(stream.cuda(), std::move(done).error());
  }
  queued_ = true;
  if (order.is_capturing() && state.observers.recorder()) {
    state.observers.recorder()->keep(call_.info().ticket);
  }
  target_ = {state.identity.config().device, stream.cuda(),
             CallBounds::at_most(state.device.max_blocks), state.device.order->share(),
             connections().plan().channel_bytes};
  return {};
}

Result<Launch> Launch::begin_on_device(std::shared_ptr<Connections> of, const CallInfo& info,
                                       Stream stream, Lock lock, std::shared_ptr<void> keep) {
  if (stream.host() != nullptr) return fail(given_host_stream(*of));
  if (Access::state(of->comm())->limits.check) CCL_CHECK(check_may_wait());
  // Before the call gets its number, so that calls are numbered as they are launched.
  if (lock.mutex() == nullptr) lock = Lock{of->calls().mutex};
  return begin_queued({std::move(of), info}, stream, std::move(lock), std::move(keep));
}

// Has one return, so that the launch is made where the caller keeps it.
Result<Launch> Launch::begin_queued(QueuedCall&& call, Stream stream, Lock lock,
                                    std::shared_ptr<void> keep) {
  Result<Launch> launch = begin(std::move(call), std::move(lock));
  if (launch) {
    if (auto done = launch->on_device(stream, std::move(keep)); !done) {
      launch = fail(std::move(done).error());
    }
  }
  return launch;
}

void Launch::run_lanes(void (*lanes)(void* of), void* of) {
  const WireTables& tables = connections().tables();
  if (!tables.proxied) return lanes(of);
  Access::state(connections().comm())->proxy.run_lanes(lanes, of, tables.unproxied);
}

bool Launch::same_messages(std::string_view op, const MessageList& sends,
                           const MessageList& recvs) {
  CommState& state = *Access::state(connections().comm());
  if (!state.limits.check || (op != SendRecv::name && op != AllToAllV::name)) return true;
  const int me = connections().comm().rank();
  const std::uint64_t tag = std::uint64_t{1} << 62 | std::uint64_t(connections().number());
  // An empty message of a group needs no other end.
  const auto counts = [&](const Message& m) { return m.bytes > 0 || op == AllToAllV::name; };
  const auto compare = [&]() -> Result<void> {
    for (int p = 0; p < connections().comm().ranks(); ++p) {
      for (const Message& m : sends[std::size_t(p)]) {
        if (!counts(m)) continue;
        CCL_CHECK(state.rendezvous.bootstrap()->send(p, tag, &m.bytes, Index{sizeof m.bytes},
                                                     state.limits.timeout_s));
      }
    }
    for (int p = 0; p < connections().comm().ranks(); ++p) {
      for (const Message& m : recvs[std::size_t(p)]) {
        if (!counts(m)) continue;
        CCL_TRY(const auto said,
                state.rendezvous.bootstrap()->recv(p, tag, state.limits.timeout_s));
        Index theirs = 0;
        if (said.size() != sizeof theirs) {
          return state.rendezvous.break_off(
              p, fmt::format("length of a count is {}, not {}", said.size(), sizeof theirs));
        }
        std::memcpy(&theirs, said.data(), sizeof theirs);
        if (theirs == m.bytes) continue;
        Error error{Errc::mismatch,
                    fmt::format("a message of {} differs: rank {} sends {} bytes, rank {} takes {} "
                                "(both ends must give the same count and type)",
                                call_text(connections()), p, theirs, me, m.bytes)};
        error.peer = p;
        return fail(std::move(error));
      }
    }
    return {};
  };
  const Result<void> same = state.rendezvous.after_rendezvous(compare());
  if (!same) state.rendezvous.fail_all(same.error());
  return same.has_value();
}

Result<void> Launch::end_lanes() {
  CommState& state = *Access::state(connections().comm());
  CallState& calls = connections().calls();
  const LaneFailure& found = calls.lane_failure;
  if (found.peer != 0 && found.why == LaneFailure::no_wire) {
    state.rendezvous.fail_all(no_wire(connections(), int(found.peer) - 1, found.sends != 0));
  } else if (found.peer != 0 && found.why == LaneFailure::unread) {
    state.rendezvous.fail_all(unread_memory(connections(), found));
  } else if (found.peer != 0 && is_of_check(found.why)) {
    state.rendezvous.fail_all(state.annotate(error_of_check(found, connections().comm().rank())));
  } else if (found.peer != 0) {
    const int peer = int(found.peer) - 1;
    Error error{
        Errc::timed_out,
        fmt::format("no progress for {} s in {} (it waits for {} at step {}); look there, or raise "
                    "CCL_TIMEOUT",
                    state.limits.timeout_s, call_text(connections()), state.awaited(peer),
                    found.step)};
    error.peer = peer;
    state.rendezvous.fail_all(state.observers.overdue(std::move(error)));
  }
  auto well = state.status.result();
  if (well) return {};
  Error error = std::move(well).error();
  if (error.code == Errc::timed_out && !error.transport.empty()) {
    error = state.rendezvous.late_connection(std::move(error));
  }
  // No wire's other end has seen it.
  if (error.transport == CollNetTransport::name) state.rendezvous.fail_all(error);
  if (error.what.find(call_.info().what) == std::string::npos) {
    error.what += fmt::format(" [while in {}]", call_text(connections()));
  }
  dump_failure(state);  // while the record says that the operation runs
  return fail(state.annotate(std::move(error)));
}

Result<void> Launch::finish(int cuda_code) {
  if (connections().on_device()) return end_on_device(cuda_code);
  auto well = end_lanes();
  record_end(*Access::state(connections().comm()), call_.info(), well.has_value());
  finished_ = true;
  return well;
}

Result<void> Launch::end_on_device(int cuda_code) {
  CommState& state = *Access::state(connections().comm());
  GpuOrder& order = *state.device.order;
  const bool queued = std::exchange(queued_, false);
  if (cuda_code != 0) {
    Error error = cuda_failed(connections(), cuda_code);
    if (!queued) return fail(std::move(error));
    if (cuda_code < 0 || order.captures(target_.stream)) {  // before any kernel ran, on all ranks
      order.give_up();
      return fail(std::move(error));
    }
    (void)order.after(target_.stream);  // some of several kernels may run
    return fail(fail_peers(state, target_.stream, std::move(error)));
  }
  finished_ = true;        // the GPU reports how far its launches are
  if (!queued) return {};  // another call's launch runs this one
  if (auto done = order.after(target_.stream); !done) {
    return fail_queueing(target_.stream, std::move(done).error());
  }
  return {};
}

Result<void> Launch::fail_queueing(CUstream_st* stream, Error error) const {
  error.what += fmt::format(" [while in {}]", call_text(connections()));
  return fail(fail_peers(*Access::state(connections().comm()), stream, std::move(error)));
}

Result<void> Launch::give_up(Error error) {
  if (std::exchange(queued_, false)) {
    (void)Access::state(connections().comm())->device.order->after(target_.stream);
  }
  return fail_queueing(target_.stream, std::move(error));
}

Result<void> check_on_device(const Connections& connections, Stream stream) {
  if (stream.host() == nullptr) return {};
  return fail(given_host_stream(connections));
}

Result<void> check_on_host(const Connections& connections, Stream stream) {
  CommState& state = *Access::state(connections.comm());
  CCL_CHECK(state.ready());  // before the flight recorder lists the call
  if (stream.cuda() != nullptr) return fail(not_on_device(connections));
  return {};
}

Result<void> fail_overflow(const Connections& connections, const LaneFailure& found) {
  CommState& state = *Access::state(connections.comm());
  Error error = state.annotate(state.overflow(found));
  state.rendezvous.fail_all(error);
  return fail(std::move(error));
}

}  // namespace ccl::detail
