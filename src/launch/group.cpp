#include <ccl/detail/launch/in_flight.hpp>
#include <ccl/group.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <span>
#include <thread>
#include <utility>

#include "base/thread.hpp"
#include "comm/state.hpp"

namespace ccl::detail {
namespace {

/// Of what one composition has, to those of its calls that may be in the shared kernel: what each
/// wants, in order, as far as it goes; then, of what is left, to each by its size.
void share_out(std::span<const std::unique_ptr<RecordedCall>> calls) {
  const Index has = calls.front()->contains();
  Index given = 0, bytes = 0;
  for (const auto& call : calls) {
    const Index wants = call->may_share ? call->wants() : 0;
    if (wants == 0) continue;
    if (given + wants > has) break;  // nor any after it: they run in order
    call->share.size = wants;
    given += wants;
    bytes += call->bytes();
  }
  Index begin = 0;
  for (const auto& call : calls) {
    if (call->share.size == 0) continue;
    if (bytes > 0) {
      call->share.size += Index(double(has - given) * (double(call->bytes()) / double(bytes)));
    }
    call->share.begin = begin;
    begin += call->share.size;
  }
}

/// The same of all compositions, whose calls lie together; each part of a launch wants a block.
void share_out(CallList& calls, int max_blocks) {
  const std::span all{calls};
  for (std::size_t i = 0, next = 0; i < all.size(); i = next) {
    for (next = i; next < all.size() && &all[next]->connections() == &all[i]->connections();)
      ++next;
    share_out(all.subspan(i, next - i));
  }
  Index parts = 0;
  bool all_share = Index(calls.size()) <= max_blocks;
  for (const auto& call : calls) {
    // Were it ahead of a launch that comes before it elsewhere, the two ranks might each wait for
    // what the other runs later.
    if (call->decides_alone() ? !all_share : call->share.size > 0 && ++parts > max_blocks) {
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
  if (state.device.gpu) share_out(calls, state.device.max_blocks);
  return {};
}

namespace {
/// Calls of different compositions.
Result<void> run_at_once(std::span<RecordedCall* const> calls) {
  std::vector<std::unique_lock<std::mutex>> locks;
  std::vector<Result<void>> results(calls.size());
  Result<void> well;
  for (RecordedCall* const call : calls) {
    locks.emplace_back(call->connections().mutex());
    well = call->connections().begin(call->info());
    if (well) well = call->connect();
    if (!well) break;
  }
  if (!well) {
    for (RecordedCall* const call : calls) call->connections().give_up(call->info());
    return well;
  }
  const auto run = [&](std::size_t i) {
    calls[i]->connections().help();
    calls[i]->run_on_host();
    results[i] = calls[i]->connections().finish();
  };
  // Calls may wait for each other by way of other ranks, so none can do without its thread.
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < calls.size(); ++i) {
    auto thread = own_thread(calls[i]->connections().name(), [&run, i] { run(i); });
    if (!thread) {
      CommState& state = *Access::state(calls[i]->connections().comm());
      state.rendezvous.fail_all(std::move(thread).error());
      for (; i < calls.size(); ++i) results[i] = calls[i]->connections().finish();
      break;
    }
    others.push_back(*std::move(thread));
  }
  run(0);
  for (auto& thread : others) thread.join();
  for (auto& result : results) CCL_CHECK(result);
  return {};
}

/// In rounds: the n-th call of each composition.
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
  Result<void> well;
  for (const auto& one : rounds) {
    if (well) {
      well = run_at_once(one);
    } else {
      for (RecordedCall* const call : one) call->connections().give_up(call->info());
    }
  }
  return well;
}

/// A turn of each composition, taken at once.
struct GroupTickets {
  std::vector<std::pair<CallSequencer*, Word>> numbers;
  std::vector<std::unique_lock<std::mutex>> locks;  // until it is on its stream

  explicit GroupTickets(const CallList& calls) {
    for (const auto& call : calls) {
      CallSequencer& sequencer = call->connections().sequencer();
      if (numbers.empty() || numbers.back().first != &sequencer) {
        locks.emplace_back(sequencer.mutex());
        numbers.emplace_back(&sequencer, Word{});
      }
    }
    for (auto& [sequencer, number] : numbers) number = sequencer->take();
  }
};

Result<void> run_in_turn(const CallList& calls,
                         const std::vector<std::pair<CallSequencer*, Word>>& numbers) {
  std::deque<CallTicket> sequencer;
  for (const auto& [of, number] : numbers) sequencer.emplace_back(*of, number);
  return run_in_rounds(calls);
}
}  // namespace

Result<void> run_group_on_host(CallList calls, Stream stream) {
  Connections& first = calls.front()->connections();
  CCL_CHECK(check_on_host(first, stream));
  for (auto& call : calls) call->info() = call->connections().recorded(call->info());
  GroupTickets sequencer{calls};
  if (stream.host() == nullptr) {
    sequencer.locks.clear();
    return run_in_turn(calls, sequencer.numbers);
  }
  stream.host()->enqueue([held = in_flight(first.comm()),
                          shared = std::make_shared<CallList>(std::move(calls)),
                          numbers = sequencer.numbers] { return run_in_turn(*shared, numbers); });
  return {};
}

Result<DeviceTarget> GroupLaunch::begin(Stream stream) {
  std::vector<std::shared_ptr<Connections>> all;
  for (RecordedCall* call : calls_) {
    if (all.empty() || all.back() != call->shared_connections()) {
      locks_.emplace_back(call->connections().mutex());
      all.push_back(call->shared_connections());
    }
    CCL_CHECK(call->connect());
  }
  Connections& first = calls_.front()->connections();
  CCL_CHECK(first.check_on_device(stream));
  for (RecordedCall* call : calls_) call->info() = call->connections().recorded(call->info());
  for (RecordedCall* call : calls_) CCL_CHECK(call->connections().begin(call->info()));
  return first.queue_on_device(stream,
                               std::make_shared<std::vector<std::shared_ptr<Connections>>>(all));
}

Result<void> GroupLaunch::finish(int code, Stream stream) {
  return calls_[0]->connections().finish_on_device(code, stream);
}

}  // namespace ccl::detail
