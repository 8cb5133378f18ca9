#include "comm/rank_results.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "comm/part_rules.hpp"

namespace ccl::detail {

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

Result<void> sum_up(CommState& state, std::string_view name, const Result<void>& mine,
                    const std::vector<RankResult>& all) {
  CCL_CHECK(
      check_gathered(state, all, [](const RankResult& v, int) { return wrong_rank_result(v); }));
  const auto refused =
      std::find_if(all.begin(), all.end(), [](const RankResult& v) { return v.code != 0; });
  if (refused == all.end()) return {};
  // A rank whose barrier fails still returns its own error.
  (void)state.rendezvous.bootstrap()->barrier();
  if (!mine) return fail(state.annotate(mine.error()));
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
  std::vector<RankResult> all(std::size_t(state.identity.ranks()));
  RankResult& own = all[std::size_t(state.identity.rank())];
  own = result_of(mine);
  if (edges != nullptr) own.edges = *edges;
  auto joined = state.rendezvous.after_creation(state.rendezvous.bootstrap()->all_gather(
      all.data(), Index{sizeof(RankResult)}, {}, {"the creation of", name}));
  if (!joined) return fail(mine ? std::move(joined).error() : state.annotate(mine.error()));
  if (edges != nullptr) {
    *edges = 0;
    for (const RankResult& of : all) *edges ^= of.edges;
  }
  return sum_up(state, name, mine, all);
}

}  // namespace ccl::detail
