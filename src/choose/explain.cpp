#include <ccl/algo/rank_counts.hpp>
#include <ccl/detail/base/selection.hpp>
#include <ccl/detail/choose/chooser.hpp>
#include <ccl/detail/exec/launch_shape.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "settings/report.hpp"

namespace ccl {

std::string Choice::text() const {
  std::string all = fmt::format("{}: {:.2f} us {}; {} {} of {} {}, chunks of {} bytes; {}",
                                composition, us, measured ? "measured" : "predicted", channels,
                                channels == 1 ? "channel" : "channels", lanes,
                                lanes == 1 ? "lane" : "lanes", chunk_bytes, why);
  if (!runner_up.empty()) all += fmt::format("; then {} with {:.2f} us", runner_up, runner_up_us);
  return all;
}

namespace detail {

Choice Chooser::explain(Index bytes, int picked, const Plan& plan) const {
  const auto c = std::size_t(picked);
  const CandidateFacts& one = facts_[c];
  Choice choice;
  choice.composition = one.name();
  choice.plan = plan;
  choice.us = ranks_ == 1 ? 0 : predict(picked, bytes);
  choice.measured = covers(picked, double(std::max<Index>(bytes, 1)));
  choice.lanes = gpu_ ? one.gpu_lanes : 1;
  choice.chunk_bytes = plan.slot_bytes * plan.chunk_steps;
  choice.channels = plan.channels;
  if (one.mover == Mover::engines) choice.channels = 1;
  if (gpu_ && one.mover != Mover::engines) {
    const Index worth = channel_worth(one.gpu_lanes, plan.channel_bytes);
    const int most = one.mover == Mover::wires ? plan.channels : blocks_ * 512 / one.gpu_lanes;
    choice.channels = int(std::clamp<Index>((bytes + worth - 1) / worth, 1, most));
  }
  CallConstraints as_picked;
  as_picked.in_window = one.in_windows;
  const int next = best(usable_ & ~(std::uint64_t{1} << picked), double(bytes), as_picked);
  if (next >= 0 && !any_size_) {
    choice.runner_up = facts_[std::size_t(next)].name();
    choice.runner_up_us = predict(next, bytes);
  }
  if (ranks_ == 1) {
    choice.why = "a rank alone only copies";
  } else if (any_size_) {
    choice.why =
        "sizes may differ between ranks, and calls are checked, so this one, which is never far "
        "behind, does all";
  } else if (choice.measured) {
    choice.why = fmt::format("measured on {} ranks over {}", ranks_, name(path_));
  } else if (one.step_count > 0) {
    choice.why = fmt::format(
        "{} ranks of {} hosts over {}, hosts over {}: {:.1f} us before the "
        "first byte",
        ranks_, hosts_, name(inner_path_), name(path_), predict_levels(one, 0));
  } else {
    const double start = predict_us(rates_[c], near_[c], far_[c], cost_terms_[c], 0, blocks_);
    choice.why = fmt::format(
        "{} ranks over {}: {:.1f} us for {:.3g} hops, {:.1f} us for {:.3g} "
        "times the message",
        ranks_, name(path_), start, cost_terms_[c].hops_on(blocks_), choice.us - start,
        cost_terms_[c].volume_on(blocks_));
  }
  if (ranks_ > 1 && !choice.measured && host_.gpu_gbs > 0 &&
      (inner_path_ == Path::nvlink || path_ == Path::nvlink) == host_.nvlink) {
    choice.why += fmt::format("; {} of {:.3g} GB/s inside a host",
                              host_.nvlink ? "NVLink" : "links", host_.gpu_gbs);
  }
  if (ranks_ > 1 && !choice.measured && network_.rdma && network_.host_gbs > 0) {
    choice.why += fmt::format("; RDMA of {:.3g} GB/s between hosts", network_.host_gbs);
  }
  std::string gone;
  for (std::size_t o = 0; o < out_.size(); ++o) {
    // A network that reduces is the exception: it counts where one was to be had.
    if (facts_[o].by_network && (offered_ >> o & 1) == 0) continue;
    if (!out_[o].empty()) gone += (gone.empty() ? "" : ", ") + facts_[o].name();
  }
  if (!gone.empty()) choice.why += fmt::format("; not to be had: {}", gone);
  if (gpu_ && ranks_ > max_view_ranks) {
    choice.why += fmt::format("; a peer view has at most {} ranks", max_view_ranks);
  }
  return choice;
}

Error Chooser::none_meets(CallConstraints demands) const {
  std::string names;
  const char* const in_order =
      "name an algorithm that keeps the order of the ranks, as OrderedTree does for all_reduce and "
      "reduce, OrderedChain for reduce_scatter";
  for (const int c : kept_) names += (names.empty() ? "" : ", ") + facts_[std::size_t(c)].name();
  Error error{
      Errc::not_supported,
      fmt::format("{} has no candidate for this reduction ({}; {} are left); {}", op_,
                  demands.not_commutative ? "the functor is not commutative"
                                          : "it is not one that every algorithm takes",
                  names, demands.not_commutative ? in_order : "name an algorithm that takes it")};
  error.rank = rank_;
  return error;
}

Error Chooser::nothing_left(int refuser) const {
  std::vector<std::pair<std::string, std::string>> names_by_reason;
  std::string remedy;
  const auto runs_here = [&](std::size_t c) {
    return gpu_ ? facts_[c].on_gpus : facts_[c].on_cpus;
  };
  std::vector<std::size_t> order(facts_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Those for the other kind of device come last: their reason helps nobody.
  std::ranges::stable_partition(order, runs_here);
  for (const std::size_t c : order) {
    const CandidateFacts& one = facts_[c];
    const auto known =
        std::ranges::find(names_by_reason, out_[c], &std::pair<std::string, std::string>::first);
    if (known == names_by_reason.end()) {
      names_by_reason.emplace_back(out_[c], one.name());
    } else {
      known->second += ", " + one.name();
    }
    const auto setting = excluding_setting(op_, one.algo, one.proto, gpu_);
    if (!remedy.empty() || !runs_here(c) || !setting || setting->empty()) continue;
    remedy = fmt::format("append \";{}:{}\" to {}", plain(op_),
                         *setting == "ALGO" ? one.algo : one.proto, variable_of(*setting));
  }
  std::string why;
  for (const auto& [reason, names] : names_by_reason) {
    why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", names, reason);
  }
  const bool by_setting = by_setting_ || setting_given("TRANSPORT");
  const bool differs = refuser >= 0 && !by_setting;
  if (differs) {
    remedy = "give all ranks the same settings and networks";
  } else if (remedy.empty()) {
    remedy = by_setting ? "widen CCL_ALGO, CCL_PROTO and CCL_TRANSPORT"
                        : "list one that this machine can run";
  }
  return {differs      ? Errc::mismatch
          : by_setting ? Errc::bad_setting
                       : Errc::not_supported,
          fmt::format("{} has no candidate left ({}); {}", op_, why, remedy),
          differs ? refuser : -1};
}

}  // namespace detail
}  // namespace ccl
