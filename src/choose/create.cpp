#include <ccl/detail/base/selection.hpp>
#include <ccl/detail/choose/chooser.hpp>
#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>
#include <ccl/detail/choose/tuning.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "choose/edges.hpp"
#include "comm/state.hpp"
#include "gpu/gpu.hpp"
#include "comm/host_shape.hpp"

namespace ccl::detail {
namespace {

constexpr int max_candidates = 64;
constexpr int max_blocks = 128;  // of a launch: see `CommState::max_blocks`

/// What the ranks compare before they choose.
struct ChooserInputs {
  std::uint64_t usable = 0;
  std::uint64_t table = 0;  // hash of the measurements that count here
  std::int32_t path = 0;
  std::int32_t inner_path = 0;  // inside its host
  std::int32_t blocks = 0;
  std::int32_t max_ctas = 0;  // 0: no limit
};

/// Of all that choices go by, to the last bit: a file has fewer digits of a time.
std::uint64_t hash_of(const TuningTable& table) {
  std::uint64_t hash = 1469598103934665603ull;
  const auto add = [&hash](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  };
  for (const TuningRow& row : table.rows) {
    const TuningCase& where = row.where;
    add(fmt::format("{};{};{};{};{};{};{}", where.op, where.ranks, where.hosts, where.path,
                    where.compute_capability, where.max_ctas, row.bytes));
    for (const auto& [composition, us] : row.us) add(fmt::format(";{};{}", composition, us));
  }
  return hash;
}

/// A table that says nothing of these ranks is not an error, but hardly what was meant.
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

Result<Chooser> Chooser::create(const Communicator& comm, const ChooserRequest& question) {
  CommState& state = *Access::state(comm);
  CCL_CHECK(state.ready());
  Chooser made;
  made.facts_.assign(question.candidates.begin(), question.candidates.end());
  // Where nothing else is in the list, it says itself what it wants.
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

  // What this rank's edges leave.
  std::vector<Edges> seen;
  const auto edges_of = [&](const TransportTable* by) -> const Edges& {
    for (const Edges& edges : seen) {
      if (edges.by == by) return edges;
    }
    return seen.emplace_back(look_at(state, *by));
  };
  const HostShape shape = host_shape(state);
  made.hosts_ = shape.hosts;
  made.locals_ = shape.even ? state.identity.ranks() / shape.hosts : shape.most;
  std::optional<std::string> peers_refused;
  const auto no_relays = setting_flag("PXN_DISABLE");
  if (!no_relays) return fail(state.annotate(no_relays.error()));
  ChooserInputs mine;
  mine.path = mine.inner_path = made.gpu_ ? int(Path::nvlink) : int(Path::shm);
  for (std::size_t c = 0; c < made.facts_.size(); ++c) {
    const CandidateFacts& one = made.facts_[c];
    std::string& out = made.out_[c];
    if (auto may = may_compose(question.op, one.algo, one.proto); !may) {
      if (may.error().code != Errc::bad_setting) return fail(state.annotate(may.error()));
      out = may.error().what;
      made.by_setting_ = true;
    } else if (one.relays && *no_relays) {
      out = "CCL_PXN_DISABLE is 1";
      made.by_setting_ = true;
    } else if (!(made.gpu_ ? one.on_gpus : one.on_cpus)) {
      out = made.gpu_ ? "it is for CPUs" : "it is for GPUs";
    } else if (question.deterministic && question.reduces && one.order == SumOrder::varies) {
      out = "its order of reduction varies with the size";
    } else if (state.identity.ranks() > 1 && one.takes_ranks != nullptr && !one.takes_ranks(state.identity.ranks())) {
      out = fmt::format("it is not for {} ranks", state.identity.ranks());
    } else if (state.identity.ranks() > 1) {
      const Edges& edges = edges_of(one.transport_table);
      mine.path = std::max(mine.path, int(edges.path));
      mine.inner_path = std::max(mine.inner_path, int(edges.inner_path));
      if (one.step_count > 0) out = no_levels(state, one, shape);
      if (!out.empty()) {
        // its levels say no
      } else if (one.mover != Mover::wires) {
        if (!peers_refused) peers_refused = no_peers(state);
        out = *peers_refused;
      } else if (!edges.refusal.empty()) {
        out = edges.refusal;
      } else if (edges.line_bytes < one.line_bytes) {
        out = fmt::format("it needs lines of {} bytes that land whole, and an edge has {}",
                          one.line_bytes, edges.line_bytes);
      }
    } else if (one.step_count > 0) {
      out = "a rank alone has no levels";
    } else if (one.mover != Mover::wires && !made.gpu_) {
      out = "CPU ranks do not address each other's memory";
    }
    if (out.empty()) mine.usable |= std::uint64_t{1} << c;
  }
  mine.blocks = made.gpu_ ? state.device.max_blocks : max_blocks;
  mine.max_ctas = state.limits.bounds.most.value_or(0);

  // And what all ranks' do.
  std::vector<ChooserInputs> all(std::size_t(state.identity.ranks()), mine);
  const auto exchange = [&]() -> Result<void> {
    if (state.identity.ranks() == 1 || question.alone) return {};
    const auto lock = state.rendezvous.lock();
    return state.rendezvous.after_creation(state.rendezvous.bootstrap()->all_gather(all.data(), Index{sizeof(ChooserInputs)}, {},
                                                           {"the creation by Auto of", made.op_}));
  };
  // A rank without a readable table must not leave the others waiting.
  TuningTable table;
  auto read = [&]() -> Result<TuningTable> {
    std::string file = state.identity.config().tune_file;
    if (file.empty()) {
      CCL_TRY(file, setting_text("TUNE_FILE"));
    }
    if (file.empty()) return TuningTable{};
    return TuningTable::read(file);
  }();
  if (read) {
    table = *std::move(read);
    mine.table = table.rows.empty() ? 0 : hash_of(table);
  } else {
    mine.table = ~std::uint64_t{0};
  }
  std::fill(all.begin(), all.end(), mine);
  CCL_CHECK(exchange());
  if (!read) return fail(state.annotate(std::move(read).error()));
  for (int r = 0; r < state.identity.ranks(); ++r) {
    if (all[std::size_t(r)].table == mine.table) continue;
    Error error{Errc::mismatch,
                fmt::format("rank {} and rank {} go by different tables of measurements (see "
                            "CCL_TUNE_FILE and Config::tune_file); give all ranks the same",
                            state.identity.rank(), r)};
    error.peer = r;
    return fail(state.annotate(std::move(error)));
  }
  for (int r = 0; r < state.identity.ranks(); ++r) {
    const ChooserInputs& other = all[std::size_t(r)];
    for (std::size_t c = 0; c < made.facts_.size(); ++c) {
      if (made.out_[c].empty() && (other.usable >> c & 1) == 0) {
        made.out_[c] = fmt::format("rank {} cannot run it", r);
      }
    }
    mine.usable &= other.usable;
    mine.path = std::max(mine.path, other.path);
    mine.inner_path = std::max(mine.inner_path, other.inner_path);
    mine.blocks = std::min(mine.blocks, other.blocks);
    // The strictest limit that a rank has: all look for the same rows of the table.
    if (mine.max_ctas == 0 || (other.max_ctas > 0 && other.max_ctas < mine.max_ctas)) {
      mine.max_ctas = other.max_ctas;
    }
  }
  made.usable_ = mine.usable;
  made.path_ = Path(mine.path);
  made.inner_path_ = Path(mine.inner_path);
  made.blocks_ = mine.blocks;

  if (question.deterministic && question.reduces) made.keep_one_order();

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
  for (const CandidateFacts& one : made.facts_) {
    made.rates_.push_back(rates(made.path_, one.mover, one.packing));
    made.near_.push_back(rates(made.inner_path_, one.mover, one.packing));
    made.far_.push_back(one.inter_node_fraction == nullptr ? 1 : one.inter_node_fraction(state.identity.ranks(), made.hosts_));
    CostTerms cost_terms = one.cost_terms == nullptr ? CostTerms{1, 1} : one.cost_terms(state.identity.ranks());
    if (one.inter_node_volume != nullptr && made.hosts_ > 1) {
      cost_terms.volume = one.inter_node_volume(state.identity.ranks(), made.hosts_);
    }
    made.cost_terms_.push_back(cost_terms);
  }
  made.resolve();
  if (made.kept_.empty()) return fail(state.annotate(made.nothing_left()));
  return made;
}

void Chooser::keep_one_order() {
  // That of the first candidate that a functor meets: one that is not commutative meets other ones.
  const auto keep = [this](bool for_order, auto&& meets) {
    std::optional<SumOrder> order;
    for (std::size_t c = 0; c < facts_.size(); ++c) {
      const CandidateFacts& one = facts_[c];
      if (!usable(int(c)) || !meets(one)) continue;
      if (!order) order = one.order;
      if (one.order == *order || one.for_order != for_order) continue;
      usable_ &= ~(std::uint64_t{1} << c);
      out_[c] = "it reduces in another order than those before it";
    }
  };
  keep(false, [](const CandidateFacts& one) { return !one.for_order; });
  keep(true, [](const CandidateFacts& one) { return !one.reorders; });
}

}  // namespace ccl::detail
