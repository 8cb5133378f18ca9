#include <ccl/algo/rank_counts.hpp>
#include <ccl/comm/log.hpp>
#include <ccl/detail/choose/chooser.hpp>
#include <ccl/detail/numeric/network_step.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "comm/edges/reducing_network.hpp"
#include "comm/state.hpp"

namespace ccl::detail {
namespace {
constexpr Index largest = Index{1} << 34;
// Time of one more launch in a CUDA graph on H200, see benchmarks/gpu/group_bench.cu.
constexpr double launch_us = 1.5;
}  // namespace

bool Chooser::meets(int candidate, CallConstraints demands) const {
  const CandidateFacts& one = facts_[std::size_t(candidate)];
  return (!demands.any_reduction || one.takes_all) && (!demands.any_elements || one.carries_all) &&
         (!demands.not_commutative || !one.reorders) &&
         (!one.for_order || demands.not_commutative || only_for_order_) &&
         (!one.by_network || !demands.no_network) &&
         (!demands.no_switch || one.multicast == MulticastKind::none) &&
         (!one.in_windows || demands.in_window) && (!demands.in_group || one.step_count == 0);
}

int Chooser::best(std::uint64_t among, double bytes, CallConstraints demands) const {
  int found = -1;
  double least = 0;
  bool measured = false;
  for (int c = 0; c < int(facts_.size()); ++c) {
    if ((among >> c & 1) == 0 || !meets(c, demands)) continue;
    // The model cannot be compared with measurements: if there are some, only those count.
    const bool covered = covers(c, bytes);
    if (measured && !covered) continue;
    const double us = predict(c, Index(bytes));
    if (found >= 0 && covered == measured && us >= least) continue;
    found = c;
    least = us;
    measured = covered;
  }
  return found;
}

int Chooser::steadiest(CallConstraints demands) const {
  int found = -1;
  double least = std::numeric_limits<double>::max();
  for (const bool any : {false, true}) {  // second: those not measured everywhere
    for (int c = 0; c < int(facts_.size()); ++c) {
      if (!usable(c) || !meets(c, demands)) continue;
      double worst = 1;
      bool counts = true;
      for (Index bytes = 64; bytes <= largest; bytes *= 4) {
        const int other = best(usable_, double(bytes), demands);
        worst = std::max(worst, predict(c, bytes) / predict(other, bytes));
        counts = counts && (covers(c, double(bytes)) || !covers(other, double(bytes)));
      }
      if ((!any && !counts) || worst >= least) continue;
      found = c;
      least = worst;
    }
    if (found >= 0) break;
  }
  return found;
}

void Chooser::resolve() {
  std::uint64_t keep = 0;
  Index windows_from = std::numeric_limits<Index>::max();
  only_for_order_ = true;
  for (int c = 0; c < int(facts_.size()); ++c) {
    if (usable(c) && !facts_[std::size_t(c)].for_order) only_for_order_ = false;
  }
  const auto take = [&](int c) {
    if (c >= 0) keep |= std::uint64_t{1} << c;
    return c;
  };
  if (any_size_) steady_ = take(steadiest({}));
  bool networks = false, switches = false;
  for (int c = 0; c < int(facts_.size()); ++c) {
    if (!usable(c)) continue;
    networks |= by_network(c);
    switches |= facts_[std::size_t(c)].multicast != MulticastKind::none;
  }
  for (int d = 0; d < 32; ++d) {
    const CallConstraints demands{(d & 1) != 0, (d & 2) != 0, (d & 4) != 0, (d & 8) != 0,
                                  (d & 16) != 0};
    if ((demands.no_network && !networks) || (demands.no_switch && !switches)) continue;
    if (any_size_ || (d != 0 && !reduces_)) continue;
    CallConstraints in_window = demands;
    in_window.in_window = true;
    double before = 0;  // the size that was looked at last
    for (double bytes = 1; bytes <= double(largest); bytes *= 1.25) {
      const int outside = take(best(usable_, bytes, demands));
      if (take(best(usable_, bytes, in_window)) != outside) {
        windows_from = std::min(windows_from, Index(before));
      }
      before = bytes;
    }
    CallConstraints in_group = demands;
    in_group.in_group = true;
    if (best(keep, 1, in_group) < 0) take(steadiest(in_group));
  }
  picked_.clear();
  window_bytes_ = windows_from;
  kept_.clear();
  for (int c = 0; c < int(facts_.size()); ++c) {
    if ((keep >> c & 1) != 0) kept_.push_back(c);
  }
}

Result<void> Chooser::drop(int candidate, const Error& why) {
  usable_ &= ~(std::uint64_t{1} << candidate);
  out_[std::size_t(candidate)] = why.what;
  resolve();
  if (!kept_.empty()) return {};
  return fail(why);
}

Result<void> Chooser::drop_network(int candidate, const Error& why) {
  const std::string text =
      fmt::format("{} goes without {} ({})", op_, facts_[std::size_t(candidate)].name(), why.what);
  log(rank_ == 0 ? LogLevel::warn : LogLevel::info, LogPart::tuning, "{}", text);
  return drop(candidate, why);
}

void Chooser::look_at_network(const Communicator& comm) {
  const auto& network = Access::state(comm)->network;
  if (network != nullptr) networks_ = network->support;
}

bool Chooser::network_reduces(Word tag) const {
  const NetworkStep step = NetworkStep::of(tag);
  return (networks_[std::size_t(step.op)] >> step.type & 1) != 0;
}

std::uint64_t Chooser::kept_set() const {
  std::uint64_t kept = 0;
  for (const int c : kept_) kept |= std::uint64_t{1} << c;
  return kept;
}

int Chooser::pick_single(Index bytes, CallConstraints demands) const {
  const unsigned constraints =
      unsigned(demands.any_reduction) | unsigned(demands.not_commutative) << 1 |
      unsigned(demands.any_elements) << 2 | unsigned(demands.in_window) << 3 |
      unsigned(demands.no_network) << 4 | unsigned(demands.no_switch) << 5;
  const std::uint64_t key = PickCache::key(bytes, constraints);
  int picked = picked_.find(key);
  if (picked != PickCache::none) return picked;
  if (kept_.size() == 1) {
    picked = meets(kept_[0], demands) ? kept_[0] : -1;
  } else {
    picked = best(kept_set(), double(std::max<Index>(bytes, 1)), demands);
  }
  picked_.keep(key, picked);
  return picked;
}

int Chooser::pick(Index bytes, CallConstraints demands) const {
  if (any_size_) return steady_;
  if (demands.in_group) {
    const std::uint64_t kept = kept_set();
    if (const int one = best(kept, double(std::max<Index>(bytes, 1)), demands); one >= 0) {
      const int part = demands.part;
      const bool may = part >= 0 && (kept >> part & 1) != 0 && meets(part, demands);
      // A call over a larger peer view shares no launch.
      const bool shares =
          may && (ranks_ <= max_unrolled_ranks || facts_[std::size_t(part)].mover == Mover::wires);
      return shares && predict(part, bytes) <= predict(one, bytes) + launch_us ? part : one;
    }
    demands.in_group = false;
  }
  return pick_single(bytes, demands);
}

}  // namespace ccl::detail
