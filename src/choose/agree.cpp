// Comparison of the ranks' inputs before they choose, and their reasons if no candidate is left.
#include <ccl/detail/choose/tuning.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <string_view>

#include "base/field_check.hpp"
#include "choose/creator.hpp"
#include "comm/part_rules.hpp"
#include "comm/rank/machine_facts.hpp"
#include "comm/state.hpp"

namespace ccl::detail {
namespace {

class Hash {
 public:
  void add(std::string_view text) {
    for (const char c : text) value_ = (value_ ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 1469598103934665603ull;
};

/// Hash of all values that choices depend on, to the last bit: a file holds fewer digits of a time.
std::uint64_t hash_of(const TuningTable& table) {
  Hash hash;
  for (const TuningRow& row : table.rows) {
    const TuningCase& where = row.where;
    hash.add(fmt::format("{};{};{};{};{};{};{}", where.op, where.ranks, where.hosts, where.path,
                         where.compute_capability, where.max_ctas, row.bytes));
    for (const auto& [composition, us] : row.us) hash.add(fmt::format(";{};{}", composition, us));
  }
  return hash.value();
}

std::uint64_t hash_of(const std::vector<CandidateFacts>& candidates) {
  Hash hash;
  for (const CandidateFacts& one : candidates) hash.add(one.name() + ";");
  return hash.value();
}

std::string not_by(int rank) {
  return fmt::format("rank {} cannot run it", rank);
}

/// Why a rank refuses a candidate that another rank can run.
struct Refusal {
  char why[1200]{};
};

}  // namespace

Result<TuningTable> Chooser::Creator::read_table() const {
  std::string file = state.identity.config().tune_file;
  if (file.empty()) {
    CCL_TRY(file, setting_text("TUNE_FILE"));
  }
  if (file.empty()) return TuningTable{};
  return TuningTable::read(file);
}

Result<void> Chooser::Creator::compare(const std::vector<ChooserInputs>& all) {
  const int me = state.identity.rank();
  // Operations first: where they differ, lists do, too.
  for (int r = 0; r < state.identity.ranks(); ++r) {
    const std::string_view theirs = all[std::size_t(r)].operation;
    if (theirs == mine.operation) continue;
    return state.rendezvous.disagree(
        fmt::format("rank {} creates {} where rank {} creates {} (all ranks must make the same "
                    "calls in the same order)",
                    r, theirs, me, mine.operation),
        r);
  }
  for (int r = 0; r < state.identity.ranks(); ++r) {
    if (all[std::size_t(r)].list == mine.list) continue;
    return state.rendezvous.disagree(
        fmt::format("rank {} and rank {} choose {} from different lists of candidates; give all "
                    "ranks the same program",
                    me, r, made.op_),
        r);
  }
  for (int r = 0; r < state.identity.ranks(); ++r) {
    if (all[std::size_t(r)].table == mine.table) continue;
    Error error{Errc::mismatch,
                fmt::format("rank {} and rank {} go by different tables of measurements (see "
                            "CCL_TUNE_FILE and Config::tune_file); give all ranks the same",
                            me, r)};
    error.peer = r;
    return fail(state.annotate(std::move(error)));
  }
  return {};
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
  mine.list = hash_of(made.facts_);
  made.op_.copy(mine.operation, sizeof mine.operation - 1);
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
        .text("operation", of.operation)
        .why();
  }));
  if (!read) return fail(state.annotate(std::move(read).error()));
  CCL_CHECK(compare(all));
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

}  // namespace ccl::detail
