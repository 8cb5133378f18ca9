#pragma once

#include <ccl/types/result.hpp>

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include "comm/state.hpp"

namespace ccl::detail {

/// Result of one rank in a step that must succeed on all ranks; exchanged between ranks if one has
/// failed.
struct RankResult {
  int code = 0;  // Errc
  int peer = -1;
  int os_code = 0;
  char transport[20] = {};
  char what[480] = {};
};
static_assert(std::is_trivially_copyable_v<RankResult>);

RankResult result_of(const Result<void>& mine);
/// Gathers the results of all ranks, of which one has failed. Returns the error of this rank, or
/// else that of the first failed rank, and acts as a barrier. A rank that is only over its budget
/// returns another rank's failure, if there is one: the code decides how a creation goes on. `name`
/// names the object to be created. Collective; the caller holds the bootstrap.
Result<void> first_failure(CommState& state, std::string_view name, const Result<void>& mine);
/// Succeeds on all ranks or fails on all, and acts as a barrier. Sets `edges`, which is optional,
/// to the exclusive or over all ranks. Collective; the caller holds the bootstrap.
Result<void> all_agree(CommState& state, std::string_view name, const Result<void>& mine,
                       std::uint64_t* edges = nullptr);

}  // namespace ccl::detail
