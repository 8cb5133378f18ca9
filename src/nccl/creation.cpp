#include "nccl/creation.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>
#include <vector>

#include "nccl/api.hpp"
#include "nccl/devices.hpp"

namespace ccl::detail::nccl {

UniqueId id_of(const ncclUniqueId& given) {
  UniqueId id;
  static_assert(sizeof id.bytes == sizeof given.internal);
  std::memcpy(id.bytes.data(), given.internal, sizeof given.internal);
  return id;
}

Result<void> check_rank(int rank, int ranks) {
  if (ranks >= 1 && rank >= 0 && rank < ranks) return {};
  return fail(Errc::invalid_argument,
              fmt::format("rank {} of {} cannot be; ranks are numbered from 0 to one less than how "
                          "many there are",
                          rank, ranks));
}

Result<void> bring_up(Member& whose, const std::function<Result<Communicator>()>& make) {
  CCL_CHECK(whose.create(make));
  return whose.config.early_signals ? whose.make_signals() : Result<void>{};
}

Result<void> join(ncclComm_t* comm, int ranks, std::span<const ncclUniqueId> given, int rank,
                  const ncclConfig_t* config) {
  CCL_CHECK(check_given(comm, "comm"));
  *comm = nullptr;
  CCL_TRY(MemberConfig wanted, read_config(config));
  CCL_CHECK(check_rank(rank, ranks));
  std::vector<UniqueId> ids;
  for (const auto& one : given) ids.push_back(id_of(one));
  if (ids.empty()) return fail(Errc::invalid_argument, "there is no id; pass one or more");
  const int device = current_device();
  wanted.device = device >= 0 ? device : Config::automatic;
  auto member = std::make_shared<Member>(device, wanted, ids.front().to_string());
  *comm = new_handle(member);
  Member& whose = *member;
  wanted.blocking = false;  // the member waits
  return Group::of_this_thread().submit(std::move(member), [&whose, ids, rank, ranks, wanted] {
    return bring_up(whose, [&] { return Communicator::create(ids, rank, ranks, wanted); });
  });
}

/// The parent's bootstrap is in use until all ranks have joined, so calls of a parent's rank run in
/// their order, as on the other ranks.
Result<void> derive(std::shared_ptr<Member> parent, const MemberConfig& wanted, std::string family,
                    ncclComm_t* made, const std::function<Result<void>(Member&)>& create) {
  auto member = std::make_shared<Member>(parent->device, wanted, std::move(family));
  *made = new_handle(member);
  Member& whose = *member;
  return Group::of_this_thread().submit(
      std::move(parent), [&whose, create] { return create(whose); }, std::move(member));
}

}  // namespace ccl::detail::nccl
