#include "connect/idle_pairs.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/runtime/pair_use.hpp>

#include <fmt/format.h>

#include <utility>

#include "comm/state.hpp"
#include "connect/idle_closer.hpp"

namespace ccl::detail {

using Kind = IdleMessage::Kind;

IdlePairs::IdlePairs(Connections& of, double idle_s)
    : of_{of},
      idle_{std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(idle_s))},
      pairs_(std::size_t(of.comm().ranks())) {}

IdlePairs::~IdlePairs() {
  if (IdleCloser* const closer = IdleCloser::of(*Access::state(of_.comm()))) closer->remove(this);
}

int IdlePairs::composition() const {
  return of_.number();
}

void IdlePairs::keep(int peer, bool sends, Connection connection) {
  const std::lock_guard lock{mutex_};
  (sends ? at(peer).out : at(peer).in) = std::move(connection);
}

Result<void> IdlePairs::await_answer(std::unique_lock<std::mutex>& lock, int peer) {
  CommState& state = *Access::state(of_.comm());
  const double limit_s = state.limits.timeout_s;
  const auto begin = Clock::now();
  while (at(peer).state == State::closing) {
    CCL_CHECK(state.status.result());  // an abort notifies nobody
    const std::chrono::duration<double> gone = Clock::now() - begin;
    if (limit_s > 0 && gone.count() > limit_s) {
      lock.unlock();
      Error error = state.annotate(
          {Errc::timed_out,
           fmt::format("no progress for {} s in {}: rank {} on {} has not answered that the idle "
                       "connection to it may close (its process is stopped or busy); look there, "
                       "or raise CCL_TIMEOUT",
                       limit_s, of_.name(), peer, state.identity.peers()[std::size_t(peer)].host)});
      error.peer = peer;
      error = state.rendezvous.without_answer(std::move(error));
      if (state.status.ok()) state.rendezvous.fail_all(error);
      return fail(std::move(error));
    }
    changed_.wait_for(lock, std::chrono::milliseconds{50});
  }
  return {};
}

Result<void> IdlePairs::begin_use(const std::vector<int>& from, const std::vector<int>& to) {
  std::unique_lock lock{mutex_};
  for (const auto* const peers : {&from, &to}) {
    for (const int peer : *peers) {
      // Pairs that are held do not begin to close while this thread waits for another one.
      if (auto well = await_answer(lock, peer); !well) {
        if (!lock) lock.lock();
        for (Pair& pair : pairs_) pair.in_use = false;
        return well;
      }
      at(peer).in_use = true;
    }
  }
  return {};
}

void IdlePairs::end_use(const std::vector<int>& from, const std::vector<int>& to) {
  const std::lock_guard lock{mutex_};
  for (const auto* const peers : {&from, &to}) {
    for (const int peer : *peers) {
      at(peer).in_use = false;
      at(peer).used = true;
    }
  }
}

IdlePairs::Steps IdlePairs::steps_of(const Pair& pair) {
  Steps steps;
  if (pair.out) {
    for (const Wire& wire : pair.out->wires) steps.sent += HostMemory::load_relaxed(wire.sent);
  }
  if (pair.in) {
    for (const Wire& wire : pair.in->wires) {
      steps.received += HostMemory::load_relaxed(wire.received);
    }
  }
  return steps;
}

Word IdlePairs::edges_of(int peer, const Pair& pair) const {
  const bool lower = of_.comm().rank() < peer;
  const bool up = (lower ? pair.out : pair.in).has_value();
  const bool down = (lower ? pair.in : pair.out).has_value();
  return (up ? IdleMessage::up : 0) | (down ? IdleMessage::down : 0);
}

void IdlePairs::hide(int peer, Pair& pair) {
  if (pair.in) of_.remove_wires(peer, false);
  if (pair.out) of_.remove_wires(peer, true);
}

void IdlePairs::show(int peer, Pair& pair) {
  if (pair.in) of_.enter_wires(peer, false, *pair.in);
  if (pair.out) of_.enter_wires(peer, true, *pair.out);
}

void IdlePairs::look() {
  const int me = of_.comm().rank(), ranks = of_.comm().ranks();
  const auto now = Clock::now();
  for (int peer = me + 1; peer < ranks; ++peer) {
    IdleMessage request;
    {
      const std::lock_guard lock{mutex_};
      Pair& pair = at(peer);
      if (!pair.connected() || pair.in_use || pair.state == State::closing) continue;
      if (std::exchange(pair.used, false)) pair.since = now;
      if (now - pair.since < idle_) continue;
      pair.state = State::closing;
      const Steps steps = steps_of(pair);
      request = {Kind::request,        of_.number(), ++pair.requests,
                 edges_of(peer, pair), steps.sent,   steps.received};
      hide(peer, pair);
    }
    send(peer, request);
  }
}

void IdlePairs::take(int peer, const IdleMessage& message) {
  message.kind == Kind::request ? answer(peer, message) : take_answer(peer, message);
}

void IdlePairs::answer(int peer, const IdleMessage& request) {
  bool agrees = false;
  {
    const std::lock_guard lock{mutex_};
    Pair& pair = at(peer);
    const Steps steps = steps_of(pair);
    agrees = !pair.in_use && request.edges == edges_of(peer, pair) &&
             request.sent == steps.received && request.received == steps.sent;
    if (agrees) {
      pair.state = State::closing;
      hide(peer, pair);
    }
  }
  if (agrees) destroy(peer);
  IdleMessage answer = request;
  answer.kind = agrees ? Kind::closed : Kind::refused;
  send(peer, answer);
}

void IdlePairs::take_answer(int peer, const IdleMessage& answer) {
  std::unique_lock lock{mutex_};
  Pair& pair = at(peer);
  if (pair.state != State::closing || answer.number != pair.requests) {
    lock.unlock();
    (void)Access::state(of_.comm())
        ->rendezvous.break_off(
            peer, fmt::format("it answers request {} to close idle connections of {}, which this "
                              "rank has not made",
                              answer.number, of_.name()));
    return;
  }
  if (answer.kind == Kind::closed) {
    lock.unlock();
    return destroy(peer);
  }
  show(peer, pair);
  pair.state = State::open;
  pair.since = Clock::now();
  changed_.notify_all();
}

// Neither the wires nor the pair are in use, so only the end of the connections needs the time.
void IdlePairs::destroy(int peer) {
  Pair closed;
  {
    const std::lock_guard lock{mutex_};
    std::swap(closed.in, at(peer).in);
    std::swap(closed.out, at(peer).out);
  }
  const int count = int(closed.in.has_value()) + int(closed.out.has_value());
  if (closed.in) of_.count(*closed.in, false, -1);
  if (closed.out) of_.count(*closed.out, true, -1);
  log_info(LogPart::init, "{}: {} idle connection{} with rank {} closed", of_.name(), count,
           count == 1 ? "" : "s", peer);
  closed = {};  // before a call may make the pair's connections anew
  const std::lock_guard lock{mutex_};
  at(peer).state = State::open;
  changed_.notify_all();
}

PairUse::PairUse(Connections& of, const std::vector<int>& from, const std::vector<int>& to)
    : of_{of}, from_{from}, to_{to} {
  if (IdlePairs* const pairs = of_.idle_pairs()) begun_ = pairs->begin_use(from_, to_).has_value();
}

PairUse::~PairUse() {
  IdlePairs* const pairs = begun_ ? of_.idle_pairs() : nullptr;
  if (pairs != nullptr) pairs->end_use(from_, to_);
}

void IdlePairs::send(int peer, const IdleMessage& message) {
  // If it fails, the communicator has failed or ends: calls that wait for an answer see that.
  (void)Access::state(of_.comm())
      ->rendezvous.bootstrap()
      ->send(peer, idle_tag, &message, Index{sizeof message});
}

}  // namespace ccl::detail
