#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/registered_buffer.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/comm/unique_id.hpp>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nccl/abi/abi.hpp"
#include "nccl/abi/config.hpp"
#include "nccl/abi/operations.hpp"
#include "nccl/abi/rows.hpp"
#include "nccl/device/signals.hpp"
#include "nccl/family.hpp"
#include "nccl/log/lines.hpp"

namespace ccl::detail::nccl {

struct RegisteredWindow;
class KernelComm;
class WindowTable;

/// A rank of a communicator, from the creating call on.
class Member : public std::enable_shared_from_this<Member> {
 public:
  /// `family` is a name that all ranks of one communicator share, and no others. `origin`: see
  /// `LoggedRank`.
  Member(int on_device, MemberConfig asked, std::string family, std::string origin = {})
      : device{on_device},
        blocking{asked.blocking},
        config{std::move(asked)},
        origin_{std::move(origin)},
        family_{std::move(family)} {}

  const int device;           // -1: none
  const bool blocking;        // false: calls that wait are deferred
  const MemberConfig config;  // requested configuration

  /// Creates the communicator, once. `make` returns it at once, before it is complete, and it may
  /// be aborted from then on.
  Result<void> create(const std::function<Result<Communicator>()>& make);
  /// Creates the communicator, once. `make` returns it on all ranks or on none. A later failure is
  /// therefore a failure of the existing communicator.
  Result<void> create_for_all(const std::function<Result<Communicator>()>& make);
  /// Records that the communicator will not be created.
  void give_up(const Error& why) noexcept;
  /// Returns the communicator once it is complete.
  Result<Communicator> ready() const;
  /// Fails as calls do: if it is not complete, is revoked, finalized or suspended.
  Result<void> usable() const;
  /// Fails as `usable` does, and not for one that is suspended.
  Result<void> lives() const;
  /// True if its creation has ended, with or without success.
  bool created() const;
  /// Current result of the creation and of the communicator, or the failure of the last deferred
  /// steps.
  Result<void> status() const;
  /// Description of the rank for the log. A communicator that is not created has no ranks yet.
  LoggedRank logged() const;
  /// The communicator of the real NCCL, for what ccl cannot do; null: there is none (yet).
  std::shared_ptr<RealRank> real() const;
  /// Number of calls before this one, for the log.
  std::uint64_t count_call() { return calls_made_.fetch_add(1, std::memory_order_relaxed); }

  /// Runs the step later, in the order of these calls, on a thread that ends when none is left.
  /// Its failure is `status` until the next one is deferred.
  Result<void> defer(std::function<Result<void>()> step);
  /// True if deferred steps have not run yet.
  bool is_busy() const;
  /// Waits for deferred steps.
  void wait_deferred();

  /// Passes the operations to `call`, for one thread at a time. Fails with `Errc::invalid_usage`
  /// while the communicator is suspended, and after it was revoked.
  Result<void> use(const std::function<Result<void>(Operations&)>& call);
  /// Passes the calls on rows to `call`, as `use` does. They are null before the first call.
  Result<void> use_rows(const std::function<Result<void>(std::unique_ptr<RowCalls>&)>& call);
  /// Fails with `Errc::invalid_argument` if the call names a rank that does not exist. A
  /// communicator that is being created has no ranks yet.
  Result<void> check_ranks(const Call& call) const;

  /// Thread for the member's part of a group of several ranks' calls.
  HostStream& worker();

  /// Ends the communicator, once. One thread may end ranks of one process one after the other: only
  /// the last one waits. See `leave_family`.
  Result<void> end(EndWaits waits);
  /// Ends the communicator for ncclCommFinalize. Fails with `Errc::invalid_argument` the second
  /// time.
  Result<void> finalize();
  /// Ends running operations, here and on other ranks. Waits for no rank.
  void abort();
  /// Records that the communicator was aborted: its end waits for no rank.
  void abandon();
  /// Ends running operations. Calls are refused from now on, and others can be derived.
  Result<void> revoke();
  bool is_revoked() const;

  /// Creates the id of the next ncclCommGrow. Fails with `Errc::invalid_usage` if one is unused.
  Result<UniqueId> make_grow_id();
  std::optional<UniqueId> take_grow_id();
  /// Sets the family before the creation, if it was not known earlier.
  void rename(std::string family);
  std::string family() const;

  /// Gives GPU memory back, and refuses calls from then on. Collective. A communicator that all
  /// ranks have revoked gives it back for good.
  Result<void> suspend();
  /// Takes the memory again. If that fails, on all ranks, the communicator stays suspended.
  Result<void> resume();
  bool is_suspended() const;

  /// Creates the counters of signals, once. Collective.
  Result<void> make_signals();
  /// Fails with `Errc::invalid_usage` if there are none.
  Result<std::shared_ptr<Signals>> signals() const;

  /// Registers memory with the NICs. Returns its handle, which counts until `drop_memory` or until
  /// this object is destroyed.
  Result<void*> add_memory(void* memory, std::size_t bytes);
  /// Fails with `Errc::invalid_argument` if it is no handle.
  Result<void> drop_memory(const void* handle);

  /// Keeps a window until `drop_window`, or until this object is destroyed. Kernels find it from
  /// then on; it is not kept if that fails.
  Result<void> add_window(std::shared_ptr<RegisteredWindow> window);
  bool has_window(const RegisteredWindow* window) const;
  /// Returns false if this rank does not have the window.
  bool drop_window(const RegisteredWindow* window);

  /// Creates the rank's communicator of kernels from an ncclDevCommRequirements, and writes its
  /// ncclDevComm. Kept until `drop_kernel_comm`, or until this object is destroyed. Collective.
  Result<void> make_kernel_comm(const void* wants, void* made);
  bool has_kernel_comm() const;
  /// Fails with `Errc::invalid_argument` if it is no ncclDevComm of this rank.
  Result<void> drop_kernel_comm(const void* dev_comm);

  /// Adds a reduction of ncclRedOpCreatePreMulSum, which has one type. Returns its number, which
  /// none of the last 2^31 reductions of the process has.
  int add_scaling(const RedOp& op, DataType type);
  Result<void> drop_scaling(int number);
  Result<RedOp> scaling(int number, DataType type) const;
  /// Name of the next communicator derived from this one, equal on all of its ranks. `how`
  /// distinguishes the communicators of one derivation.
  std::string next_family(const std::string& how);
  /// Counts a communicator that is derived from this one. Returns how, for the log of its rank.
  std::string count_child(int color, int key);

 private:
  Result<void> bring_up(const std::function<Result<Communicator>()>& make, bool may_have_failed);
  bool was_ended_by_peer(const Communicator& comm) const;
  void run_deferred();
  Result<void> check_ready() const;                    // under the mutex
  Result<void> check_not_finalized() const;            // under the mutex
  Result<void> check_lives() const;                    // under the mutex
  Result<void> check_usable() const;                   // under the mutex
  Result<std::size_t> find_scaling(int number) const;  // needs the mutex, too
  Result<WindowTable*> window_table();
  bool leave();

  friend ncclComm_t new_handle(std::shared_ptr<Member> member);
  const void* handle_ = nullptr;  // the program's, for the log
  const std::string origin_;
  std::string family_;  // constant once it is created
  std::optional<UniqueId> grow_id_;
  std::atomic<std::uint64_t> calls_made_{0};
  std::mutex calls_;                        // one at a time
  mutable std::mutex mutex_;                // guards the members below
  std::optional<Communicator> comm_;        // set before it is ready
  std::unique_ptr<Operations> operations_;  // null if the communicator failed earlier
  std::shared_ptr<RealRank> real_;
  std::unique_ptr<RowCalls> rows_;  // null before the first call
  std::optional<Result<void>> created_;
  bool left_ = false, aborted_ = false, revoked_ = false, suspended_ = false, finalized_ = false;
  std::shared_ptr<Signals> signals_;
  std::deque<std::function<Result<void>()>> deferred_;
  std::atomic<bool> deferring_{false};  // a thread runs the deferred steps; set under the mutex
  Result<void> deferred_result_;
  std::condition_variable deferred_ended_;
  std::map<std::string, int> children_;  // number made so far, by `how`
  int child_count_ = 0;                  // of `count_child`
  struct Scaling {
    int number;
    RedOp op;
    DataType type;
  };
  std::vector<Scaling> scalings_;
  std::optional<HostStream> worker_;
  std::list<RegisteredBuffer> memory_;  // a handle is the address of one
  std::vector<std::shared_ptr<RegisteredWindow>> windows_;
  std::shared_ptr<WindowTable> window_table_;  // null before the first communicator of kernels
  std::vector<std::shared_ptr<KernelComm>> kernel_comms_;
};

ncclComm_t new_handle(std::shared_ptr<Member> member);
/// Rank of a handle; fails with `Errc::invalid_argument` for a null or an ended one.
Result<std::shared_ptr<Member>> member_of(ncclComm_t comm);
/// Rank of a handle, which is ended from now on.
Result<std::shared_ptr<Member>> take_from(ncclComm_t comm);

}  // namespace ccl::detail::nccl
