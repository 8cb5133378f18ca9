#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/stream.hpp>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nccl/abi.hpp"
#include "nccl/operations.hpp"

namespace ccl::detail::nccl {

/// A rank of a communicator, from the call that asks for it on.
class Member : public std::enable_shared_from_this<Member> {
 public:
  /// `family`: what all ranks of one communicator say, and no other's do.
  Member(int on_device, bool waits, Config asked, std::string family)
      : device{on_device}, blocking{waits}, config{std::move(asked)}, family_{std::move(family)} {}

  const int device;  // -1: none
  const bool blocking;
  const Config config;  // what it was asked for with

  /// Once. `make` returns at once, with what will be the communicator, which may be aborted from
  /// then on.
  Result<void> create(const std::function<Result<Communicator>()>& make);
  /// The same, but what fails after `make` is a failure of the communicator, which is there: on all
  /// ranks, as `make` gives it to all or to none.
  Result<void> create_for_all(const std::function<Result<Communicator>()>& make);
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
  /// What it belonged to has ended: from now on its own end waits for nobody.
  void abandon();

  /// Reductions of ncclRedOpCreatePreMulSum, each of one type.
  Result<int> add_scaling(const RedOp& op, DataType type);
  Result<void> drop_scaling(int at);
  Result<RedOp> scaling(int at, DataType type) const;
  /// What all ranks of a communicator that is made from this one now call it: `how` it is made
  /// tells those who have a part in it.
  std::string next_family(const std::string& how);

 private:
  Result<void> bring_up(const std::function<Result<Communicator>()>& make, bool may_have_failed);
  Result<void> check_ready() const;          // under the mutex
  Result<void> check_scaling(int at) const;  // likewise
  bool leave();

  const std::string family_;
  std::mutex calls_;                        // one at a time
  mutable std::mutex mutex_;                // guards what stands below
  std::optional<Communicator> comm_;        // set before it is ready
  std::unique_ptr<Operations> operations_;  // null where the communicator failed before
  std::optional<Result<void>> created_;
  bool left_ = false, aborted_ = false;
  std::map<std::string, int> children_;  // made so far, by how
  std::vector<std::optional<std::pair<RedOp, DataType>>> scalings_;
  std::optional<HostStream> worker_;
};

ncclComm_t new_handle(std::shared_ptr<Member> member);
/// The rank behind a handle; `Errc::invalid_argument` for a null or an ended one.
Result<std::shared_ptr<Member>> member_of(ncclComm_t comm);
/// The same, and from now on the handle is ended.
Result<std::shared_ptr<Member>> take_from(ncclComm_t comm);

}  // namespace ccl::detail::nccl
