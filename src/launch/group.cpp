#include <ccl/detail/launch/in_flight.hpp>
#include <ccl/detail/runtime/guarded.hpp>
#include <ccl/group.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread.hpp"
#include "comm/state.hpp"

namespace ccl::detail {
namespace {

/// Divides the channels or scratch of one composition among its calls that may share the kernel.
/// Each gets its minimum, in order, until none is left; the rest is divided by size.
void share_out(std::span<const std::unique_ptr<RecordedCall>> calls) {
  const Index capacity = calls.front()->capacity();
  Index given = 0, bytes = 0;
  for (const auto& call : calls) {
    const Index wants = call->may_share ? call->wants() : 0;
    if (wants == 0) continue;
    if (given + wants > capacity) break;  // and no later call, because they run in order
    call->share.size = wants;
    given += wants;
    bytes += call->bytes();
  }
  Index begin = 0;
  for (const auto& call : calls) {
    if (call->share.size == 0) continue;
    if (bytes > 0) {
      call->share.size += Index(double(capacity - given) * (double(call->bytes()) / double(bytes)));
    }
    call->share.begin = begin;
    begin += call->share.size;
  }
}

/// Divides for all compositions, whose calls lie together. Each part of a launch needs a block.
void share_out(CallList& calls, const CommState& state) {
  const int max_blocks = state.device.max_blocks;
  const std::span all{calls};
  for (std::size_t i = 0, next = 0; i < all.size(); i = next) {
    for (next = i; next < all.size() && &all[next]->connections() == &all[i]->connections();)
      ++next;
    share_out(all.subspan(i, next - i));
  }
  Index parts = 0;
  bool all_share = Index(calls.size()) <= max_blocks;
  for (const auto& call : calls) {
    // It must not run ahead of a launch that precedes it on another rank: each of the two ranks
    // might wait for work that the other runs later. With checking on, it is a launch of its own on
    // all ranks: they compare calls in the order of launches, and its messages there.
    if (call->decides_alone() ? !all_share || state.limits.check
                              : call->share.size > 0 && ++parts > max_blocks) {
      call->share = {};
    }
    all_share &= call->share.size > 0;
  }
}
}  // namespace

Result<void> order_group(CallList& calls) {
  std::stable_sort(calls.begin(), calls.end(), [](const auto& a, const auto& b) {
    return a->connections().number() < b->connections().number();
  });
  const CommState& state = *Access::state(calls.front()->connections().comm());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Connections& connections = calls[i]->connections();
    if (Access::state(connections.comm()).get() != &state) {
      return fail(
          state.annotate({Errc::invalid_usage,
                          fmt::format("a group holds {} and {}, of two communicators; make a "
                                      "group for each",
                                      calls.front()->connections().name(), connections.name())}));
    }
  }
  if (state.device.gpu) share_out(calls, state);
  return {};
}

Result<void> check_alone(std::initializer_list<int> ranks) {
  const int most = std::max(ranks);
  if (most <= 1) return {};  // or moved-from handles, whose calls say so
  return fail(Errc::invalid_usage,
              fmt::format("a group holds calls of two communicators, of 1 and of {} ranks; make a "
                          "group for each",
                          most));
}

namespace {
/// Runs calls of different compositions at once. Calls that it does not begin stay queued.
Result<void> run_at_once(std::span<RecordedCall* const> calls) {
  std::vector<Launch> launches;
  launches.reserve(calls.size());
  for (RecordedCall* const call : calls) {
    CCL_TRY(Launch launch, Launch::begin(call->take()));
    launches.push_back(std::move(launch));
    CCL_CHECK(call->connect());
  }
  std::vector<Result<void>> results(calls.size());
  const Communicator& comm = calls.front()->connections().comm();
  const auto run = [&](std::size_t i) {
    results[i] = guarded(comm, [&] {
      calls[i]->run_on_host(launches[i]);
      return launches[i].finish();
    });
  };
  // Calls may wait for each other through other ranks, so each has a thread of its own.
  std::vector<std::thread> others;
  others.reserve(calls.size());
  for (std::size_t i = 1; i < calls.size(); ++i) {
    auto thread = own_thread(calls[i]->connections().name(), run, i);
    if (!thread) {
      Access::state(comm)->rendezvous.fail_all(std::move(thread).error());
      for (; i < calls.size(); ++i) {
        results[i] = without_exceptions([&] { return launches[i].finish(); });
      }
      break;
    }
    others.push_back(*std::move(thread));
  }
  run(0);
  for (auto& thread : others) thread.join();
  for (auto& result : results) CCL_CHECK(result);
  return {};
}

/// Runs calls in rounds: the n-th call of each composition.
Result<void> run_in_rounds(const CallList& calls) {
  std::vector<std::vector<RecordedCall*>> rounds;
  std::size_t round = 0;
  const Connections* before = nullptr;
  for (const auto& call : calls) {
    round = &call->connections() == before ? round + 1 : 0;
    before = &call->connections();
    if (round == rounds.size()) rounds.emplace_back();
    rounds[round].push_back(call.get());
  }
  for (const auto& one : rounds) CCL_CHECK(run_at_once(one));
  return {};
}

/// Turn of each composition of a group.
using Tickets = std::vector<std::pair<CallSequencer*, Word>>;

/// Returns the tickets that a group needs. None is taken yet.
Tickets tickets_of(const CallList& calls) {
  Tickets tickets;
  for (const auto& call : calls) {
    CallSequencer& sequencer = call->connections().calls().sequencer;
    if (tickets.empty() || tickets.back().first != &sequencer)
      tickets.emplace_back(&sequencer, Word{});
  }
  return tickets;
}
std::vector<std::unique_lock<std::mutex>> lock(const Tickets& tickets) {
  std::vector<std::unique_lock<std::mutex>> locks;
  for (const auto& turn : tickets) locks.emplace_back(turn.first->mutex());
  return locks;
}
/// Takes all tickets at once, under their locks. They must be awaited and ended.
void take(Tickets& tickets) noexcept {
  for (auto& [sequencer, number] : tickets) number = sequencer->take();
}

Result<void> run_in_turn(const CallList& calls, const Tickets& tickets) {
  struct Begun {
    const Tickets& tickets;
    std::size_t count = 0;
    ~Begun() {
      for (std::size_t i = 0; i < count; ++i) tickets[i].first->end(tickets[i].second);
    }
  } held{tickets};
  const Communicator& comm = calls.front()->connections().comm();
  for (const auto& [sequencer, number] : tickets) {
    CCL_CHECK(await_turn(comm, *sequencer, number));
    ++held.count;
  }
  return run_in_rounds(calls);
}

/// Group in the queue of a stream.
struct GroupInTurn {
  std::shared_ptr<void> held;
  CallList calls;
  Tickets tickets;
  Result<void> operator()() {
    return guarded(calls.front()->connections().comm(),
                   [this] { return run_in_turn(calls, tickets); });
  }
};

Result<void> run_group(CallList& calls, const Connections& first, Stream stream) {
  CCL_CHECK(check_on_host(first, stream));
  for (auto& call : calls) call->queue();
  Tickets tickets = tickets_of(calls);
  auto locks = lock(tickets);
  if (stream.host() == nullptr) {
    take(tickets);
    locks.clear();
    return run_in_turn(calls, tickets);
  }
  auto queued =
      host_call(GroupInTurn{in_flight(first.comm()), std::move(calls), std::move(tickets)});
  take(queued->call.tickets);
  HostQueue::push(*stream.host(), std::move(queued));
  return {};
}
}  // namespace

Result<void> run_group_on_host(CallList calls, Stream stream) {
  const auto first = calls.front()->shared_connections();
  return guarded(first->comm(), [&] { return run_group(calls, *first, stream); });
}

Result<DeviceTarget> GroupLaunch::begin(Stream stream) {
  std::vector<std::shared_ptr<Connections>> all;
  for (RecordedCall* call : calls_) {
    if (all.empty() || all.back() != call->shared_connections()) {
      locks_.emplace_back(call->connections().calls().mutex);
      all.push_back(call->shared_connections());
    }
    CCL_CHECK(call->connect());
  }
  CCL_CHECK(check_on_device(*all.front(), stream));
  for (RecordedCall* call : calls_) call->queue();
  launches_.reserve(calls_.size());
  for (RecordedCall* call : calls_) {
    BiasedMutex& held = call->connections().calls().mutex;
    CCL_TRY(Launch launch, Launch::begin(call->take(), Launch::Lock{held, std::defer_lock}));
    launches_.push_back(std::move(launch));
  }
  Launch& first = launches_.front();
  CCL_CHECK(
      first.on_device(stream, std::make_shared<std::vector<std::shared_ptr<Connections>>>(all)));
  return first.target();
}

Result<void> GroupLaunch::finish(int code) {
  Result<void> done = launches_.front().finish(code);
  for (Launch& other : std::span{launches_}.subspan(1)) (void)other.finish(code);
  return done;
}

}  // namespace ccl::detail
