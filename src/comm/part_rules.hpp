#pragma once

#include <ccl/detail/runtime/call_info.hpp>
#include <ccl/types/peer_info.hpp>

#include <string>
#include <vector>

#include "comm/rank_results.hpp"
#include "comm/state.hpp"

namespace ccl::detail {

// Rules of the parts that ranks gather. Each returns what does not fit, or an empty text.

std::string wrong_peer_info(const PeerInfo& peer, int rank);
std::string wrong_rank_result(const RankResult& result);
std::string wrong_call(const CallInfo& call, int ranks);

/// Checks the part of each rank before any is used. If one does not fit, all ranks fail with an
/// error that names its rank and this one. `wrong(part, rank)` returns what does not fit.
template <class Part, class Wrong>
Result<void> check_gathered(CommState& state, const std::vector<Part>& all, Wrong wrong) {
  for (int r = 0; r < int(all.size()); ++r) {
    if (const std::string why = wrong(all[std::size_t(r)], r); !why.empty()) {
      return state.rendezvous.break_off(r, why);
    }
  }
  return {};
}

}  // namespace ccl::detail
