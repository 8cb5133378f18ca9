#include "nccl/member.hpp"

#include <fmt/format.h>

#include <thread>
#include <utility>

#include "base/exceptions.hpp"
#include "base/thread.hpp"
#include "comm/state.hpp"
#include "nccl/errors.hpp"
#include "nccl/fallback/rank.hpp"
#include "nccl/plug_in/profiler.hpp"

namespace ccl::detail::nccl {
namespace {

constexpr const char* abort_called = "ncclCommAbort was called";

}  // namespace

/// True if another rank has aborted or revoked the communicator. Such a rank may have created it,
/// and not have waited for this one. As in NCCL, that is no failure of the creation here.
bool Member::was_ended_by_peer(const Communicator& comm) const {
  const auto well = comm.status();
  if (well || well.error().code != Errc::aborted || well.error().peer == comm.rank()) return false;
  const std::lock_guard lock{mutex_};
  return well.error().peer >= 0 && !aborted_;
}

Result<void> Member::create(const std::function<Result<Communicator>()>& make) {
  return bring_up(make, false);
}
Result<void> Member::create_for_all(const std::function<Result<Communicator>()>& make) {
  return bring_up(make, true);
}

Result<void> Member::bring_up(const std::function<Result<Communicator>()>& make,
                              bool may_have_failed) {
  const auto all_of_it = [&]() -> Result<void> {
    CCL_TRY(Communicator comm, make());
    {
      const std::lock_guard lock{mutex_};
      comm_ = comm;
      if (aborted_) comm.abort(abort_called);
    }
    if (auto well = comm.wait(); !well && !may_have_failed) return well;
    // Before connections are made. A communicator that has failed has none.
    auto profile = comm.status() ? start_profile(comm, family_, config.name) : CommProfilePtr{};
    auto operations = Operations::create(comm, config);
    if (!operations && (comm.status() || !(may_have_failed || was_ended_by_peer(comm)))) {
      return fail(std::move(operations).error());
    }
    std::unique_ptr<Operations> around;
    std::shared_ptr<RealRank> real;
    if (operations) {
      real = (*operations)->real();
      around = log_choices(profiled(*std::move(operations), std::move(profile)));
    }
    const std::lock_guard lock{mutex_};
    operations_ = std::move(around);
    real_ = std::move(real);
    return {};
  };
  Result<void> done = without_exceptions([&]() -> Result<void> {
    CCL_CHECK(all_of_it());
    join_family(family_, comm_->ranks());
    return {};
  });
  const std::lock_guard lock{mutex_};
  created_ = done;
  left_ = !done;  // never to leave
  return done;
}

void Member::give_up(const Error& why) noexcept {
  const std::lock_guard lock{mutex_};
  if (created_) return;
  created_ = without_exceptions([&]() -> Result<void> { return fail(why); });
  left_ = true;
}

Result<void> Member::check_ready() const {
  if (created_) return *created_;
  return fail(Errc::invalid_argument,
              "the communicator is still being made; wait until ncclCommGetAsyncError no longer "
              "says ncclInProgress");
}

Result<Communicator> Member::ready() const {
  const std::lock_guard lock{mutex_};
  CCL_CHECK(check_ready());
  return *comm_;
}

bool Member::created() const {
  const std::lock_guard lock{mutex_};
  return created_.has_value();
}

Result<void> Member::status() const {
  {
    const std::lock_guard lock{mutex_};
    if (deferring_) return fail(Errc::in_progress, "a call of the communicator is not done yet");
    if (!created_) return fail(Errc::in_progress, "the communicator is still being made");
    if (!*created_) return *created_;
    if (!deferred_result_) return deferred_result_;
    if (left_ || revoked_) return {};
  }
  return comm_->status();
}

Result<void> Member::defer(std::function<Result<void>()> step) {
  {
    const std::lock_guard lock{mutex_};
    deferred_.push_back(std::move(step));
    if (deferring_.exchange(true)) return {};
    deferred_result_ = {};
  }
  auto thread =
      own_thread("calls that do not block", [self = shared_from_this()] { self->run_deferred(); });
  if (thread) {
    thread->detach();
    return {};
  }
  const std::lock_guard lock{mutex_};
  deferred_.clear();
  deferring_ = false;
  deferred_ended_.notify_all();
  return fail(std::move(thread).error());
}

void Member::run_deferred() {
  std::unique_lock lock{mutex_};
  while (!deferred_.empty()) {
    auto step = std::move(deferred_.front());
    deferred_.pop_front();
    lock.unlock();
    auto done = without_exceptions(step);
    (void)tell(done);
    step = nullptr;  // what it holds may take the mutex
    lock.lock();
    if (!done && deferred_result_) deferred_result_ = std::move(done);
  }
  deferring_ = false;
  deferred_ended_.notify_all();
}

LoggedRank Member::logged() const {
  LoggedRank mine{.handle = handle_, .device = device, .origin = origin_};
  const std::lock_guard lock{mutex_};
  mine.id = std::hash<std::string>{}(family_);
  if (!comm_) return mine;
  mine.rank = comm_->rank();
  mine.ranks = comm_->ranks();
  if (created_) mine.bus_id = comm_->peer(mine.rank).bus_id;
  return mine;
}

std::shared_ptr<RealRank> Member::real() const {
  const std::lock_guard lock{mutex_};
  return real_;
}

bool Member::is_busy() const {
  return deferring_;
}

void Member::wait_deferred() {
  if (!deferring_) return;
  std::unique_lock lock{mutex_};
  deferred_ended_.wait(lock, [this] { return !deferring_; });
}

Result<void> Member::check_lives() const {
  CCL_CHECK(check_ready());
  if (revoked_) {
    return fail(Errc::invalid_usage,
                "ncclCommRevoke was called on this communicator; split or shrink it, and use what "
                "that makes");
  }
  return check_not_finalized();
}

Result<void> Member::check_not_finalized() const {
  CCL_CHECK(check_ready());
  if (!finalized_) return {};
  Error error{Errc::invalid_usage, "the communicator has been finalized; make a new one"};
  error.rank = comm_->rank();
  return fail(std::move(error));
}

Result<void> Member::lives() const {
  const std::lock_guard lock{mutex_};
  return check_lives();
}

Result<void> Member::check_usable() const {
  CCL_CHECK(check_lives());
  if (suspended_) {
    return fail(Errc::invalid_usage, "the communicator is suspended; call ncclCommResume before");
  }
  return {};
}

Result<void> Member::usable() const {
  const std::lock_guard lock{mutex_};
  return check_usable();
}

Result<void> Member::use(const std::function<Result<void>(Operations&)>& call) {
  CCL_CHECK(usable());
  if (!operations_) return comm_->status();
  const std::lock_guard lock{calls_};
  Result<void> done = call(*operations_);
  if (!done && done.error().rank < 0) done.error().rank = comm_->rank();
  return done;
}

Result<void> Member::use_rows(const std::function<Result<void>(std::unique_ptr<RowCalls>&)>& call) {
  return use([&](Operations&) { return call(rows_); });
}

Result<void> Member::check_ranks(const Call& call) const {
  const bool rooted = call.is_message() || call.kind == Kind::reduce ||
                      call.kind == Kind::broadcast || call.kind == Kind::gather ||
                      call.kind == Kind::scatter;
  if (!rooted) return {};
  const std::lock_guard lock{mutex_};
  if (!created_ || !*created_) return {};  // the call itself says so
  if (call.root >= 0 && call.root < comm_->ranks()) return {};
  return fail(Errc::invalid_argument, fmt::format("the call names rank {}; there are 0 to {}",
                                                  call.root, comm_->ranks() - 1));
}

HostStream& Member::worker() {
  const std::lock_guard lock{mutex_};
  if (!worker_) worker_.emplace();
  return *worker_;
}

/// Returns false if it had left already.
bool Member::leave() {
  const std::lock_guard lock{mutex_};
  return created_ && !std::exchange(left_, true);
}

Result<void> Member::end(EndWaits waits) {
  CCL_TRY(Communicator comm, ready());
  prepare_end(family_);
  if (!leave()) return {};
  if (const auto fallback = real()) fallback->end();
  auto ending = Ending::start(comm, shared_from_this());
  if (ending) {
    auto ended = leave_family(family_, *ending, waits);
    if (blocking || waits == EndWaits::own_work) return ended;
    return (*ending)->wait_for_all();  // on a thread that no other rank needs
  }
  comm.abort("no thread for its end");  // the other ranks would wait
  (void)leave_family(family_, nullptr, waits);
  return fail(std::move(ending).error());
}

Result<void> Member::finalize() {
  {
    const std::lock_guard lock{mutex_};
    CCL_CHECK(check_ready());
    if (std::exchange(finalized_, true)) {
      return fail(Errc::invalid_argument, "the communicator was finalized already; destroy it");
    }
  }
  return end(EndWaits::all_ranks);
}

void Member::abort() {
  std::optional<Communicator> comm;
  {
    const std::lock_guard lock{mutex_};
    aborted_ = true;
    comm = comm_;
  }
  if (comm) comm->abort(abort_called);
  if (const auto fallback = real()) fallback->abort();
  abandon();
}

void Member::abandon() {
  if (leave()) (void)leave_family(family_, nullptr, EndWaits::own_work);
}

Result<void> Member::revoke() {
  std::optional<Communicator> comm;
  {
    const std::lock_guard lock{mutex_};
    CCL_CHECK(check_ready());
    if (left_ || std::exchange(revoked_, true)) {
      return fail(Errc::invalid_argument, left_ ? "the communicator was finalized already"
                                                : "the communicator was revoked already");
    }
    comm = comm_;
  }
  comm->abort("ncclCommRevoke was called");
  if (const auto fallback = real()) fallback->abort();  // its kernels would wait on
  return {};
}

bool Member::is_revoked() const {
  const std::lock_guard lock{mutex_};
  return revoked_;
}

bool Member::is_suspended() const {
  const std::lock_guard lock{mutex_};
  return suspended_;
}

Result<UniqueId> Member::make_grow_id() {
  const std::lock_guard lock{mutex_};
  CCL_CHECK(check_lives());
  if (grow_id_) {
    return fail(Errc::invalid_usage,
                "ncclCommGetUniqueId was called already; call ncclCommGrow with that id first");
  }
  CCL_TRY(grow_id_, create_unique_id());
  return *grow_id_;
}
std::optional<UniqueId> Member::take_grow_id() {
  const std::lock_guard lock{mutex_};
  return std::exchange(grow_id_, {});
}

void Member::rename(std::string family) {
  const std::lock_guard lock{mutex_};
  family_ = std::move(family);
}

std::string Member::family() const {
  const std::lock_guard lock{mutex_};
  return family_;
}

std::string Member::next_family(const std::string& how) {
  const std::lock_guard lock{mutex_};
  return fmt::format("{}/{} {}", family_, how, children_[how]++);
}

std::string Member::count_child(int color, int key) {
  const std::lock_guard lock{mutex_};
  return fmt::format("parent {} childCount {} color {} key {} ", handle_, ++child_count_, color,
                     key);
}

}  // namespace ccl::detail::nccl
