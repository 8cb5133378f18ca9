#include "nccl/determinism.hpp"

#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <vector>

#include "comm/state.hpp"

namespace ccl::detail::nccl {

Result<bool> wants_one_order(const Communicator& comm) {
  const auto wanted = setting_flag("DETERMINISTIC");
  if (comm.ranks() == 1) return wanted;
  constexpr int bad = 2;  // a setting that cannot be must not leave the others waiting
  CommState& state = *Access::state(comm);
  std::vector<int> all(std::size_t(comm.ranks()));
  all[std::size_t(comm.rank())] = wanted ? int(*wanted) : bad;
  {
    const auto lock = state.rendezvous.lock();
    CCL_CHECK(state.rendezvous.after_creation(state.rendezvous.bootstrap()->all_gather(
        all.data(), Index{sizeof(int)}, {}, {"CCL_DETERMINISTIC"})));
  }
  if (!wanted) return wanted;
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    Error error{Errc::mismatch,
                fmt::format("CCL_DETERMINISTIC is {} on rank 0 and {} on rank {}; set it alike on "
                            "all ranks",
                            all[0], all[r], r)};
    error.peer = int(r);
    return fail(std::move(error));
  }
  return wanted;
}

}  // namespace ccl::detail::nccl
