#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "observe/health/snapshot.hpp"

namespace ccl::detail::health {

/// Communicator whose ranks are asked. It needs nothing of the communicator itself, which may end
/// meanwhile.
struct Asked {
  CommView view;  // its ranks have places and no statuses, except the rank of this process
  // Null in a communicator of one rank.
  std::function<std::vector<std::vector<std::byte>>(double limit_s)> statuses;
  std::function<std::vector<std::string>()> addresses;
};

/// Asks the ranks of all communicators at once, each for at most `limit_s` and the time of one
/// connection.
Snapshot gather(std::vector<Asked> all, double limit_s);

/// Reads what a rank has sent into `of`. Leaves it without an answer if it does not fit.
void read_status(const std::vector<std::byte>& bytes, int rank, int ranks, RankView& of);

}  // namespace ccl::detail::health
