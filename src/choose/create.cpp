#include <ccl/comm/log.hpp>
#include <ccl/detail/base/selection.hpp>
#include <ccl/detail/choose/chooser.hpp>
#include <ccl/detail/choose/tuning.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <optional>
#include <string_view>

#include "base/field_check.hpp"
#include "choose/edges.hpp"
#include "choose/only_selected.hpp"
#include "comm/edges/reducing_network.hpp"
#include "comm/host_shape.hpp"
#include "comm/machine_facts.hpp"
#include "comm/part_rules.hpp"
#include "comm/state.hpp"
#include "gpu/gpu.hpp"
#include "settings/report.hpp"

namespace ccl::detail {
namespace {

constexpr int max_candidates = 64;
constexpr int max_blocks = 128;  // of a launch: see `CommState::max_blocks`

/// Hash of all values that choices depend on, to the last bit: a file holds fewer digits of a time.
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

/// One creation of a chooser. The steps of `create`, in order, fill `made`.
struct Chooser::Creator {
  /// Values that the ranks compare before they choose.
  struct ChooserInputs {
    std::uint64_t usable = 0;
    std::uint64_t table = 0;  // hash of the measurements that count here
    std::int32_t path = 0;
    std::int32_t inner_path = 0;  // inside its host
    std::int32_t blocks = 0;
    std::int32_t max_ctas = 0;  // 0: the default
    std::int32_t rdma = 1;      // all edges over a network are RDMA
  };

  Creator(CommState& of, const ChooserRequest& asked) : state{of}, question{asked} {}

  CommState& state;
  const ChooserRequest& question;
  Chooser made;
  HostShape shape;
  bool no_relays = false;
  std::vector<Edges> edges;                  // of the connectors of candidates
  std::optional<std::string> peers_refused;  // set once asked for
  ChooserInputs mine;
  TuningTable table;
  int refuser = -1;  // first other rank that refuses what others can run, if none is left

  Result<void> list_candidates();
  /// Decides which candidates this rank can run.
  Result<void> check_candidates();
  /// Returns why this rank cannot run a candidate; empty if it can.
  Result<std::string> refusal(const CandidateFacts& one);
  Result<std::string> setting_refusal(const CandidateFacts& one) const;
  std::string edge_refusal(const CandidateFacts& one);
  /// Returns why a candidate has no network that reduces; empty if it may have one.
  Result<std::string> network_refusal(const CandidateFacts& one);
  const Edges& edges_by(const TransportTable* transport_table);
  Result<TuningTable> read_table() const;
  /// Compares the inputs of all ranks. Collective, unless the chooser is for this rank alone.
  Result<void> agree();
  void merge(const ChooserInputs& other, int rank);
  /// First candidate that `rank` refuses and another rank does not; -1: there is none.
  int refused_alone(const std::vector<ChooserInputs>& all, int rank) const;
  /// Collects why ranks refuse what others can run. Collective, if no candidate is left.
  Result<void> explain_refusals(const std::vector<ChooserInputs>& all);
  void add_measurements();
  void add_model();
};

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

Result<TuningTable> Chooser::Creator::read_table() const {
  std::string file = state.identity.config().tune_file;
  if (file.empty()) {
    CCL_TRY(file, setting_text("TUNE_FILE"));
  }
  if (file.empty()) return TuningTable{};
  return TuningTable::read(file);
}

Result<void> Chooser::Creator::agree() {
  // A rank without a readable table must not leave the others waiting: it fails after the exchange.
  auto read = read_table();
  if (read) {
    table = *std::move(read);
    mine.table = table.rows.empty() ? 0 : hash_of(table);
  } else {
    mine.table = ~std::uint64_t{0};
  }
  std::vector<ChooserInputs> all(std::size_t(state.identity.ranks()), mine);
  if (state.identity.ranks() > 1 && !question.alone) {
    const auto lock = state.rendezvous.lock();
    CCL_CHECK(state.rendezvous.after_creation(state.rendezvous.bootstrap()->all_gather(
        all.data(), Index{sizeof(ChooserInputs)}, {}, {"the creation by Auto of", made.op_})));
  }
  CCL_CHECK(check_gathered(state, all, [](const ChooserInputs& of, int) {
    return FieldCheck{}
        .in_range("path", of.path, 0, path_count - 1)
        .in_range("path inside the host", of.inner_path, 0, path_count - 1)
        .in_range("number of blocks", of.blocks, 0, INT_MAX)
        .in_range("limit of blocks", of.max_ctas, 0, INT_MAX)
        .flag("RDMA", of.rdma)
        .why();
  }));
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
  for (int r = 0; r < state.identity.ranks(); ++r) merge(all[std::size_t(r)], r);
  if (mine.usable == 0) CCL_CHECK(explain_refusals(all));
  made.usable_ = made.offered_ = mine.usable;
  made.path_ = Path(mine.path);
  made.inner_path_ = Path(mine.inner_path);
  made.blocks_ = mine.blocks;
  if (made.hosts_ > 1) {
    made.network_ = network_facts(state.identity, mine.rdma != 0);
  }
  if (made.gpu_) made.host_ = host_facts(state.identity);
  return {};
}

namespace {
std::string not_by(int rank) {
  return fmt::format("rank {} cannot run it", rank);
}
}  // namespace

void Chooser::Creator::merge(const ChooserInputs& other, int rank) {
  for (std::size_t c = 0; c < made.facts_.size(); ++c) {
    if (made.out_[c].empty() && (other.usable >> c & 1) == 0) {
      made.out_[c] = not_by(rank);
    }
  }
  mine.usable &= other.usable;
  mine.path = std::max(mine.path, other.path);
  mine.inner_path = std::max(mine.inner_path, other.inner_path);
  mine.blocks = std::min(mine.blocks, other.blocks);
  mine.rdma &= other.rdma;
  // The strictest limit of any rank: all ranks look for the same rows of the table.
  if (mine.max_ctas == 0 || (other.max_ctas > 0 && other.max_ctas < mine.max_ctas)) {
    mine.max_ctas = other.max_ctas;
  }
}

int Chooser::Creator::refused_alone(const std::vector<ChooserInputs>& all, int rank) const {
  std::uint64_t offered = 0;
  for (const ChooserInputs& of : all) offered |= of.usable;
  for (std::size_t c = 0; c < made.facts_.size(); ++c) {
    const std::uint64_t bit = std::uint64_t{1} << c;
    if ((offered & ~all[std::size_t(rank)].usable & bit) != 0) return int(c);
  }
  return -1;
}

namespace {
/// Why a rank refuses a candidate that another rank can run.
struct Refusal {
  char why[1200]{};
};
}  // namespace

Result<void> Chooser::Creator::explain_refusals(const std::vector<ChooserInputs>& all) {
  std::vector<int> refused;
  for (int r = 0; r < made.ranks_; ++r) refused.push_back(refused_alone(all, r));
  if (std::ranges::all_of(refused, [](int c) { return c < 0; })) return {};  // all ranks alike
  std::vector<Refusal> reasons(refused.size());
  const int own = refused[std::size_t(made.rank_)];
  Refusal& mine_said = reasons[std::size_t(made.rank_)];
  if (own >= 0) made.out_[std::size_t(own)].copy(mine_said.why, sizeof mine_said.why - 1);
  const auto lock = state.rendezvous.lock();
  CCL_CHECK(state.rendezvous.after_creation(state.rendezvous.bootstrap()->all_gather(
      reasons.data(), Index{sizeof(Refusal)}, {}, {"the creation by Auto of", made.op_})));
  CCL_CHECK(check_gathered(state, reasons, [](const Refusal& of, int) {
    return FieldCheck{}.text("reason of a refusal", of.why).why();
  }));
  for (int r = 0; r < made.ranks_; ++r) {
    const int c = refused[std::size_t(r)];
    if (c < 0 || r == made.rank_) continue;
    if (refuser < 0) refuser = r;
    const std::string cannot = not_by(r);
    for (std::string& out : made.out_) {
      if (out != cannot) continue;
      out += fmt::format(" (it says of {}: {})", made.facts_[std::size_t(c)].name(),
                         reasons[std::size_t(r)].why);
    }
  }
  (void)state.rendezvous.bootstrap()->barrier();  // a rank leaves only after all have the reasons
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

void Chooser::drop_for_whole_lines() {
  for (std::size_t c = 0; c < facts_.size(); ++c) {
    if (!facts_[c].for_torn_lines || !usable(int(c))) continue;
    for (std::size_t other = 0; other < facts_.size(); ++other) {
      const CandidateFacts& one = facts_[other];
      if (!usable(int(other)) || one.line_bytes < 128) continue;
      if (std::string_view{one.algo} != facts_[c].algo) continue;
      usable_ &= ~(std::uint64_t{1} << c);
      out_[c] = fmt::format("{} runs here", one.name());
      break;
    }
  }
}

void Chooser::drop_loads_beyond_nvlink() {
  if (path_ == Path::nvlink) return;
  for (std::size_t c = 0; c < facts_.size(); ++c) {
    if (!facts_[c].reads_peers || !usable(int(c))) continue;
    usable_ &= ~(std::uint64_t{1} << c);
    out_[c] = fmt::format("loads from peers suit NVLink, and these GPUs have {}", name(path_));
  }
}

void Chooser::keep_one_order() {
  // Keeps the order of the first candidate that the kind of functor can use. A candidate for torn
  // lines suits short messages only, and would leave others none.
  const auto keep = [this](bool for_order, auto&& meets) {
    std::optional<SumOrder> order;
    for (const bool torn : {false, true}) {
      for (std::size_t c = 0; c < facts_.size() && !order; ++c) {
        const CandidateFacts& one = facts_[c];
        if (usable(int(c)) && meets(one) && one.for_torn_lines == torn) order = one.order;
      }
    }
    for (std::size_t c = 0; c < facts_.size(); ++c) {
      const CandidateFacts& one = facts_[c];
      if (!usable(int(c)) || !meets(one)) continue;
      if (one.order == *order || one.for_order != for_order) continue;
      usable_ &= ~(std::uint64_t{1} << c);
      out_[c] = "it reduces in another order than those before it";
    }
  };
  keep(false, [](const CandidateFacts& one) { return !one.for_order; });
  keep(true, [](const CandidateFacts& one) { return !one.reorders; });
}

}  // namespace ccl::detail
