#include "comm/rank_results.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "comm/part_rules.hpp"

namespace ccl::detail {

namespace {
/// Part of a result that all ranks need, if all are well.
struct RankCode {
  std::int64_t code = 0;  // Errc
  std::uint64_t edges = 0;
};
}  // namespace

RankResult result_of(const Result<void>& mine) {
  RankResult result;
  if (mine) return result;
  const Error& error = mine.error();
  result.code = int(error.code);
  result.peer = error.peer;
  result.os_code = error.os_code;
  error.transport.copy(result.transport, sizeof result.transport - 1);
  error.what.copy(result.what, sizeof result.what - 1);
  return result;
}

Result<void> first_failure(CommState& state, std::string_view name, const Result<void>& mine) {
  std::vector<RankResult> all(std::size_t(state.identity.ranks()));
  all[std::size_t(state.identity.rank())] = result_of(mine);
  auto joined = state.rendezvous.after_creation(state.rendezvous.bootstrap()->all_gather(
      all.data(), Index{sizeof(RankResult)}, {}, {"the creation of", name}));
  if (!joined) return fail(mine ? std::move(joined).error() : state.annotate(mine.error()));
  CCL_CHECK(
      check_gathered(state, all, [](const RankResult& v, int) { return wrong_rank_result(v); }));
  auto refused =
      std::find_if(all.begin(), all.end(), [](const RankResult& v) { return v.code != 0; });
  if (refused == all.end()) return {};  // on all ranks: they have the same results
  // A rank whose barrier fails still returns its own error.
  (void)state.rendezvous.bootstrap()->barrier();
  // A candidate of `Auto` that is over the budget is left out, and any other failure ends the
  // creation. So all ranks return the other one, if there are both.
  constexpr int skips = int(Errc::over_budget);
  const auto ends = std::find_if(
      all.begin(), all.end(), [](const RankResult& v) { return v.code != 0 && v.code != skips; });
  const bool ended = ends != all.end();
  if (!mine && (!ended || mine.error().code != Errc::over_budget)) {
    return fail(state.annotate(mine.error()));
  }
  if (ended) refused = ends;
  const int rank = int(refused - all.begin());
  Error error;
  error.code = Errc(refused->code);
  error.peer = rank;
  error.os_code = refused->os_code;
  error.transport = refused->transport;
  error.what = fmt::format("{} is refused by rank {} ({})", name, rank, refused->what);
  return fail(state.annotate(std::move(error)));
}

Result<void> all_agree(CommState& state, std::string_view name, const Result<void>& mine,
                       std::uint64_t* edges) {
  std::vector<RankCode> all(std::size_t(state.identity.ranks()));
  RankCode& own = all[std::size_t(state.identity.rank())];
  own.code = mine ? 0 : std::int64_t(mine.error().code);
  if (edges != nullptr) own.edges = *edges;
  auto joined = state.rendezvous.after_creation(state.rendezvous.bootstrap()->all_gather(
      all.data(), Index{sizeof(RankCode)}, {}, {"the creation of", name}));
  if (!joined) return fail(mine ? std::move(joined).error() : state.annotate(mine.error()));
  if (edges != nullptr) {
    *edges = 0;
    for (const RankCode& of : all) *edges ^= of.edges;
  }
  const auto well = [](const RankCode& of) { return of.code == 0; };
  if (std::all_of(all.begin(), all.end(), well)) return {};
  return first_failure(state, name, mine);
}

}  // namespace ccl::detail
