#include <ccl/detail/choose/chooser.hpp>

#include <algorithm>
#include <cmath>

namespace ccl::detail {
namespace {

/// Interpolates between measured times: linear in both logarithms. Beyond them the time is in
/// proportion to the size, and at least that of the smallest size.
double between(const std::vector<double>& bytes, const std::vector<double>& us, double at) {
  if (at <= bytes.front()) return us.front();
  if (bytes.size() == 1) return us.front() * std::max(1.0, at / bytes.front());
  if (at >= bytes.back()) return us.back() * at / bytes.back();
  const auto above = std::upper_bound(bytes.begin(), bytes.end(), at) - bytes.begin();
  const std::size_t b = std::size_t(above), a = b - 1;
  const double part = std::log(at / bytes[a]) / std::log(bytes[b] / bytes[a]);
  return us[a] * std::pow(us[b] / us[a], part);
}

}  // namespace

bool Chooser::covers(int candidate, double bytes) const {
  const Curve& curve = curves_[std::size_t(candidate)];
  return !curve.bytes.empty() && bytes <= 4 * curve.bytes.back();
}

double Chooser::predict(int candidate, Index bytes) const {
  const auto c = std::size_t(candidate);
  const double at = double(std::max<Index>(bytes, 1));
  if (covers(candidate, at)) return between(curves_[c].bytes, curves_[c].us, at);
  if (facts_[c].step_count > 0) return predict_levels(facts_[c], at);
  int blocks = blocks_;
  if (knows_network() && facts_[c].blocks_over_network != nullptr) {
    blocks = facts_[c].blocks_over_network(Index(at), network_, host_, blocks_);
  }
  return predict_us(rates_[c], near_[c], far_[c], cost_terms_[c], at, blocks);
}

bool Chooser::knows_network() const {
  return path_ == Path::gpu_net && network_.rdma && network_.host_gbs > 0;
}

double Chooser::predict_levels(const CandidateFacts& one, double bytes) const {
  double us = 0;
  for (int s = 0; s < one.step_count; ++s) {
    const LevelStep& step = one.steps[std::size_t(s)];
    const int ranks = step.outer ? hosts_ : locals_;
    if (ranks < 2) continue;
    // Relayed messages pass through scratch memory, in pieces of at most its size.
    const double pieces =
        one.relays ? std::max(1.0, std::ceil(bytes / double(level_scratch_bytes(gpu_)))) : 1;
    const double calls = pieces * (step.once_a_host ? hosts_ : 1);
    // A rail has its part of the network, and its ranks have one ring.
    const NetworkFacts rail{network_.rdma, network_.host_gbs / std::max(1, locals_), 1};
    const Rates by = step.outer ? rates_between(path_, step.mover, step.packing, rail, host_)
                                : rates_inside(inner_path_, step.mover, step.packing, host_);
    // GPUs have NICs of their own; the rails of CPU ranks share their host's NIC.
    const bool rails = step.shared && path_ != Path::net;
    const double each = bytes / calls / (rails ? locals_ : 1);
    CostTerms cost_terms = step.cost_terms(ranks);
    // As for the candidates that send directly.
    if (one.relays && step.outer && gpu_) cost_terms.volume = 2.0 * (hosts_ - 1) / hosts_;
    if (step.outer || step.packing != Packing::simple || inner_path_ != Path::nvlink) {
      cost_terms = cost_terms.of_many_blocks();
    }
    int blocks = blocks_;
    if (step.outer && knows_network() && step.blocks_over_network != nullptr) {
      blocks = step.blocks_over_network(Index(each), rail, host_, blocks_);
    }
    us += calls * predict_us(by, cost_terms, each, blocks);
    if (!step.outer || step.waits) us += calls * level_us(inner_path_);
  }
  return us;
}

}  // namespace ccl::detail
