#include "nccl/abi/determinism.hpp"

#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "comm/rank_results.hpp"
#include "comm/state.hpp"

namespace ccl::detail::nccl {

Result<bool> wants_one_order(const Communicator& comm) {
  const auto wanted = setting_flag("DETERMINISTIC");
  if (comm.ranks() == 1) return wanted;
  constexpr int bad = 2;  // a setting that cannot be must not leave the others waiting
  CommState& state = *Access::state(comm);
  std::vector<int> all(std::size_t(comm.ranks()));
  all[std::size_t(comm.rank())] = wanted ? int(*wanted) : bad;
  const auto lock = state.rendezvous.lock();
  CCL_CHECK(state.rendezvous.after_creation(state.rendezvous.bootstrap()->all_gather(
      all.data(), Index{sizeof(int)}, {}, {"CCL_DETERMINISTIC"})));
  const auto other = std::ranges::find_if(all, [&](int one) { return one != all[0]; });
  if (other == all.end()) return wanted;
  const auto rank = int(other - all.begin());
  Error error{Errc::mismatch,
              fmt::format("CCL_DETERMINISTIC is {} on rank 0 and {} on rank {}; set it alike on "
                          "all ranks",
                          all[0], *other, rank)};
  error.peer = rank;
  const Result<void> mine = fail(wanted ? std::move(error) : wanted.error());
  // No rank ends its communicator before all know the difference.
  (void)all_agree(state, "CCL_DETERMINISTIC", mine);
  return fail(mine.error());
}

}  // namespace ccl::detail::nccl
