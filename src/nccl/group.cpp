#include "nccl/group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/exceptions.hpp"
#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"
#include "comm/peer_waits.hpp"
#include "nccl/device/devices.hpp"
#include "nccl/errors.hpp"

namespace ccl::detail::nccl {
namespace {
/// True if CUDA waits for each kernel in its launch, as some debug by.
bool launches_block() {
  const char* const blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  return blocking != nullptr && std::string_view{blocking} != "0";
}

/// Runs a call, then records the event that its configuration names: of every call of a program,
/// whatever runs it.
Result<void> run_call(Operations& by, const Call& call) {
  CCL_CHECK(by.run(call));
  if (call.options == nullptr || call.options->started == nullptr) return {};
  return record(call.options->started, call.stream);
}
}  // namespace

Group& Group::of_this_thread() {
  static thread_local Group group;
  return group;
}

Result<void> Group::Part::run(std::size_t step) const {
  const OnDevice here{member->device};
  if (step < steps.size()) return steps[step]();
  return member->use([&](Operations& all) { return all.exchange(messages); });
}
/// True if the step may be a launch on a GPU, which returns before it has run.
bool Group::Part::may_launch(std::size_t step) const {
  return member->device >= 0 && member->created() && !waiting.contains(step) && !member->is_busy();
}

bool Group::Part::is_deferred() const {
  return !member->blocking ||
         std::ranges::any_of(made, [](const auto& one) { return !one->blocking; });
}

/// True if two parts share a stream; CPU ranks ignore streams.
bool Group::Part::shares_stream_with(const Part& other) const {
  if (member->device < 0 || member->device != other.member->device) return false;
  return std::ranges::any_of(streams,
                             [&](cudaStream_t one) { return other.streams.contains(one); });
}

void Group::Part::give_up(const Error& why) const noexcept {
  member->give_up(why);
  for (const auto& one : made) one->give_up(why);
}

Result<double> Group::Part::predict() const {
  double us = 0;
  const auto all = [&](Operations& of) -> Result<void> {
    for (const Call& call : calls) {
      CCL_TRY(const double more, of.predict(call));
      us += more;
    }
    return {};
  };
  if (!calls.empty()) CCL_CHECK(member->use(all));
  return us;
}

Group::Part& Group::part_of(std::shared_ptr<Member> member) {
  const auto known = std::ranges::find(parts_, member, &Part::member);
  if (known != parts_.end()) return *known;
  return parts_.emplace_back(Part{std::move(member), {}, {}, {}, {}, {}, {}});
}

Result<void> Group::submit(std::shared_ptr<Member> member, Step step,
                           std::shared_ptr<Member> made) {
  Part& part = part_of(std::move(member));
  part.waiting.insert(part.steps.size());
  part.steps.push_back(std::move(step));
  if (made) part.made.push_back(std::move(made));
  if (depth_ > 0) return {};
  ++depth_;
  return end();
}
Result<void> Group::submit_launch(std::shared_ptr<Member> member, Step step) {
  part_of(std::move(member)).steps.push_back(std::move(step));
  if (depth_ > 0) return {};
  ++depth_;
  return end();
}
Result<void> Group::submit(std::shared_ptr<Member> member, const Call& call) {
  if (depth_ == 0 && member->blocking) {
    member->wait_deferred();
    CCL_CHECK(member->check_ranks(call));  // before a first call waits for all ranks
    const OnDevice here{member->device};
    return member->use([&call](Operations& all) { return run_call(all, call); });
  }
  if (depth_ == 0) {
    CCL_CHECK(member->ready());
    CCL_CHECK(member->check_ranks(call));
    start();
    add(std::move(member), call);
    return end();
  }
  CCL_CHECK(member->check_ranks(call));
  add(std::move(member), call);
  return {};
}
void Group::add(std::shared_ptr<Member> member, const Call& call) {
  Part& part = part_of(member);
  part.calls.push_back(call);
  part.streams.insert(call.stream);
  if (call.is_message()) {
    part.messages.push_back(call);
  } else {
    part.steps.push_back([&whose = *member, call] {
      return whose.use([&](Operations& all) { return run_call(all, call); });
    });
  }
}
void Group::spoil(const Error& why) noexcept {
  if (depth_ == 0 || !spoilt_) return;
  spoilt_ = without_exceptions([&]() -> Result<void> { return fail(why); });
}

void Group::release(std::shared_ptr<Member> aborted) {
  if (depth_ > 0) aborted_.push_back(std::move(aborted));
}

Result<std::optional<double>> Group::simulate() {
  CCL_CHECK(check_begun("ncclGroupSimulateEnd"));
  if (--depth_ > 0) return std::optional<double>{};
  const auto aborted = std::exchange(aborted_, {});
  const std::vector<Part> parts = std::exchange(parts_, {});
  const auto spoilt = std::exchange(spoilt_, {});
  const Error none_made{Errc::invalid_usage,
                        "ncclGroupSimulateEnd makes nothing; end by ncclGroupEnd"};
  for (const Part& part : parts) part.give_up(spoilt ? none_made : spoilt.error());
  CCL_CHECK(spoilt);
  double slowest_us = 0;
  for (const Part& part : parts) {
    CCL_TRY(const double us, part.predict());
    slowest_us = std::max(slowest_us, us);
  }
  return std::optional{slowest_us};
}

Result<void> Group::check_begun(const char* call) const {
  if (depth_ > 0) return {};
  return fail(Errc::invalid_usage,
              fmt::format("{} without ncclGroupStart in this thread; call that before", call));
}

void Group::Lane::merge(const Lane& other) {
  parts_.insert(parts_.end(), other.parts_.begin(), other.parts_.end());
  std::ranges::sort(parts_);  // parts are in the order of their first calls
}

void Group::Lane::skip_empty() {
  while (!ended() && step_ >= parts_[part_]->step_count()) ++part_, step_ = 0;
}

void Group::Lane::advance(Result<void> done) {
  ++step_;
  if (done) return skip_empty();
  parts_[part_]->give_up(done.error());
  failures_.emplace(parts_[part_], done.error());
  if (result_) result_ = std::move(done);
  ++part_, step_ = 0;
  skip_empty();
}

Result<void> Group::Lane::result_of(const Part& part) const {
  const auto failure = failures_.find(&part);
  return failure == failures_.end() ? Result<void>{} : fail(failure->second);
}

bool Group::Lane::launch_next() {
  skip_empty();
  if (ended() || !parts_[part_]->may_launch(step_)) return false;
  const NoPeerWaits here;
  Result<void> done = parts_[part_]->run(step_);
  if (here.refused()) return false;
  advance(std::move(done));
  return true;
}

void Group::Lane::run() {
  for (skip_empty(); !ended();) advance(parts_[part_]->run(step_));
}

void Group::Lane::give_up(const Error& why) const noexcept {
  for (const Part* part : parts_) part->give_up(why);
}

bool Group::Lane::is_deferred() const {
  return std::ranges::any_of(parts_, [](const Part* part) { return part->is_deferred(); });
}

void Group::Lane::wait_deferred() const {
  for (const Part* part : parts_) part->member->wait_deferred();
}

/// Work on a stream waits for earlier work on it, so its order must be the same on all ranks. The
/// order of calls is the same; the order in which threads arrive is not.
std::vector<Group::Lane> Group::lanes_of(const std::vector<Part>& parts) {
  std::vector<Lane> lanes;
  for (const Part& part : parts) {
    Lane mine;
    const auto take = [&](const Lane& lane) {
      const auto shares = [&part](const Part* other) { return part.shares_stream_with(*other); };
      if (std::ranges::none_of(lane.parts(), shares)) return false;
      mine.merge(lane);
      return true;
    };
    std::erase_if(lanes, take);
    mine.add(&part);
    lanes.push_back(std::move(mine));
  }
  return lanes;
}

Result<void> Group::run_beside(const std::vector<Lane*>& lanes) {
  for (const Lane* lane : lanes) lane->worker();  // all threads exist, or none begins
  for (Lane* const lane : lanes) {
    lane->worker().enqueue([lane]() -> Result<void> {
      lane->run();
      return lane->result();
    });
  }
  Result<void> result;
  for (Lane* const lane : lanes) {
    auto done = lane->worker().synchronize();
    if (result && !done) result = std::move(done);
  }
  return result;
}

/// Lane whose ranks' queues each have a step of it. All of them are in progress until it has run,
/// and it runs when the earlier steps of all have ended.
class Group::DeferredLane {
 public:
  DeferredLane(Parts parts, const Lane& lane)
      : parts_{std::move(parts)}, lane_{lane}, missing_{lane.parts().size()} {}

  /// Step of one rank. The last one to arrive runs the lane, and the others wait for it.
  Result<void> arrive(const Part& part) {
    std::unique_lock lock{mutex_};
    if (--missing_ == 0 && failed_) {
      lock.unlock();  // nobody else changes the lane
      auto done = without_exceptions([&]() -> Result<void> {
        lane_.run();
        return lane_.result();
      });
      if (!done) lane_.give_up(done.error());
      lock.lock();
      if (!done && lane_.result()) failed_ = std::move(done);
      ended_ = true;
      changed_.notify_all();
    }
    changed_.wait(lock, [this] { return ended_ || !failed_; });
    return failed_ ? lane_.result_of(part) : failed_;
  }
  /// Ends the lane if a rank's queue does not take its step.
  void give_up(const Error& why) {
    lane_.give_up(why);
    const std::lock_guard lock{mutex_};
    failed_ = fail(why);
    changed_.notify_all();
  }

 private:
  Parts parts_;
  Lane lane_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t missing_;  // ranks whose steps have not begun
  bool ended_ = false;
  Result<void> failed_;  // for a reason that is none of a part's
};

Result<void> Group::defer(const Parts& parts, const Lane& lane) {
  // Two threads add steps of several ranks in one order to all queues, or each could wait for the
  // other.
  struct Order {
    ForkMutex mutex{[] {}};
  };
  static constinit MadeOnce<Order> order;
  const std::lock_guard lock{order.get().mutex};
  const auto deferred = std::make_shared<DeferredLane>(parts, lane);
  for (const Part* part : lane.parts()) {
    auto queued = without_exceptions(
        [&] { return part->member->defer([deferred, part] { return deferred->arrive(*part); }); });
    if (queued) continue;
    deferred->give_up(queued.error());
    return queued;
  }
  return {};
}

/// A launch may wait for a place in the GPU's queue, and the kernels there for those of the other
/// ranks. So ranks take turns with each step.
Result<void> Group::run(const Parts& parts) {
  std::vector<Lane> lanes = lanes_of(*parts);
  std::vector<Lane*> launching, waiting;
  for (Lane& lane : lanes) {
    if (!lane.is_deferred()) lane.wait_deferred();
  }
  const bool alone = lanes.size() == 1 && !lanes.front().is_deferred();
  if (alone) {
    lanes.front().run();
    return lanes.front().result();
  }
  if (!launches_block()) {
    for (Lane& lane : lanes) launching.push_back(&lane);
  }
  while (!launching.empty()) {
    std::erase_if(launching, [](Lane* lane) { return !lane->launch_next(); });
  }
  Result<void> result;
  bool goes_on = false;
  for (Lane& lane : lanes) {
    if (lane.ended()) continue;
    if (!lane.is_deferred()) {
      waiting.push_back(&lane);
      continue;
    }
    auto deferred = defer(parts, lane);
    goes_on = goes_on || deferred;
    if (result && !deferred) result = std::move(deferred);
  }
  auto waited = run_beside(waiting);
  for (const Lane& lane : lanes) {  // in the order of the calls
    if (result && lane.ended() && !lane.result()) result = lane.result();
  }
  if (result) result = std::move(waited);
  if (result && goes_on) return fail(Errc::in_progress, "");
  return result;
}

Result<void> Group::end() {
  CCL_CHECK(check_begun("ncclGroupEnd"));
  if (--depth_ > 0) return {};
  const auto aborted = std::exchange(aborted_, {});  // outlives the run
  const auto parts = std::make_shared<const std::vector<Part>>(std::exchange(parts_, {}));
  if (const auto spoilt = std::exchange(spoilt_, {}); !spoilt) {
    for (const Part& part : *parts) part.give_up(spoilt.error());
    return spoilt;
  }
  return run(parts);
}

}  // namespace ccl::detail::nccl
