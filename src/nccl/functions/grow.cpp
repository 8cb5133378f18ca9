// NCCL's communicators with more ranks than their parent.
#include <ccl/comm/unique_id.hpp>

#include <fmt/format.h>

#include <cstring>
#include <utility>
#include <vector>

#include "comm/state.hpp"
#include "nccl/api.hpp"
#include "nccl/functions/creation.hpp"

namespace ccl::detail::nccl {
namespace {

/// Part that each rank of the parent sends to the others: what it knows of the call.
struct GrowPart {
  int ranks = 0;
  int has_id = 0;
  UniqueId id;
};

Error differs(int mine, int rank, int theirs, int peer) {
  Error error{Errc::mismatch,
              fmt::format("rank {} grows the communicator to {} ranks, and rank {} to {}; pass the "
                          "same number on all ranks",
                          rank, mine, peer, theirs)};
  error.peer = peer;
  return error;
}

/// Returns the id that one of the ranks has. All ranks return the same, or fail alike.
Result<UniqueId> common_id(const Communicator& from, int ranks,
                           const std::optional<UniqueId>& own) {
  CommState& state = *Access::state(from);
  std::vector<GrowPart> all(std::size_t(from.ranks()));
  GrowPart& mine = all[std::size_t(from.rank())];
  mine = {ranks, own ? 1 : 0, own.value_or(UniqueId{})};
  if (from.ranks() > 1) {
    const auto lock = state.rendezvous.lock();
    CCL_CHECK(state.rendezvous.after_creation(state.rendezvous.bootstrap()->all_gather(
        all.data(), Index{sizeof(GrowPart)}, {}, {"ncclCommGrow"})));
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

Result<void> grow_existing(ncclComm_t comm, int ranks, int rank, ncclComm_t* made,
                           const ncclConfig_t* config) {
  CCL_TRY(const auto parent, member_of(comm));
  CCL_TRY(MemberConfig wanted, read_config(config, &parent->config));
  CCL_CHECK(parent->lives());
  CCL_TRY(const Communicator from, parent->ready());
  if (rank != -1) {
    return fail(Errc::invalid_argument,
                fmt::format("rank is {} on a rank that has the communicator; pass -1, it keeps its "
                            "number",
                            rank));
  }
  if (ranks <= from.ranks()) {
    return fail(Errc::invalid_argument,
                fmt::format("nRanks is {}; pass more than the {} there are", ranks, from.ranks()));
  }
  wanted.device = parent->config.device;
  Member& whole = *parent;
  std::string family = parent->next_family("grow");
  return derive(parent, wanted, std::move(family), made,
                [&whole, from, ranks, wanted](Member& whose) -> Result<void> {
                  auto id = common_id(from, ranks, whole.take_grow_id());
                  if (!id) {
                    whose.give_up(id.error());
                    return fail(std::move(id).error());
                  }
                  whose.rename(id->to_string());
                  Config plain = wanted;
                  plain.blocking = false;  // the member waits
                  return bring_up(
                      whose, [&] { return Communicator::create(*id, from.rank(), ranks, plain); });
                });
}

}  // namespace
}  // namespace ccl::detail::nccl

using namespace ccl::detail::nccl;

ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* id) {
  return answer([&]() -> ccl::Result<void> {
    CCL_CHECK(check_given(id, "uniqueId"));
    CCL_TRY(const auto member, member_of(comm));
    CCL_CHECK(member->ready());
    CCL_TRY(const auto made, member->make_grow_id());
    std::memcpy(id->internal, made.bytes.data(), sizeof id->internal);
    return {};
  });
}

ncclResult_t ncclCommGrow(ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank,
                          ncclComm_t* made, ncclConfig_t* config) {
  return answer_in_group([&]() -> ccl::Result<void> {
    CCL_CHECK(check_given(made, "newcomm"));
    *made = nullptr;
    if (comm != nullptr) return grow_existing(comm, ranks, rank, made, config);
    if (id == nullptr) {
      return ccl::fail(ccl::Errc::invalid_argument,
                       "comm and uniqueId are null; a new rank passes the id that "
                       "ncclCommGetUniqueId gave another rank");
    }
    return join(made, ranks, {id, 1}, rank, config);
  });
}

CCL_NCCL_ALSO_P(ncclCommGetUniqueId);
CCL_NCCL_ALSO_P(ncclCommGrow);
