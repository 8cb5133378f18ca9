#include "nccl/functions/grow_id.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "comm/part_rules.hpp"
#include "comm/state.hpp"
#include "nccl/abi/part_rules.hpp"

namespace ccl::detail::nccl {
namespace {

Error differs(int mine, int rank, int theirs, int peer) {
  Error error{Errc::mismatch,
              fmt::format("rank {} grows the communicator to {} ranks, and rank {} to {}; pass the "
                          "same number on all ranks",
                          rank, mine, peer, theirs)};
  error.peer = peer;
  return error;
}

}  // namespace

Result<UniqueId> grow_id(const Communicator& from, int ranks, const std::optional<UniqueId>& own) {
  CommState& state = *Access::state(from);
  std::vector<GrowPart> all(std::size_t(from.ranks()));
  GrowPart& mine = all[std::size_t(from.rank())];
  mine = {ranks, own ? 1 : 0, own.value_or(UniqueId{})};
  if (from.ranks() > 1) {
    const auto lock = state.rendezvous.lock();
    CCL_CHECK(state.rendezvous.after_creation(state.rendezvous.bootstrap()->all_gather(
        all.data(), Index{sizeof(GrowPart)}, {}, {"ncclCommGrow"})));
    CCL_CHECK(check_gathered(state, all, [&from](const GrowPart& of, int) {
      return wrong_grow_part(of, from.ranks());
    }));
  }
  const GrowPart* with_id = nullptr;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].ranks != all[0].ranks) {
      return fail(differs(all[0].ranks, 0, all[r].ranks, int(r)));
    }
    if (all[r].has_id == 0) continue;
    if (with_id != nullptr) {
      return fail(Errc::invalid_usage,
                  "two ranks have called ncclCommGetUniqueId; call it on one of them");
    }
    with_id = &all[r];
  }
  if (with_id != nullptr) return with_id->id;
  return fail(
      Errc::invalid_usage,
      "no rank has an id for the new ranks; call ncclCommGetUniqueId on one of them before");
}

}  // namespace ccl::detail::nccl
