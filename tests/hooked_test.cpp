#include <ccl/ccl.hpp>
#include <ccl/hooked.hpp>

#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/error_matchers.hpp"
#include "support/on_ranks.hpp"
#include "support/processes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

/// Lines of the events of each rank.
struct Lines {
  std::mutex mutex;
  std::vector<std::vector<std::string>> of = std::vector<std::vector<std::string>>(8);
  void add(int rank, std::string line) {
    const std::lock_guard lock{mutex};
    of[std::size_t(rank)].push_back(std::move(line));
  }
  std::vector<std::string> take(int rank) {
    const std::lock_guard lock{mutex};
    return std::exchange(of[std::size_t(rank)], {});
  }
  bool contains(int rank, const std::string& part) {
    const std::lock_guard lock{mutex};
    for (const auto& line : of[std::size_t(rank)]) {
      if (line.find(part) != std::string::npos) return true;
    }
    return false;
  }
};

std::string text(const Operation& op) {
  return fmt::format("{} {} {}{}{} {} number {} {}", op.what, op.count, op.type,
                     op.redop[0] == 0 ? "" : " ", op.redop, op.root, op.number, name(op.state));
}

/// Hooks with all functions.
struct All {
  std::shared_ptr<Lines> lines = std::make_shared<Lines>();

  void on_call(const CallEvent& event) const { add(event, "call " + text(event.operation)); }
  void on_launch(const CallEvent& event) const { add(event, "launch " + text(event.operation)); }
  void on_end(const CallEvent& event, const Result<void>& result) const {
    const Operation& op = event.operation;
    const bool timed = op.queued_ns <= op.started_ns && op.started_ns <= op.ended_ns;
    add(event, fmt::format("end {}{}{}", text(op), result ? "" : ": ",
                           result ? (op.number == 0 || timed ? "" : " at odd times")
                           : event.comm.ranks() > 0 ? result.error().what
                                                    : ""));
  }
  void on_created(const CommEvent& event) const { add(event, "created"); }
  void on_closed(const CommEvent& event) const { add(event, "closed"); }
  void on_failed(const CommEvent& event, const Error& error) const {
    add(event, "failed " + error.message());
  }
  void on_stall(const CommEvent& event, const Report& report) const {
    add(event, fmt::format("stall {} {}", report.behind, name(report.cause)));
  }

 private:
  void add(const CallEvent& event, std::string line) const {
    lines->add(event.comm.rank(), std::move(line));
  }
  void add(const CommEvent& event, const std::string& line) const {
    lines->add(event.rank, fmt::format("{} {} of {}{}", line, event.name, event.ranks,
                                       event.id.size() == 16 ? "" : " without id"));
  }
};
using Comm = Hooked<Communicator, All>;
using Sums = Hooked<Collective<AllReduce, Ring, LL>, All>;
using Texts = std::vector<std::string>;

/// Hooks with one function.
struct EndsOnly {
  std::shared_ptr<std::atomic<int>> ended = std::make_shared<std::atomic<int>>(0);
  void on_end(const CallEvent&, const Result<void>& result) const { *ended += result ? 1 : 100; }
};
static_assert(Hooks<All> && Hooks<EndsOnly>);
static_assert(detail::HooksCommunicators<All> && !detail::HooksCommunicators<EndsOnly>);
struct NotConst {
  void on_end(const CallEvent&, const Result<void>&) {}
};
struct NoHook {};
static_assert(!Hooks<NotConst> && !Hooks<NoHook>);

Config cpu(const char* name = "") {
  Config config;
  config.device = Config::cpu;
  config.name = name;
  return config;
}
std::vector<Comm> create(int ranks, const All& hooks, const char* name = "") {
  auto comms = Comm::create_all(ranks, cpu(name), hooks);
  INFO((comms ? std::string{} : comms.error().message()));
  REQUIRE(comms.has_value());
  return *std::move(comms);
}
/// Runs `body` on one thread for each rank. All must succeed.
void on_all_of(const std::vector<Comm>& comms,
               const std::function<Result<void>(const Comm&)>& body) {
  on_all({comms.begin(), comms.end()},
         [&](const Communicator& comm) { return body(comms[std::size_t(comm.rank())]); });
}

}  // namespace

TEST_CASE("hooks receive a call that blocks, with its number and composition") {
  const All hooks;
  const auto comms = create(2, hooks);
  on_all_of(comms, [&](const Comm& comm) -> Result<void> {
    CCL_TRY(const auto sums, Sums::create(comm));
    (void)hooks.lines->take(comm.rank());
    float in[5] = {1, 2, 3, 4, 5}, out[5] = {};
    CCL_CHECK(sums(in, out, 5));
    CCL_CHECK(sums(in, out, 4, Max{}));
    return out[4] == 10 && out[0] == 1 ? Result<void>{} : fail(Errc::internal, "wrong data");
  });
  for (const int rank : {0, 1}) {
    CHECK(hooks.lines->take(rank) ==
          Texts{"call all_reduce 5 float sum -1 number 0 queued",
                "end all_reduce/Ring/LL/any 5 float sum -1 number 1 done",
                "call all_reduce 4 float max -1 number 0 queued",
                "end all_reduce/Ring/LL/any 4 float max -1 number 2 done"});
  }
}

TEST_CASE("hooks receive that a call is queued on a stream, and that it has run there") {
  const All hooks;
  const auto comms = create(2, hooks);
  on_all_of(comms, [&](const Comm& comm) -> Result<void> {
    using Copies = Hooked<Collective<Broadcast>, All>;
    CCL_TRY(const auto copies, Copies::create(comm));
    (void)hooks.lines->take(comm.rank());
    int data[3] = {comm.rank(), 2, 3};
    HostStream stream;
    std::atomic<bool> goes_on{false};
    stream.enqueue([&]() -> Result<void> {
      (void)wait_until([&] { return goes_on.load(); }, 60);
      return {};
    });
    CCL_CHECK(copies(data, data, 3, 1, stream));
    const Texts before = hooks.lines->take(comm.rank());
    const std::string composition = copies.name(Index{sizeof data});
    const Texts expected{"call broadcast 3 int32 1 number 0 queued",
                         fmt::format("launch {} 3 int32 1 number 1 queued", composition)};
    goes_on = true;
    CCL_CHECK(stream.synchronize());
    if (before != expected) return fail(Errc::internal, before.at(0) + "; " + before.back());
    const Texts after = hooks.lines->take(comm.rank());
    if (after != Texts{fmt::format("end {} 3 int32 1 number 1 done", composition)}) {
      return fail(Errc::internal, after.empty() ? "no end" : after[0]);
    }
    return data[0] == 1 ? Result<void>{} : fail(Errc::internal, "wrong data");
  });
}

TEST_CASE("a refused call ends with its error, and without a number") {
  const All hooks;
  const auto comms = create(1, hooks);
  const auto sums = Sums::create(comms[0]);
  REQUIRE(sums.has_value());
  (void)hooks.lines->take(0);
  float out[2] = {};
  const auto done = (*sums)(static_cast<const float*>(nullptr), out, 2);
  REQUIRE(!done.has_value());
  CHECK(done.error().code == Errc::invalid_argument);
  const auto lines = hooks.lines->take(0);
  REQUIRE(lines.size() == 2);
  CHECK(mentions(lines[1], "end all_reduce 2 float sum -1 number 0 failed: "));
  CHECK(mentions(lines[1], done.error().what.c_str()));
}

TEST_CASE("messages, roots and types that are chosen at run time reach hooks") {
  const All hooks;
  const auto comms = create(2, hooks);
  on_all_of(comms, [&](const Comm& comm) -> Result<void> {
    using Messages = Hooked<Collective<SendRecv, Pairwise, Simple>, All>;
    using Any = Hooked<AnyCollective<Reduce, Candidates<Candidate<Tree, LL>>, Types<double, float>,
                                     Reductions<Sum, Min>>,
                       All>;
    using Rows = Hooked<Collective<AllToAllV, Pairwise, Simple>, All>;
    CCL_TRY(const auto messages, Messages::create(comm));
    CCL_TRY(const auto reduces, Any::create(comm));
    CCL_TRY(const auto rows, Rows::create(comm));
    (void)hooks.lines->take(comm.rank());
    double a[2] = {double(comm.rank()), 2}, b[2] = {};
    const int peer = 1 - comm.rank();
    CCL_CHECK(messages(a, 2, peer, b, 2, peer));
    CCL_CHECK(reduces(a, b, 2, DataType::float64, "min", 1));
    const Index counts[2] = {1, 1}, offsets[2] = {0, 1};
    CCL_CHECK(rows(a, counts, offsets, b, counts, offsets));
    return {};
  });
  CHECK(hooks.lines->take(1) ==
        Texts{"call send_recv -1  -1 number 0 queued",
              "end send_recv/Pairwise/Simple/any -1 int8 -1 number 0 done",
              "call reduce 2 double min 1 number 0 queued",
              "end reduce/Tree/LL/any 2 double min 1 number 1 done",
              "call all_to_all_v -1 double -1 number 0 queued",
              "end all_to_all_v/Pairwise/Simple/any -1 double -1 number 2 done"});
}

TEST_CASE("hooks of a communicator receive once that it is up and that it is closed") {
  const All hooks;
  {
    auto comms = create(2, hooks, "world");
    for (const int rank : {0, 1}) {
      CHECK(hooks.lines->take(rank) == Texts{"created world of 2"});
    }
    on_all_of(comms, [](const Comm& comm) -> Result<void> {
      CCL_TRY(auto part, comm.split(0, 0, cpu("part")));
      CCL_CHECK(part->finalize());
      return {};
    });
    for (const int rank : {0, 1}) {
      CHECK(hooks.lines->take(rank) == Texts{"created part of 2", "closed part of 2"});
    }
    on_all_of(comms, [](const Comm& comm) { return comm.finalize(); });
    for (const int rank : {0, 1}) CHECK(hooks.lines->take(rank) == Texts{"closed world of 2"});
  }
  for (const int rank : {0, 1}) CHECK(hooks.lines->take(rank).empty());
  create(1, hooks, "alone");
  CHECK(hooks.lines->take(0) == Texts{"created alone of 1", "closed alone of 1"});
}

TEST_CASE("hooks of each rank receive once that its communicator has failed, also one in no call") {
  const All hooks;
  {
    auto comms = create(3, hooks, "bad");
    for (const int rank : {0, 1, 2}) (void)hooks.lines->take(rank);
    comms[1].abort("it was enough");
    for (const int rank : {0, 1, 2}) {
      CHECK(wait_until([&] { return hooks.lines->contains(rank, "it was enough"); }, 60));
    }
    CHECK(!comms[0].barrier().has_value());
  }
  for (const int rank : {0, 1, 2}) {
    const auto lines = hooks.lines->take(rank);
    REQUIRE(lines.size() == 2);
    CHECK(mentions(lines[0], "it was enough"));
    CHECK(lines[1] == "closed bad of 3");
  }
}

TEST_CASE("a call that an abort ends is reported as failed, on a stream, too") {
  const All hooks;
  const auto comms = create(2, hooks);
  on_all_of(comms, [&](const Comm& comm) -> Result<void> {
    CCL_TRY(const auto sums, Sums::create(comm));
    (void)hooks.lines->take(comm.rank());
    if (comm.rank() == 1) {  // does not call
      (void)wait_until([&] { return hooks.lines->contains(0, "launch "); }, 60);
      comm.abort("rank 1 has no data");
      return {};
    }
    float in[2] = {}, out[2] = {};
    HostStream stream;
    CCL_CHECK(sums(in, out, 2, Sum{}, stream));
    (void)stream.synchronize();
    return {};
  });
  CHECK(hooks.lines->contains(0, "end all_reduce/Ring/LL/any 2 float sum -1 number 1 failed: "));
  CHECK(hooks.lines->contains(0, "rank 1 has no data"));
}

TEST_CASE("the rank that logs a stall gives its hooks the report") {
  const Environment soon{"CCL_REPORT_STALL", "2"};
  const All hooks;
  const auto comms = create(2, hooks);
  on_all_of(comms, [&](const Comm& comm) -> Result<void> {
    CCL_TRY(const auto sums, Sums::create(comm));
    float in[2] = {}, out[2] = {};
    if (comm.rank() == 1 && !wait_until([&] { return hooks.lines->contains(0, "stall"); }, 120)) {
      return fail(Errc::timed_out, "the hooks of rank 0 received nothing");
    }
    return sums(in, out, 2);
  });
  CHECK(hooks.lines->contains(0, "stall 1 not_called"));
}

TEST_CASE("hooks with one function get that event, from a plain communicator") {
  const EndsOnly hooks;
  check_well(on_ranks(2, cpu(), [&](const Communicator& comm) -> Result<void> {
    using Ends = Hooked<Collective<AllReduce>, EndsOnly>;
    CCL_TRY(const auto sums, Ends::create(comm, hooks));
    float in[2] = {}, out[2] = {};
    CCL_CHECK(sums(in, out, 2));
    CCL_CHECK(sums.operator()<double>(in, out, 2));
    HostStream stream;
    CCL_CHECK(sums(in, out, 2, Sum{}, stream));
    CCL_CHECK(stream.synchronize());
    return group(sums.bind(in, out, Index{2}));  // no event
  }));
  CHECK(*hooks.ended == 6);
}

namespace {
/// Hooks whose copies throw on demand.
struct Throws {
  std::shared_ptr<std::atomic<bool>> now = std::make_shared<std::atomic<bool>>(false);
  Throws() = default;
  Throws(const Throws& other) : now{other.now} {
    if (*now) throw std::bad_alloc{};
  }
  void on_end(const CallEvent&, const Result<void>&) const {}
};
}  // namespace

TEST_CASE("a hook that cannot be copied for a call fails the call on all ranks") {
  const auto results = on_ranks(2, cpu(), [&](const Communicator& comm) -> Result<void> {
    using Summed = Hooked<Collective<AllReduce, Ring, LL>, Throws>;
    const Throws hooks;
    CCL_TRY(const auto sums, Summed::create(comm, hooks));
    float in[2] = {}, out[2] = {};
    HostStream stream;
    *hooks.now = comm.rank() == 1;
    auto done = sums(in, out, 2, ccl::Sum{}, stream);
    *hooks.now = false;
    auto ended = stream.synchronize();
    return done ? ended : done;
  });
  CHECK(!results[0].has_value());
  REQUIRE(!results[1].has_value());
  CHECK(results[1].error().code == Errc::out_of_memory);
}
