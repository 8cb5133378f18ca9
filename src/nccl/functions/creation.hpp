#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/unique_id.hpp>

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "nccl/abi/abi.hpp"
#include "nccl/abi/config.hpp"
#include "nccl/member.hpp"

namespace ccl::detail::nccl {

UniqueId id_of(const ncclUniqueId& given);
/// Returns the id for the ranks of a new communicator. As in NCCL, it is the same on all ranks if
/// NCCL_COMM_ID names an address, and rank 0 listens there when it joins. Else it is a new one.
Result<UniqueId> new_id();
/// Fails with `Errc::invalid_argument` unless 0 <= rank < ranks.
Result<void> check_rank(int rank, int ranks);
/// Creates the communicator of a member, and its signals if its configuration wants them early.
/// `function`: the program's call, for the log.
Result<void> bring_up(Member& whose, const char* function,
                      const std::function<Result<Communicator>()>& make);
/// Completes a member whose communicator was created by other means.
Result<void> complete(Member& whose, const char* function);
/// Creates a rank from ids, with its handle. `change` may set more of its configuration.
Result<void> join(ncclComm_t* comm, int ranks, std::span<const ncclUniqueId> given, int rank,
                  const ncclConfig_t* config, const char* function,
                  const std::function<void(MemberConfig&)>& change = {});
/// Name of a communicator that is derived from another one, and the rank's place that the program
/// asks for.
struct Derived {
  std::string family;
  int color = 0, key = 0;
};
/// Creates a rank of a communicator derived from `parent`, with its handle. `create` runs in the
/// order of the parent's calls.
Result<void> derive(std::shared_ptr<Member> parent, const MemberConfig& wanted, Derived what,
                    ncclComm_t* made, const std::function<Result<void>(Member&)>& create);

}  // namespace ccl::detail::nccl
