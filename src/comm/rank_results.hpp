#pragma once

#include <ccl/types/result.hpp>

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include "comm/state.hpp"

namespace ccl::detail {

/// How one rank fared in something that all do or none, as it tells the others.
struct RankResult {
  int code = 0;  // Errc
  int peer = -1;
  int os_code = 0;
  std::uint64_t edges = 0;
  char transport[20] = {};
  char what[480] = {};
};
static_assert(std::is_trivially_copyable_v<RankResult>);

RankResult verdict_of(const Result<void>& mine);
/// What the ranks' verdicts come to here, one for each rank: nothing, this rank's own error, or one
/// of the first rank that refused, which names it and says its words. `name` is what was to be
/// made. Collective: where a rank refused, all have heard so when this returns, and may leave. The
/// caller holds the bootstrap.
Result<void> sum_up(CommState& state, std::string_view name, const Result<void>& mine,
                    const std::vector<RankResult>& all);
/// Collective: succeeds on all ranks or fails on all. Also a barrier. The caller holds the
/// bootstrap. `edges`, if given, becomes that of all ranks by exclusive or.
Result<void> all_agree(CommState& state, std::string_view name, const Result<void>& mine,
                       std::uint64_t* edges = nullptr);

}  // namespace ccl::detail
