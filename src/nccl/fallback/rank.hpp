#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/types/result.hpp>

#include <atomic>
#include <memory>
#include <utility>

#include "comm/peer_waits.hpp"
#include "nccl/abi/config.hpp"
#include "nccl/device/devices.hpp"
#include "nccl/fallback/library.hpp"

namespace ccl::detail::nccl {

/// One rank's communicator of the real NCCL, beside that of ccl. All ranks of a communicator have
/// one, or none has.
class RealRank {
 public:
  /// Creates it on all ranks, with the program's configuration. Returns null on all ranks, and says
  /// why in the log, if NCCL's versions differ between them or if it fails on one of them.
  /// Collective.
  static Result<std::shared_ptr<RealRank>> create(const Communicator& comm, const RealNccl& library,
                                                  const MemberConfig& config);
  ~RealRank();
  RealRank(const RealRank&) = delete;
  RealRank& operator=(const RealRank&) = delete;

  const RealNccl& library() const { return library_; }
  ncclComm_t comm() const { return comm_; }
  /// The communicator of ccl.
  const Communicator& beside() const { return beside_; }
  /// Calls a function of the library, whose name begins with "nccl". It may wait for other ranks.
  template <class F, class... Args>
  Result<void> call(F* function, const char* name, Args... args) const {
    if (function == nullptr) return lacks(name);
    CCL_CHECK(check_may_wait());
    const OnDevice here{device_};
    return finish(function(args...), name, limit_s_);
  }
  /// Suspends the communicator, if the library can. A failure is logged: its memory then stays.
  void suspend();
  /// Resumes it, if it is suspended.
  Result<void> resume();
  /// Ends the communicator, and its windows, once: behind this rank's work.
  void end();
  /// Ends it without waiting for work.
  void abort();

 private:
  RealRank(const RealNccl& library, const Communicator& beside);
  /// Waits until a call is done: at most `limit_s` seconds (0: no limit), and no longer than ccl's
  /// communicator is well.
  Result<void> finish(ncclResult_t code, const char* name, double limit_s) const;
  Result<void> join(const ncclUniqueId& id, const MemberConfig& asked);
  void end_by(ncclResult_t (*how)(ncclComm_t));
  Result<void> lacks(const char* name) const;

  const RealNccl& library_;
  const Communicator beside_;
  const int device_;
  const double limit_s_;                   // of a call
  std::atomic<ncclComm_t> comm_{nullptr};  // null: it has ended
  bool suspended_ = false;                 // for the thread that suspends and resumes
};

/// Returns the rank whose library made a window; null: ccl made it. The rank has not ended.
std::shared_ptr<const RealRank> maker_of(ncclWindow_t window);
/// Records that the library of `rank` made a window, or that it no longer exists.
void keep_window(const std::shared_ptr<const RealRank>& rank, ncclWindow_t window);
void forget_window(ncclWindow_t window);

}  // namespace ccl::detail::nccl
