#pragma once

#include <ccl/communicator.hpp>
#include <ccl/host_stream.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "nccl/abi.hpp"
#include "nccl/operations.hpp"

namespace ccl::nccl {

/// A rank of a communicator, from the call that asks for it on.
class Member : public std::enable_shared_from_this<Member> {
 public:
  /// `family`: what all ranks of one communicator say, and no other's do.
  Member(int on_device, bool waits, std::string family)
      : device{on_device}, blocking{waits}, family_{std::move(family)} {}

  const int device;  // -1: none
  const bool blocking;

  /// Once. `make` returns at once, with what will be the communicator, which may be aborted from
  /// then on.
  Result<void> create(const std::function<Result<Communicator>()>& make);
  /// It will never be made.
  void give_up(const Error& why);
  /// The communicator, once all of it is there.
  Result<Communicator> ready() const;
  /// Whether its creation has ended, well or not.
  bool created() const;
  /// What became of it so far.
  Result<void> status() const;

  /// The operations, for one thread at a time.
  Result<void> use(const std::function<Result<void>(Operations&)>& call);

  /// A thread for its part of a group of several ranks' calls.
  HostStream& worker();

  /// The graceful end, once; it waits for all ranks. Ranks of one process may end one after the
  /// other by one thread: only the last one waits.
  Result<void> end();
  /// Ends what runs, here and elsewhere, and waits for nobody.
  void abort();

  /// Reductions of ncclRedOpCreatePreMulSum.
  Result<int> add_scaling(const RedOp& op);
  Result<void> drop_scaling(int at);
  Result<RedOp> scaling(int at) const;
  /// What all ranks of a communicator that is split from this one now call it.
  std::string next_family(int color);

 private:
  Result<void> check_ready() const;  // under the mutex
  bool leave();

  const std::string family_;
  std::mutex calls_;                  // one at a time
  mutable std::mutex mutex_;          // guards what stands below
  std::optional<Communicator> comm_;  // set before it is ready
  std::unique_ptr<Operations> operations_;
  std::optional<Result<void>> created_;
  bool left_ = false, aborted_ = false;
  int splits_ = 0;
  std::vector<std::optional<RedOp>> scalings_;
  std::optional<HostStream> worker_;
};

ncclComm_t new_handle(std::shared_ptr<Member> member);
/// The rank behind a handle; `Errc::invalid_argument` for a null or an ended one.
Result<std::shared_ptr<Member>> member_of(ncclComm_t comm);
/// The same, and from now on the handle is ended.
Result<std::shared_ptr<Member>> take_from(ncclComm_t comm);

}  // namespace ccl::nccl
