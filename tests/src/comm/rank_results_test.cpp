// Ranks exchange whether a step of a creation has succeeded, and all return alike.
#include "comm/rank_results.hpp"

#include <vector>

#include "comm/state.hpp"
#include "support/catch.hpp"
#include "support/on_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
/// Returns what each of three ranks has after rank r contributed `codes[r]`; `no_error` for none.
constexpr auto no_error = Errc{};
std::vector<Result<void>> agreed(const std::vector<Errc>& codes) {
  return on_ranks(int(codes.size()), Config{}, [&](const Communicator& comm) -> Result<void> {
    const Errc code = codes[std::size_t(comm.rank())];
    Result<void> mine;
    if (code != no_error) mine = fail(code, "rank's own");
    detail::CommState& state = *detail::Access::state(comm);
    const auto held = state.rendezvous.lock();
    return detail::all_agree(state, "a test", mine);
  });
}
}  // namespace

TEST_CASE("a rank over its budget returns the failure of a rank that cannot go on") {
  const auto all = agreed({Errc::over_budget, Errc::out_of_memory, no_error});
  for (const auto& one : all) {
    REQUIRE_FALSE(one);
    CHECK(one.error().code == Errc::out_of_memory);
  }
  CHECK(all[0].error().peer == 1);
  CHECK(all[0].error().what.find("refused by rank 1") != std::string::npos);
}

TEST_CASE("all ranks return that one of them is over its budget") {
  const auto all = agreed({no_error, Errc::over_budget, Errc::over_budget});
  for (const auto& one : all) {
    REQUIRE_FALSE(one);
    CHECK(one.error().code == Errc::over_budget);
  }
  CHECK(all[2].error().what.find("rank's own") != std::string::npos);
}

TEST_CASE("ranks that succeed agree") {
  for (const auto& one : agreed({no_error, no_error})) CHECK(one);
}
