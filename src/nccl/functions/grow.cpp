// NCCL's communicators with more ranks than their parent.
#include <ccl/comm/unique_id.hpp>

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "nccl/api.hpp"
#include "nccl/functions/creation.hpp"
#include "nccl/functions/grow_id.hpp"

namespace ccl::detail::nccl {
namespace {

void log_grow_start(LoggedRank starts, int rank, int ranks) {
  starts.origin.clear();  // the line is that of all ranks, of which new ones have no parent
  starts.log_start(fmt::format("[Rank {}] ncclCommGrow", rank).c_str(), rank, ranks);
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
  return derive(parent, wanted, {.family = std::move(family)}, made,
                [&whole, from, ranks, wanted](Member& whose) -> Result<void> {
                  auto id = grow_id(from, ranks, whole.take_grow_id());
                  if (!id) {
                    whose.give_up(id.error());
                    return fail(std::move(id).error());
                  }
                  whose.rename(id->to_string());
                  log_grow_start(whose.logged(), from.rank(), ranks);
                  Config plain = wanted;
                  plain.blocking = false;  // the member waits
                  return bring_up(whose, "ncclCommGrow", [&] {
                    return Communicator::create(*id, from.rank(), ranks, plain);
                  });
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
    return join(made, ranks, {id, 1}, rank, config, "ncclCommGrow");
  });
}

CCL_NCCL_ALSO_P(ncclCommGetUniqueId);
CCL_NCCL_ALSO_P(ncclCommGrow);
