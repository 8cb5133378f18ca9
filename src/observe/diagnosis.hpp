#pragma once

#include <ccl/comm/report.hpp>

#include <vector>

namespace ccl::detail {

/// Finds the rank that is behind, as `ccl::diagnose` does. The processes of the ranks in `departed`
/// have exited: such a rank is behind only if another one waits for it.
Report diagnose(std::vector<RankStatus> ranks, int asking, std::vector<int> departed);

}  // namespace ccl::detail
