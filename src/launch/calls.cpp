#include <ccl/detail/runtime/connections.hpp>
#include <ccl/types/operations.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>

#include "comm/state.hpp"

namespace ccl::detail {
namespace {
/// Which of a rank's compositions a call is of, in the words of this one, which has the same ones.
/// Of one operation there may be several of one name: their numbers tell them apart.
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
}  // namespace

Result<void> Connections::ready() const {
  return Access::state(comm_)->ready();
}

CallInfo Connections::recorded(CallInfo info) {
  CommState& state = *Access::state(comm_);
  info.composition = number_;
  info.call = calls_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (!state.observers.recorder() || !state.status.ok()) return info;
  Operation op;
  name_.copy(op.what, sizeof op.what - 1);
  std::memcpy(op.type, info.type, sizeof op.type);
  std::memcpy(op.redop, info.redop, sizeof op.redop);
  op.count = info.count;
  op.root = info.root;
  op.composition = number_;
  op.call = info.call;
  const auto [ticket, number] =
      state.observers.recorder()->note(op, std::string_view{info.what} == SendRecv::name);
  info.ticket = ticket;
  info.number = number;
  return info;
}

std::string Connections::this_call() const {
  const bool numbered = info_.number != 0;
  return fmt::format("{}, {} {}", name_, numbered ? "operation" : "call",
                     numbered ? info_.number : info_.call);
}

Result<void> Connections::begin(CallInfo info) {
  CommState& state = *Access::state(comm_);
  info_ = info;
  auto begun = begin_checked(info);
  if (!begun && state.observers.recorder()) state.observers.recorder()->ended(info.ticket, false);
  return begun;
}

Result<void> Connections::begin_checked(const CallInfo& info) {
  CommState& state = *Access::state(comm_);
  CCL_CHECK(state.ready());
  lane_failure_ = {};
  watch_.ticket = info.ticket;
  if (state.observers.recorder()) state.observers.recorder()->started(info.ticket);
  if (proxied_ && device_) {
    // What one channel carries is the first thread's; to wake the others takes as long as a hop.
    const bool several = info.count * Index{sizeof(Word)} > plan_.channel_bytes;
    several ? state.proxy.wake_polled() : state.proxy.wake();
  }
  // Of messages, only the ranks need call that have some: `same_messages` compares those.
  if (!state.limits.check || (!state.device.gpu && std::string_view{info.what} == SendRecv::name))
    return {};
  std::vector<CallInfo> all(comm_.ranks());
  all[comm_.rank()] = info;
  const auto lock = state.rendezvous.lock();
  CCL_CHECK(state.rendezvous.after_rendezvous(state.rendezvous.bootstrap()->all_gather(
      all.data(), Index{sizeof(CallInfo)}, state.limits.timeout_s, {"the check of", name_})));
  for (int r = 0; r < comm_.ranks(); ++r) {
    const CallInfo& other = all[r];
    const auto differs = [&](const char* what, const auto& theirs, const auto& mine) {
      return state.rendezvous.disagree(
          fmt::format("{} of {} differs: rank {} gave {}, rank {} gave {} (all ranks must make the "
                      "same calls in the same order)",
                      what, this_call(), r, theirs, comm_.rank(), mine),
          r);
    };
    using Text = std::string_view;
    if (other.composition != info.composition) {
      return state.rendezvous.disagree(
          fmt::format("rank {} calls {} where rank {} calls {} (all ranks must make the same calls "
                      "in the same order)",
                      r, name_of(state, other), comm_.rank(), name_of(state, info)),
          r);
    }
    if (other.call != info.call) return differs("number", other.call, info.call);
    if (Text{other.type} != Text{info.type}) return differs("type", other.type, info.type);
    if (Text{other.redop} != Text{info.redop}) return differs("reduction", other.redop, info.redop);
    if (other.count != info.count) return differs("count", other.count, info.count);
    if (other.root != info.root) return differs("root", other.root, info.root);
    if (other.place != info.place) return differs("place in a window", other.place, info.place);
  }
  return {};
}

bool Connections::same_messages(std::string_view op, const std::vector<std::vector<Message>>& sends,
                                const std::vector<std::vector<Message>>& recvs) {
  CommState& state = *Access::state(comm_);
  if (!state.limits.check || (op != SendRecv::name && op != AllToAllV::name)) return true;
  const int me = comm_.rank();
  const std::uint64_t tag = std::uint64_t{1} << 62 | std::uint64_t(number_);
  // An empty message of a group need not have another end.
  const auto counts = [&](const Message& m) { return m.bytes > 0 || op == AllToAllV::name; };
  const auto compare = [&]() -> Result<void> {
    for (int p = 0; p < comm_.ranks(); ++p) {
      for (const Message& m : sends[std::size_t(p)]) {
        if (!counts(m)) continue;
        CCL_CHECK(state.rendezvous.bootstrap()->send(p, tag, &m.bytes, Index{sizeof m.bytes}));
      }
    }
    for (int p = 0; p < comm_.ranks(); ++p) {
      for (const Message& m : recvs[std::size_t(p)]) {
        if (!counts(m)) continue;
        CCL_TRY(const auto said,
                state.rendezvous.bootstrap()->recv(p, tag, state.limits.timeout_s));
        Index theirs = 0;
        std::memcpy(&theirs, said.data(), std::min(said.size(), sizeof theirs));
        if (theirs == m.bytes) continue;
        Error error{Errc::mismatch,
                    fmt::format("a message of {} differs: rank {} sends {} bytes, rank {} takes {} "
                                "(both ends must give the same count and type)",
                                this_call(), p, theirs, me, m.bytes)};
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

void Connections::help() {
  if (proxied_) helper_.emplace(Access::state(comm_)->proxy, unproxied_);
}

void Connections::give_up(const CallInfo& info) {
  CommState& state = *Access::state(comm_);
  if (state.observers.recorder()) state.observers.recorder()->ended(info.ticket, false);
}

Result<void> Connections::finish() {
  CommState& state = *Access::state(comm_);
  helper_.reset();
  if (lane_failure_.peer != 0 && lane_failure_.why == LaneFailure::no_wire) {
    state.rendezvous.fail_all(no_wire(int(lane_failure_.peer) - 1, lane_failure_.sends != 0));
  } else if (lane_failure_.peer != 0) {
    const int peer = int(lane_failure_.peer) - 1;
    Error error{
        Errc::timed_out,
        fmt::format(
            "no progress for {} s in {} (it waits for rank {} on {} at step "
            "{}); look there, or raise CCL_TIMEOUT",
            state.limits.timeout_s, this_call(), peer,
            peer < int(state.identity.peers().size()) ? state.identity.peers()[peer].host : "?",
            lane_failure_.step)};
    error.peer = peer;
    state.rendezvous.fail_all(state.observers.overdue(std::move(error)));
  }
  auto well = state.status.result();
  if (state.observers.recorder()) state.observers.recorder()->ended(info_.ticket, well.has_value());
  if (!well) {
    Error error = std::move(well).error();
    if (error.what.find(info_.what) == std::string::npos) {
      error.what += fmt::format(" [while in {}]", this_call());
    }
    return fail(state.annotate(std::move(error)));
  }
  return {};
}

}  // namespace ccl::detail
