// Groups of several ranks of one thread. The driver's GPUs are plain memory, and the operations are
// those of this test.
#include "nccl/group.hpp"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/peer_waits.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/fake_cuda_runtime.hpp"
#include "support/gpu_ranks.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail::nccl;

namespace {

/// A call that an operation has run.
struct Ran {
  int rank;
  int tag;  // the call's count
  std::thread::id thread;
  bool operator==(const Ran&) const = default;
};
std::mutex mutex;
std::condition_variable changed;
std::vector<Ran> ran;
int arrivals = 0;

/// Blocks until both ranks are here. Returns false after a while.
bool rendezvous() {
  std::unique_lock lock{mutex};
  const int wanted = arrivals / 2 * 2 + 2;
  ++arrivals;
  changed.notify_all();
  return changed.wait_for(lock, std::chrono::seconds{20}, [&] { return arrivals >= wanted; });
}

bool gate_is_open = false;

/// Broadcasts wait for the other rank, as a call does that makes connections. Scatters wait for the
/// gate. Gathers fail.
class Recorded : public Operations {
 public:
  explicit Recorded(int rank) : rank_{rank} {}
  Result<void> run(const Call& call) override {
    if (call.kind == Kind::broadcast) {
      CCL_CHECK(detail::check_may_wait());
      if (!rendezvous()) return fail(Errc::timed_out, "the other rank did not come");
    }
    if (call.kind == Kind::scatter) {
      CCL_CHECK(detail::check_may_wait());
      std::unique_lock lock{mutex};
      changed.wait(lock, [] { return gate_is_open; });
    }
    note(call);
    if (call.kind == Kind::gather) return fail(Errc::invalid_argument, "no gather");
    return {};
  }
  Result<Choice> choice(const Call&) override { return Choice{}; }
  Result<double> predict(const Call&) const override { return 0.0; }
  Result<void> exchange(std::span<const Call> messages) override {
    for (const Call& one : messages) note(one);
    return {};
  }

 private:
  void note(const Call& call) const {
    const std::lock_guard lock{mutex};
    ran.push_back({rank_, int(call.count), std::this_thread::get_id()});
  }
  int rank_;
};

struct TwoRanks {
  std::vector<std::shared_ptr<Member>> members;
  bool one_stream = false;
  /// Not blocking: both ranks' calls are on one stream of one GPU, too.
  explicit TwoRanks(bool blocking = true) : one_stream{!blocking} {
    (void)gpus(2);
    const auto comms = create({0, 1});
    for (const auto& comm : comms) {
      REQUIRE(comm);
      MemberConfig config;
      config.blocking = blocking;
      auto member = std::make_shared<Member>(one_stream ? 0 : comm->device(), config, "ranks");
      REQUIRE(member->create([&comm] { return comm; }));
      members.push_back(std::move(member));
    }
    ran.clear();
    arrivals = 0;
    gate_is_open = false;
  }
  Result<void> submit(int rank, Kind kind, int tag,
                      std::shared_ptr<const CallOptions> options = {}) {
    Call call;
    call.kind = kind;
    call.count = tag;
    call.options = std::move(options);
    // Ranks' streams differ; of one GPU only calls on one stream would be in order.
    call.stream = reinterpret_cast<cudaStream_t>(std::uintptr_t(one_stream ? 1 : rank + 1));
    return Group::of_this_thread().submit(members[std::size_t(rank)], call);
  }
  void call(int rank, Kind kind, int tag) { CHECK(submit(rank, kind, tag)); }
  template <class F>
  Result<void> group(F&& calls) {
    Group::of_this_thread().start();
    calls();
    return Group::of_this_thread().end();
  }
};

/// The tags that a rank has run, in order.
std::vector<int> tags(int rank) {
  std::vector<int> all;
  for (const Ran& one : ran) {
    if (one.rank == rank) all.push_back(one.tag);
  }
  return all;
}

}  // namespace

namespace ccl::detail::nccl {
Result<std::unique_ptr<Operations>> Operations::create(const Communicator& comm,
                                                       const MemberConfig&) {
  return std::unique_ptr<Operations>{std::make_unique<Recorded>(comm.rank())};
}
}  // namespace ccl::detail::nccl

TEST_CASE("launches of several ranks are made by the thread that has them, in turns") {
  TwoRanks ranks;
  REQUIRE(ranks.group([&] {
    for (const int rank : {0, 1}) {
      for (const int tag : {1, 2}) ranks.call(rank, Kind::all_reduce, tag);
      ranks.call(rank, Kind::send, 3);
      ranks.call(rank, Kind::recv, 4);
    }
  }));
  const auto here = std::this_thread::get_id();
  CHECK(ran == std::vector<Ran>{{0, 1, here},
                                {1, 1, here},
                                {0, 2, here},
                                {1, 2, here},
                                {0, 3, here},
                                {0, 4, here},
                                {1, 3, here},
                                {1, 4, here}});
}

TEST_CASE("from the first call on that waits for other ranks, each rank has a thread") {
  TwoRanks ranks;
  REQUIRE(ranks.group([&] {
    for (const int rank : {0, 1}) {
      ranks.call(rank, Kind::all_reduce, 1);
      ranks.call(rank, Kind::broadcast, 2);
      ranks.call(rank, Kind::all_reduce, 3);
    }
  }));
  const auto here = std::this_thread::get_id();
  for (const int rank : {0, 1}) CHECK(tags(rank) == std::vector<int>{1, 2, 3});  // each once
  for (const Ran& one : ran) CHECK((one.thread == here) == (one.tag == 1));
}

TEST_CASE("each rank has a thread if launches wait for their kernels") {
  const Environment blocking{"CUDA_LAUNCH_BLOCKING", "1"};
  TwoRanks ranks;
  REQUIRE(ranks.group([&] {
    for (const int rank : {0, 1}) ranks.call(rank, Kind::all_reduce, 1);
  }));
  REQUIRE(ran.size() == 2);
  CHECK(ran[0].thread != ran[1].thread);
}

TEST_CASE("steps that are no calls may wait for ranks of the same thread") {
  TwoRanks ranks;
  bool good[2] = {false, false};
  REQUIRE(ranks.group([&] {
    for (const int rank : {0, 1}) {
      const auto step = [&good, rank]() -> Result<void> {
        good[rank] = rendezvous();
        return {};
      };
      CHECK(Group::of_this_thread().submit(ranks.members[std::size_t(rank)], step));
      ranks.call(rank, Kind::all_reduce, 1);
    }
  }));
  CHECK(good[0]);
  CHECK(good[1]);
  for (const int rank : {0, 1}) CHECK(tags(rank) == std::vector<int>{1});
}

TEST_CASE("a part ends at its first failure, and the group has the first part's") {
  TwoRanks ranks;
  const auto done = ranks.group([&] {
    ranks.call(0, Kind::all_reduce, 1);
    ranks.call(0, Kind::gather, 2);
    ranks.call(0, Kind::all_reduce, 3);
    ranks.call(1, Kind::all_reduce, 1);
    ranks.call(1, Kind::all_reduce, 3);
  });
  REQUIRE(!done);
  CHECK(done.error().code == Errc::invalid_argument);
  CHECK(done.error().rank == 0);
  CHECK(tags(0) == std::vector<int>{1, 2});
  CHECK(tags(1) == std::vector<int>{1, 3});
}

namespace {
void open_gate() {
  const std::lock_guard lock{mutex};
  gate_is_open = true;
  changed.notify_all();
}
bool in_progress(const Member& member) {
  const auto status = member.status();
  return !status && status.error().code == Errc::in_progress;
}
}  // namespace

TEST_CASE("all ranks of a stream are in progress until their common calls are done") {
  TwoRanks ranks{false};
  const auto begun = ranks.group([&] {
    ranks.call(0, Kind::scatter, 1);
    ranks.call(0, Kind::all_reduce, 2);
    ranks.call(1, Kind::all_reduce, 3);
    ranks.call(1, Kind::gather, 4);
  });
  CHECK((!begun && begun.error().code == Errc::in_progress));
  for (const auto& member : ranks.members) CHECK(in_progress(*member));
  // A later call of the second rank runs behind those of the group.
  const auto later = ranks.group([&] { ranks.call(1, Kind::all_reduce, 5); });
  CHECK((!later && later.error().code == Errc::in_progress));
  std::this_thread::sleep_for(std::chrono::milliseconds{100});
  for (const auto& member : ranks.members) CHECK(in_progress(*member));
  CHECK(ran.empty());
  open_gate();
  for (const auto& member : ranks.members) member->wait_deferred();
  CHECK(tags(0) == std::vector<int>{1, 2});
  CHECK(tags(1) == std::vector<int>{3, 4, 5});
  // The failure is that of the rank that has failed.
  CHECK(ranks.members[0]->status());
  const auto failed = ranks.members[1]->status();
  CHECK((!failed && failed.error().code == Errc::invalid_argument));
}

TEST_CASE("calls of several ranks run behind earlier ones of each rank") {
  TwoRanks ranks{false};
  const auto first = ranks.group([&] { ranks.call(1, Kind::scatter, 1); });
  CHECK((!first && first.error().code == Errc::in_progress));
  const auto both = ranks.group([&] {
    ranks.call(0, Kind::scatter, 2);
    ranks.call(1, Kind::all_reduce, 3);
  });
  CHECK((!both && both.error().code == Errc::in_progress));
  std::this_thread::sleep_for(std::chrono::milliseconds{100});
  CHECK(ran.empty());
  open_gate();
  for (const auto& member : ranks.members) member->wait_deferred();
  REQUIRE(ran.size() == 3);
  CHECK(ran[0].tag == 1);
  CHECK(tags(0) == std::vector<int>{2});
  CHECK(tags(1) == std::vector<int>{1, 3});
}

TEST_CASE("an aborted rank is released when its group has ended") {
  TwoRanks ranks;
  const std::weak_ptr<Member> first = ranks.members[0];
  CHECK(ranks.group([&] {
    for (auto& member : ranks.members) {
      member->abort();
      Group::of_this_thread().release(std::exchange(member, nullptr));
    }
    CHECK(!first.expired());
  }));
  CHECK(first.expired());
}

namespace {
std::shared_ptr<const CallOptions> with_event(std::uintptr_t event) {
  CallOptions options;
  options.started = reinterpret_cast<cudaEvent_t>(event);
  return std::make_shared<const CallOptions>(std::move(options));
}
/// Numbers of the events and of the streams that they were recorded on, since the last call.
std::vector<std::pair<std::uintptr_t, std::uintptr_t>> events() {
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> all;
  for (const auto& [event, stream] : std::exchange(fake_runtime::recorded.all, {})) {
    all.emplace_back(reinterpret_cast<std::uintptr_t>(event),
                     reinterpret_cast<std::uintptr_t>(stream));
  }
  return all;
}
}  // namespace

TEST_CASE("the event of a call is recorded once, on its stream, behind what the call has queued") {
  using Events = std::vector<std::pair<std::uintptr_t, std::uintptr_t>>;
  TwoRanks ranks;
  (void)events();
  CHECK(ranks.submit(1, Kind::all_reduce, 1, with_event(11)));
  CHECK(events() == Events{{11, 2}});
  CHECK(ranks.group([&] {
    CHECK(ranks.submit(0, Kind::all_reduce, 2, with_event(12)));
    CHECK(ranks.submit(0, Kind::reduce, 3));
    CHECK(events().empty());  // nothing has run
  }));
  CHECK(events() == Events{{12, 1}});
  // Broadcasts of the test are refused on this thread at first, and then run on another.
  CHECK(ranks.group([&] {
    for (const int rank : {0, 1}) CHECK(ranks.submit(rank, Kind::broadcast, 4, with_event(13)));
  }));
  CHECK(events().size() == 2);
  CHECK(!ranks.submit(0, Kind::gather, 5, with_event(14)));
  CHECK(events().empty());  // the call has failed
}
