#include "nccl/group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "nccl/devices.hpp"
#include "nccl/errors.hpp"

namespace ccl::detail::nccl {

Group& Group::of_this_thread() {
  static thread_local Group group;
  return group;
}

Result<void> Group::Part::run() const {
  const OnDevice here{member->device};
  const auto all_of_it = [this]() -> Result<void> {
    for (const Step& step : steps) CCL_CHECK(step());
    if (messages.empty()) return {};
    return member->use([&](Operations& all) { return all.exchange(messages); });
  };
  Result<void> done = all_of_it();
  if (!done) give_up(done.error());
  return done;
}

/// True if two parts share a stream; CPU ranks ignore streams.
bool Group::Part::shares_stream_with(const Part& other) const {
  if (member->device < 0 || member->device != other.member->device) return false;
  return std::ranges::any_of(streams,
                             [&](cudaStream_t one) { return other.streams.contains(one); });
}

void Group::Part::give_up(const Error& why) const {
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
  return parts_.emplace_back(Part{std::move(member), {}, {}, {}, {}, {}});
}

Result<void> Group::submit(std::shared_ptr<Member> member, Step step,
                           std::shared_ptr<Member> made) {
  Part& part = part_of(std::move(member));
  part.steps.push_back(std::move(step));
  if (made) part.made.push_back(std::move(made));
  if (depth_ > 0) return {};
  ++depth_;
  return end();
}
Result<void> Group::submit(std::shared_ptr<Member> member, const Call& call) {
  if (depth_ == 0) {
    const OnDevice here{member->device};
    return member->use([&call](Operations& all) { return all.run(call); });
  }
  Part& part = part_of(member);
  part.calls.push_back(call);
  part.streams.insert(call.stream);
  if (call.is_message()) {
    part.messages.push_back(call);
    return {};
  }
  Member& whose = *member;
  return submit(std::move(member), [&whose, call] {
    return whose.use([&](Operations& all) { return all.run(call); });
  });
}
void Group::spoil(const Error& why) {
  if (depth_ > 0 && spoilt_) spoilt_ = fail(why);
}

Result<std::optional<double>> Group::simulate() {
  CCL_CHECK(check_begun("ncclGroupSimulateEnd"));
  if (--depth_ > 0) return std::optional<double>{};
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

Result<void> Group::run(const Lane& lane) {
  Result<void> result;
  for (const Part* part : lane) {
    auto done = part->run();
    if (result && !done) result = std::move(done);
  }
  return result;
}

/// Work on a stream waits for earlier work on it, so its order must be the same on all ranks. The
/// order of calls is the same; the order in which threads arrive is not.
std::vector<Group::Lane> Group::lanes_of(const std::vector<const Part*>& parts) {
  std::vector<Lane> lanes;
  for (const Part* part : parts) {
    Lane mine;
    const auto take = [&](Lane& lane) {
      const auto shares = [part](const Part* other) { return part->shares_stream_with(*other); };
      if (std::ranges::none_of(lane, shares)) return false;
      mine.insert(mine.end(), lane.begin(), lane.end());
      return true;
    };
    std::erase_if(lanes, take);
    std::ranges::sort(mine);  // parts are in the order of their first calls
    mine.push_back(part);
    lanes.push_back(std::move(mine));
  }
  return lanes;
}

Result<void> Group::end() {
  CCL_CHECK(check_begun("ncclGroupEnd"));
  if (--depth_ > 0) return {};
  const std::vector<Part> parts = std::exchange(parts_, {});
  if (const auto spoilt = std::exchange(spoilt_, {}); !spoilt) {
    for (const Part& part : parts) part.give_up(spoilt.error());
    return spoilt;
  }
  Result<void> result;
  bool goes_on = false;
  std::vector<const Part*> waited_for;
  for (const Part& part : parts) {
    if (!part.member->blocking && !part.member->created()) {
      std::thread{[part] { (void)tell(part.run()); }}.detach();  // its member has the result
      goes_on = true;
    } else {
      waited_for.push_back(&part);
    }
  }
  const std::vector<Lane> lanes = lanes_of(waited_for);
  if (lanes.size() == 1) {
    result = run(lanes.front());
  } else {
    // Ranks of one thread wait for each other: each gets a thread here.
    const auto worker_of = [](const Lane& lane) -> HostStream& {
      return lane.front()->member->worker();
    };
    for (const Lane& lane : lanes) worker_of(lane);  // all threads exist, or none begins
    for (const Lane& lane : lanes) worker_of(lane).enqueue([&lane] { return run(lane); });
    for (const Lane& lane : lanes) {
      auto done = worker_of(lane).synchronize();
      if (result && !done) result = std::move(done);
    }
  }
  if (result && goes_on) return fail(Errc::in_progress, "");
  return result;
}

}  // namespace ccl::detail::nccl
