#include <ccl/group.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <thread>

#include "comm_state.hpp"

namespace ccl::detail {

Result<void> settle_group(CallList& calls) {
  std::stable_sort(calls.begin(), calls.end(), [](const auto& a, const auto& b) {
    return a->links().number() < b->links().number();
  });
  const CommState& state = *calls.front()->links().comm().state();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Links& links = calls[i]->links();
    if (links.comm().state().get() != &state) {
      return fail(state.blame(
          {Errc::invalid_usage, fmt::format("a group holds {} and {}, of two communicators; make a "
                                            "group for each",
                                            calls.front()->links().name(), links.name())}));
    }
    // Calls of one composition share its wires, so that the next waits for the one before.
    if (i > 0 && calls[i - 1]->links().number() == links.number()) calls[i]->apart = true;
  }
  // Each part of a launch wants a block.
  const auto shares = [](const auto& call) { return call->shares_kernel(); };
  if (state.gpu && std::ranges::count_if(calls, shares) > state.most_blocks()) {
    for (auto& call : calls) call->apart = true;
  }
  return {};
}

namespace {
/// Calls of different compositions.
Result<void> run_at_once(std::span<RecordedCall* const> calls) {
  std::vector<std::unique_lock<std::mutex>> locks;
  std::vector<Result<void>> results(calls.size());
  std::size_t begun = 0;
  Result<void> well;
  for (RecordedCall* const call : calls) {
    locks.emplace_back(call->links().mutex());
    well = call->links().begin(call->info());
    if (well) ++begun;
    if (well) well = call->connect();
    if (!well) break;
  }
  if (!well) {
    for (std::size_t i = 0; i < begun; ++i) (void)calls[i]->links().finish();
    return well;
  }
  const auto run = [&](std::size_t i) {
    calls[i]->links().help();
    calls[i]->run_on_host();
    results[i] = calls[i]->links().finish();
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < calls.size(); ++i) others.emplace_back(run, i);
  run(0);
  for (auto& thread : others) thread.join();
  for (auto& result : results) CCL_CHECK(result);
  return {};
}
}  // namespace

Result<void> run_group_on_host(CallList& calls) {
  std::vector<std::vector<RecordedCall*>> rounds;  // the n-th call of each composition
  std::size_t round = 0;
  const Links* before = nullptr;
  for (const auto& call : calls) {
    round = &call->links() == before ? round + 1 : 0;
    before = &call->links();
    if (round == rounds.size()) rounds.emplace_back();
    rounds[round].push_back(call.get());
  }
  for (const auto& one : rounds) CCL_CHECK(run_at_once(one));
  return {};
}

Result<DeviceTarget> GroupLaunch::begin(Stream stream) {
  std::vector<std::shared_ptr<Links>> all;
  for (RecordedCall* call : calls_) {
    locks_.emplace_back(call->links().mutex());
    CCL_CHECK(call->connect());
    all.push_back(call->shared_links());
  }
  for (std::size_t i = 1; i < calls_.size(); ++i) {
    CCL_CHECK(calls_[i]->links().begin(calls_[i]->links().noted(calls_[i]->info())));
  }
  return calls_[0]->links().begin_on_device(
      calls_[0]->info(), stream, std::make_shared<std::vector<std::shared_ptr<Links>>>(all));
}

Result<void> GroupLaunch::finish(int code, Stream stream) {
  return calls_[0]->links().finish_on_device(code, stream);
}

}  // namespace ccl::detail
