// Reasons why this rank cannot run a candidate.
#include <ccl/detail/base/selection.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>

#include "choose/creator.hpp"
#include "choose/edges.hpp"
#include "choose/only_selected.hpp"
#include "comm/edges/reducing_network.hpp"
#include "comm/host_shape.hpp"
#include "comm/state.hpp"
#include "settings/report.hpp"

namespace ccl::detail {
namespace {
constexpr int max_blocks = 128;  // of a launch: see `CommState::max_blocks`
}  // namespace

const Edges& Chooser::Creator::edges_by(const TransportTable* transport_table) {
  for (const Edges& seen : edges) {
    if (seen.by == transport_table) return seen;
  }
  return edges.emplace_back(look_at(state, *transport_table));
}

std::string Chooser::Creator::edge_refusal(const CandidateFacts& one) {
  const Edges& seen = edges_by(one.transport_table);
  mine.path = std::max(mine.path, int(seen.path));
  mine.inner_path = std::max(mine.inner_path, int(seen.inner_path));
  mine.rdma &= int(seen.rdma);
  if (one.step_count > 0) {
    std::string why = no_levels(state, one, shape);
    if (!why.empty()) return why;
  }
  if (one.mover != Mover::wires) {
    if (one.mover == Mover::engines && shape.hosts > 1) {
      return "copy engines signal through memory of one host";
    }
    if (one.mover == Mover::switches) return no_multicast(state, one);
    if (!peers_refused) peers_refused = no_peers(state);
    if (!peers_refused->empty()) return *peers_refused;
    return short_peer_lines(state, one.line_bytes);
  }
  if (!seen.refusal.empty()) return seen.refusal;
  if (seen.line_bytes < one.line_bytes) {
    return fmt::format("it needs lines of {} bytes that land whole, and an edge has {}",
                       one.line_bytes, seen.line_bytes);
  }
  return {};
}

Result<std::string> Chooser::Creator::network_refusal(const CandidateFacts& one) {
  const Edges& seen = edges_by(one.transport_table);
  mine.path = std::max(mine.path, int(seen.path));
  mine.inner_path = std::max(mine.inner_path, int(seen.inner_path));
  CCL_TRY(std::string why, no_network(state));
  if (why.empty() && one.max_host_ranks > 0 && shape.most > one.max_host_ranks) {
    why = fmt::format("a host has {} ranks (at most {})", shape.most, one.max_host_ranks);
  }
  return why;
}

Result<std::string> Chooser::Creator::setting_refusal(const CandidateFacts& one) const {
  const auto setting = excluding_setting(question.op, one.algo, one.proto, made.gpu_);
  if (!setting) {
    if (setting.error().code != Errc::bad_setting) return fail(state.annotate(setting.error()));
    return setting.error().what;
  }
  if (!setting->empty()) {
    return fmt::format("{} is {}", variable_of(*setting), setting_text(*setting).value_or(""));
  }
  if (OnlySelected::leaves(one.algo, one.proto, made.gpu_)) return std::string{};
  return fmt::format("the call's algSelection is {}", OnlySelected::list());
}

Result<std::string> Chooser::Creator::refusal(const CandidateFacts& one) {
  if (!(made.gpu_ ? one.on_gpus : one.on_cpus)) {
    return made.gpu_ ? "for CPUs only" : "for GPUs only";
  }
  CCL_TRY(std::string setting, setting_refusal(one));
  if (!setting.empty()) {
    made.by_setting_ = true;
    return setting;
  }
  if (one.relays && no_relays) {
    made.by_setting_ = true;
    return variable_of("PXN_DISABLE") + " is 1";
  }
  if (question.deterministic && question.reduces && one.order == SumOrder::varies) {
    return "its order of reduction varies with the size";
  }
  if (state.identity.ranks() > 1) {
    if (one.takes_ranks != nullptr && !one.takes_ranks(state.identity.ranks())) {
      return fmt::format("it is not for {} ranks", state.identity.ranks());
    }
    if (one.by_network) return network_refusal(one);
    return edge_refusal(one);
  }
  if (one.by_network) return std::string{"a rank alone needs no network"};
  if (one.step_count > 0) return "a rank alone has no levels";
  if (one.mover != Mover::wires && one.mover != Mover::switches && !made.gpu_) {
    return "CPU ranks do not address each other's memory";
  }
  return std::string{};
}

Result<void> Chooser::Creator::check_candidates() {
  shape = host_shape(state);
  made.hosts_ = shape.hosts;
  made.locals_ = shape.even ? state.identity.ranks() / shape.hosts : shape.most;
  const auto disabled = setting_flag("PXN_DISABLE");
  if (!disabled) return fail(state.annotate(disabled.error()));
  no_relays = *disabled;
  mine.path = mine.inner_path = made.gpu_ ? int(Path::nvlink) : int(Path::shm);
  for (std::size_t c = 0; c < made.facts_.size(); ++c) {
    CCL_TRY(made.out_[c], refusal(made.facts_[c]));
    if (made.out_[c].empty()) mine.usable |= std::uint64_t{1} << c;
  }
  mine.blocks = made.gpu_ ? state.device.max_blocks : max_blocks;
  mine.max_ctas = state.limits.bounds.most.value_or(0);
  return {};
}

}  // namespace ccl::detail
