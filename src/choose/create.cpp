#include <ccl/comm/log.hpp>
#include <ccl/detail/choose/chooser.hpp>
#include <ccl/detail/choose/tuning.hpp>

#include <fmt/format.h>

#include <algorithm>

#include "choose/creator.hpp"
#include "comm/state.hpp"

namespace ccl::detail {
namespace {

constexpr int max_candidates = 64;

/// Warns if a table has no rows for these ranks: that is no error, but rarely intended.
void say_what_fits(const TuningTable& table, const TuningCase& where, std::size_t rows) {
  const auto of_these_ranks = [&](const TuningRow& row) {
    TuningCase there = row.where;
    there.op = where.op;
    there.max_ctas = where.max_ctas;
    return there == where;
  };
  if (std::none_of(table.rows.begin(), table.rows.end(), of_these_ranks)) {
    log_warn(LogPart::tuning,
             "{} goes by the model: no row of the table of measurements (of {}) is of {} ranks on "
             "{} hosts over {} with compute capability {}; ccl_perf --tune measures here",
             where.op, table.machine.empty() ? "an unnamed machine" : table.machine, where.ranks,
             where.hosts, where.path, where.compute_capability);
    return;
  }
  log_info(LogPart::tuning, "{}: {} rows of the table of measurements are of these ranks", where.op,
           rows);
}

}  // namespace

Result<void> Chooser::Creator::list_candidates() {
  made.facts_.assign(question.candidates.begin(), question.candidates.end());
  // A list of nothing but candidates for windows: each checks its windows itself.
  const auto wants_window = [](const CandidateFacts& one) { return one.in_windows; };
  if (std::all_of(made.facts_.begin(), made.facts_.end(), wants_window)) {
    for (CandidateFacts& one : made.facts_) one.in_windows = false;
  }
  if (made.facts_.size() > max_candidates) {
    return fail(state.annotate(
        {Errc::not_supported, fmt::format("{} has {} candidates (at most {} can be chosen from)",
                                          question.op, made.facts_.size(), max_candidates)}));
  }
  made.op_ = question.op;
  made.rank_ = state.identity.rank();
  made.ranks_ = state.identity.ranks();
  made.gpu_ = state.device.gpu != nullptr;
  made.any_size_ = question.by_message && state.limits.check;
  made.reduces_ = question.reduces;
  made.out_.resize(made.facts_.size());
  made.curves_.resize(made.facts_.size());
  return {};
}

void Chooser::Creator::add_measurements() {
  TuningCase& where = made.where_;
  where = {made.op_, state.identity.ranks(), 1, std::string{name(made.path_)}, 0, mine.max_ctas};
  for (const PeerInfo& peer : state.identity.peers()) {
    where.compute_capability = std::max(where.compute_capability, peer.compute_capability);
  }
  where.hosts = made.hosts_;
  const auto rows = table.of(where);
  if (state.identity.rank() == 0 && !table.rows.empty()) say_what_fits(table, where, rows.size());
  for (const TuningRow* row : rows) {
    for (const auto& [composition, us] : row->us) {
      for (std::size_t c = 0; c < made.facts_.size(); ++c) {
        if (made.facts_[c].name() != composition) continue;
        made.curves_[c].bytes.push_back(double(std::max<Index>(row->bytes, 1)));
        made.curves_[c].us.push_back(us);
      }
    }
  }
}

void Chooser::Creator::add_model() {
  // Rings and trees leave an NVLink domain of several hosts once.
  const int machines = std::min(made.hosts_, state.identity.arrangement().machine_count());
  for (const CandidateFacts& one : made.facts_) {
    made.rates_.push_back(
        rates_between(made.path_, one.mover, one.packing, made.network_, made.host_));
    made.near_.push_back(rates_inside(made.inner_path_, one.mover, one.packing, made.host_));
    made.far_.push_back(one.inter_node_fraction == nullptr
                            ? 1
                            : one.inter_node_fraction(state.identity.ranks(), machines));
    CostTerms cost_terms =
        one.cost_terms == nullptr ? CostTerms{1, 1} : one.cost_terms(state.identity.ranks());
    if (one.inter_node_volume != nullptr && machines > 1) {
      cost_terms.volume = one.inter_node_volume(state.identity.ranks(), machines);
    }
    if (one.by_network) {
      const double inside = one.host_hops(shape.most);
      made.far_.back() = cost_terms.hops / (cost_terms.hops + inside);
      cost_terms.hops += inside;
    }
    if (one.packing != Packing::simple || made.hosts_ > 1 || made.path_ != Path::nvlink) {
      cost_terms = cost_terms.of_many_blocks();
    }
    made.cost_terms_.push_back(cost_terms);
  }
}

Result<Chooser> Chooser::create(const Communicator& comm, const ChooserRequest& question) {
  CommState& state = *Access::state(comm);
  CCL_CHECK(state.ready());
  Creator creator{state, question};
  CCL_CHECK(creator.list_candidates());
  CCL_CHECK(creator.check_candidates());
  CCL_CHECK(creator.agree());
  Chooser& made = creator.made;
  made.drop_for_whole_lines();
  made.drop_loads_beyond_nvlink();
  if (question.deterministic && question.reduces) made.keep_one_order();
  creator.add_measurements();
  creator.add_model();
  made.resolve();
  if (made.kept_.empty()) return fail(state.annotate(made.nothing_left(creator.refuser)));
  return std::move(made);
}

}  // namespace ccl::detail
