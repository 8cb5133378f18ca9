#include <fmt/format.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"
#include "nccl/member.hpp"

/// Target of NCCL's handle. Handles are small and never freed, so a late use is detected.
struct ncclComm {
  std::atomic<std::shared_ptr<ccl::detail::nccl::Member>> member;
};

namespace ccl::detail::nccl {
namespace {

struct Handles {
  std::deque<ncclComm> all;
  ForkMutex mutex{[this] { renew(all); }};
};
// Never destroyed: ranks may be ending while the process exits.
Handles& handles() {
  static constinit MadeOnce<Handles> all;
  return all.get();
}

cuda::std::unexpected<Error> no_handle(const char* what) {
  return fail(Errc::invalid_argument, fmt::format("the communicator {}; pass one that ncclCommInit"
                                                  "Rank or ncclCommSplit gave",
                                                  what));
}

}  // namespace

ncclComm_t new_handle(std::shared_ptr<Member> member) {
  const std::lock_guard lock{handles().mutex};
  ncclComm& handle = handles().all.emplace_back();
  member->handle_ = &handle;
  handle.member = std::move(member);
  return &handle;
}
Result<std::shared_ptr<Member>> member_of(ncclComm_t comm) {
  if (comm == nullptr) return no_handle("is null");
  auto member = comm->member.load();
  if (!member) return no_handle("has ended");
  return member;
}
Result<std::shared_ptr<Member>> take_from(ncclComm_t comm) {
  if (comm == nullptr) return no_handle("is null");
  auto member = comm->member.exchange(nullptr);
  if (!member) return no_handle("has ended");
  return member;
}

}  // namespace ccl::detail::nccl
