// Events of a profiler plug-in for GPU ranks whose wires go through the proxy. The GPUs are played
// on the CPU.
#define CCL_PLAYED_WARP 2  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/collective.cuh>
#include <ccl/detail/runtime/levels.hpp>
#include <ccl/hierarchical.hpp>
#include <ccl/transport/p2p.hpp>
#include <ccl/transport/socket.hpp>

#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nccl/abi/operations.hpp"
#include "nccl/device/devices.hpp"
#include "nccl/device/host_calls.hpp"
#include "nccl/plug_in/profiler.hpp"
#include "support/environment.hpp"
#include "support/played/calls.hpp"
#include "support/plug_in_lines.hpp"
#include "support/processes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
std::atomic<bool> captures{false};
std::atomic<int> marks{0};  // host functions
}  // namespace

// Calls of CUDA that libnccl makes for the events.
namespace ccl::detail::nccl {
bool is_capturing(cudaStream_t) {
  return captures;
}
Result<void> call_behind(cudaStream_t stream, void (*f)(void*), void* of) {
  ++marks;
  const CUresult code = played::launch(stream, {[=] { f(of); }, 1, 1}, false);
  return code == CUDA_SUCCESS ? Result<void>{} : fail(Errc::cuda, "the mark was refused");
}
}  // namespace ccl::detail::nccl

namespace {

using detail::nccl::Call;
using detail::nccl::Kind;
constexpr const char* path = CCL_TEST_PROFILER_PLUG_IN;
constexpr Plan small{.channels = 2, .slot_count = 4, .slot_bytes = 4096};
constexpr Index count = 10'000;  // elements: some rounds of the wires

/// The operations of libnccl that the tests call.
template <class Algo, class By>
class TestedCalls final : public detail::nccl::Operations {
 public:
  static Result<std::unique_ptr<Operations>> create(const Communicator& comm) {
    CCL_TRY(auto sums, Sums::create(comm, small));
    CCL_TRY(auto messages, Messages::create(comm, small));
    return std::unique_ptr<Operations>{new TestedCalls{std::move(sums), std::move(messages)}};
  }
  Result<void> run(const Call& call) override {
    return sums_(static_cast<const float*>(call.send), static_cast<float*>(call.recv), call.count,
                 ccl::Sum{}, Stream{call.stream});
  }
  Result<Choice> choice(const Call&) override {
    Choice is;
    is.composition = "Ring/Simple";
    return is;
  }
  Result<double> predict(const Call&) const override { return 1.; }
  Result<void> exchange(std::span<const Call> messages) override {
    std::vector<typename Messages::P2pOp> ops;
    for (const Call& one : messages) {
      const bool sends = one.kind == Kind::send;
      ops.push_back({sends, sends ? const_cast<void*>(one.send) : one.recv, one.count,
                     Index{sizeof(float)}, one.root});
    }
    return messages_.group(std::span<const typename Messages::P2pOp>{ops},
                           Stream{messages[0].stream}, detail::Overlaps::allowed);
  }

 private:
  using Sums = Collective<AllReduce, Algo, Simple, By>;
  using Messages = Collective<SendRecv, Pairwise, Simple, By>;
  TestedCalls(Sums sums, Messages messages)
      : sums_{std::move(sums)}, messages_{std::move(messages)} {}
  Sums sums_;
  Messages messages_;
};

/// Communicators with the plug-in loaded. `per_host`: see `played::create_ranks`.
played::Ranks create(int ranks, int per_host) {
  ::setenv("NCCL_PROFILER_PLUGIN", path, 1);
  ::setenv("CCL_TEST_PROFILER", "proxies", 1);
  ::setenv("CCL_SOCKET_IFNAME", "lo", 1);
  played::install(ranks, 4);
  detail::nccl::prepare_profiler();
  return played::create_ranks(ranks, per_host);
}
/// A rank's operations, whose calls report to the plug-in.
template <class Algo, class By>
Result<std::unique_ptr<detail::nccl::Operations>> operations(const Communicator& comm) {
  auto profile = detail::nccl::start_profile(comm, "family", "played");
  if (profile == nullptr) return fail(Errc::internal, "there is no plug-in");
  CCL_TRY(auto made, TestedCalls<Algo, By>::create(comm));
  return detail::nccl::profiled(std::move(made), std::move(profile));
}

/// Calls of a rank with buffers of their own.
struct Calls {
  const played::Rank& rank;
  detail::nccl::Operations& of;
  played::Buffers buffers{rank.rank, 8, count, count};
  std::size_t used = 0;

  Call next(Kind kind, Index elements, int peer = 0) {
    Call call;
    call.kind = kind;
    call.send = buffers.in[used].data();
    call.recv = buffers.out[used++].data();
    call.count = elements;
    call.type = DataType::float32;
    call.stream = rank.stream;
    call.root = peer;
    return call;
  }
  Result<void> sum(Index elements) { return of.run(next(Kind::all_reduce, elements)); }
  Result<void> swap(Index elements) {
    const int peer = 1 - rank.rank;
    const std::vector<Call> both{next(Kind::send, elements, peer),
                                 next(Kind::recv, elements, peer)};
    return of.exchange(both);
  }
  Result<void> await_failure() const {
    const bool failed = wait_until([&] { return !rank.comm.status(); }, 60);
    return failed ? Result<void>{} : fail(Errc::internal, "the communicator has not failed");
  }
};
/// Returns the lines that the plug-in has written since the last call.
std::string new_lines() {
  static std::size_t seen = 0;
  const std::string all = lines_of_plug_in(path);
  return all.substr(std::exchange(seen, all.size()));
}
/// True if the proxies of a rank have noted all that the network has.
bool all_noted(const Communicator& comm) {
  detail::CommState& state = *detail::Access::state(comm);
  if (state.proxy.drain() != 0) return false;
  const auto levels = state.levels.current();
  if (levels == nullptr) return true;
  return std::ranges::all_of(levels->parts(), [](const detail::Levels::Part& part) {
    return detail::Access::state(part.comm)->proxy.drain() == 0;
  });
}

/// Runs `f(calls)` on all ranks. Returns what the plug-in has written.
template <class Algo = Ring, class By = SocketTransport, class F>
std::string lines_with(F f, int ranks = 2, int per_host = 0) {
  auto comms = create(ranks, per_host);
  played::on_each(comms, [&](const played::Rank& rank) -> std::string {
    const auto made = operations<Algo, By>(rank.comm);
    if (!made) return made.error().message();
    Calls calls{rank, **made};
    const Result<void> done = f(calls);
    rank.synchronize();
    if (rank.comm.status() && !wait_until([&] { return all_noted(rank.comm); }, 60)) {
      return "the proxy does not end its steps";
    }
    return played::failure_of(done);
  });
  return new_lines();
}

long count_of(const std::vector<std::string>& lines, const std::string& begin) {
  return std::ranges::count_if(lines, [&](const auto& one) { return one.starts_with(begin); });
}

/// What the line of a ProxyOp's end says: "op sends to 1 channel 0 for AllReduce 2: 3/3 steps,
/// ...".
struct Moved {
  int peer = -1, channel = -1, steps = 0, announced = 0;
  long bytes = 0;
};
/// Those of a direction ("sends to"), by the call that they are for ("AllReduce 2").
std::multimap<std::string, Moved> moved(const std::vector<std::string>& lines,
                                        const std::string& direction) {
  std::multimap<std::string, Moved> all;
  const std::string begin = "op " + direction + " ";
  for (const std::string& line : lines) {
    if (!line.starts_with(begin)) continue;
    Moved one;
    char name[32] = {};
    int number = -1;
    const int got = std::sscanf(
        line.c_str() + begin.size(), "%d channel %d for %31s %d: %d/%d steps, %ld bytes", &one.peer,
        &one.channel, name, &number, &one.steps, &one.announced, &one.bytes);
    CHECK(got == 7);
    all.emplace(std::string{name} + " " + std::to_string(number), one);
  }
  return all;
}

/// Steps and bytes of all channels for a call, which must be of one peer.
Moved sum_for(const std::multimap<std::string, Moved>& all, const std::string& call, int peer) {
  Moved sum;
  sum.channel = 0;  // as bits
  const auto [first, last] = all.equal_range(call);
  for (auto at = first; at != last; ++at) {
    CHECK(at->second.peer == peer);
    CHECK((sum.channel & 1 << at->second.channel) == 0);  // one event for each
    sum.channel |= 1 << at->second.channel;
    sum.steps += at->second.steps;
    sum.bytes += at->second.bytes;
  }
  return sum;
}
void check_all_end(const std::string& all, int ranks = 2) {
  for (int rank = 0; rank < ranks; ++rank) {
    const auto lines = lines_of(all, rank);
    CHECK(count_of(lines, "start step ") == count_of(lines, "stop 16"));
    CHECK(count_of(lines, "start ") == count_of(lines, "stop "));
    CHECK(count_of(lines, "start something else") == 0);
    CHECK(lines.back().starts_with("end, open "));
  }
  CHECK(all.find(" end, open 0\n") != std::string::npos);
}
constexpr long element_bytes = sizeof(float);

}  // namespace

TEST_CASE("steps of GPU ranks over a network are events of their own call") {
  constexpr int calls = 4;
  const std::string all = lines_with([](Calls& of) -> Result<void> {
    // All are queued before the first one has run.
    for (int n = 0; n < calls; ++n) CCL_CHECK(of.sum(count - Index(n) * 1000));
    return {};
  });
  INFO(all);
  check_all_end(all);
  for (const int rank : {0, 1}) {
    const auto lines = lines_of(all, rank);
    const auto sent = moved(lines, "sends to"), received = moved(lines, "receives from");
    for (int n = 0; n < calls; ++n) {
      const Moved sum = sum_for(sent, "AllReduce " + std::to_string(n), 1 - rank);
      CHECK(sum.channel == 3);
      CHECK(sum.steps >= 6);
      CHECK(sum.bytes == (count - n * 1000) * element_bytes);
    }
    CHECK(received.size() > 0);
    for (const auto& [call, one] : received) CHECK(one.peer == 1 - rank);
    const auto sends = count_of(lines, "state 20 of 16"), recvs = count_of(lines, "state 10 of 16");
    CHECK(sends + recvs == count_of(lines, "stop 16"));
    CHECK(count_of(lines, "state 9 of 16 with bytes") == sends);
    CHECK(count_of(lines, "state 11 of 16 with bytes") == recvs);
  }
}

TEST_CASE("steps of a group of messages are events of the message in their direction") {
  const std::string all = lines_with([](Calls& of) -> Result<void> {
    CCL_CHECK(of.sum(1000));
    return of.swap(count);
  });
  INFO(all);
  check_all_end(all);
  for (const int rank : {0, 1}) {
    const std::string peer = std::to_string(1 - rank);
    const auto sent = moved(lines_of(all, rank), "sends to");
    CHECK(sum_for(sent, "Send " + peer, 1 - rank).bytes == count * element_bytes);
    CHECK(sum_for(sent, "AllReduce 0", 1 - rank).bytes == 1000 * element_bytes);
    CHECK(sent.count("Recv " + peer) == 0);
    CHECK(moved(lines_of(all, rank), "receives from").count("Send " + peer) == 0);
  }
}

TEST_CASE("steps of each level of a hierarchical algorithm are events of the call") {
  const std::string all = lines_with<Hierarchical<Ring, Ring>>(
      [](Calls& of) -> Result<void> {
        CCL_CHECK(of.sum(4000));
        return of.sum(8000);
      },
      4, 2);
  INFO(all);
  check_all_end(all, 4);
  for (int rank = 0; rank < 4; ++rank) {
    const auto sent = moved(lines_of(all, rank), "sends to");
    std::map<std::string, std::map<int, long>> bytes;  // of a call, by peer
    for (const auto& [call, one] : sent) bytes[call][one.peer] += one.bytes;
    CHECK(bytes.size() == 2);
    for (const long n : {1, 2}) {
      auto& of = bytes["AllReduce " + std::to_string(n - 1)];
      CHECK(of.size() == 2);
      // Half of the sum twice within the host, and a half of that half twice between hosts.
      CHECK(of[rank ^ 1] == n * 4000 * element_bytes);
      CHECK(of[rank ^ 2] == n * 2000 * element_bytes);
    }
  }
}

TEST_CASE("calls of a rank without a network cost no host functions") {
  const int before = marks;
  const std::string all = lines_with<Ring, P2pTransport>([](Calls& of) { return of.sum(1000); });
  INFO(all);
  check_all_end(all);
  CHECK(marks == before);
  CHECK(count_of(lines_of(all, 0), "start coll AllReduce 0") == 1);
  const std::string over_sockets = lines_with([](Calls& of) { return of.sum(1000); });
  CHECK(marks == before + 4);  // two of each rank
}

TEST_CASE("calls that are captured have no events of steps") {
  const std::string all = lines_with([](Calls& of) -> Result<void> {
    CCL_CHECK(of.sum(1000));
    of.rank.synchronize();
    CCL_CHECK(of.rank.comm.barrier());
    captures = true;
    CCL_CHECK(of.sum(2000));  // which runs here
    of.rank.synchronize();
    CCL_CHECK(of.rank.comm.barrier());
    captures = false;
    return of.sum(3000);
  });
  INFO(all);
  check_all_end(all);
  for (const int rank : {0, 1}) {
    const auto sent = moved(lines_of(all, rank), "sends to");
    CHECK(sum_for(sent, "AllReduce 0", 1 - rank).bytes == 1000 * element_bytes);
    CHECK(sent.count("AllReduce 1") == 0);
    CHECK(sum_for(sent, "AllReduce 2", 1 - rank).bytes == 3000 * element_bytes);
  }
}

TEST_CASE("all events end with a communicator that was aborted during a call") {
  const std::string all = lines_with([](Calls& of) -> Result<void> {
    if (of.rank.rank == 1) return of.await_failure();
    CCL_CHECK(of.sum(count));
    // The first steps fill the slots, and the others wait for ever.
    const detail::CommState& state = *detail::Access::state(of.rank.comm);
    const auto moves = [&] { return state.proxy.counters().steps > 0; };
    if (!wait_until(moves, 60)) return fail(Errc::internal, "nothing moves");
    of.rank.comm.abort("of the test");
    return {};
  });
  INFO(all);
  check_all_end(all);
  CHECK(count_of(lines_of(all, 0), "start sends to 1") == 2);
}

TEST_CASE("a call that is refused leaves no event open") {
  const std::string all = lines_with([](Calls& of) -> Result<void> {
    const auto first = of.sum(1000);
    of.rank.synchronize();
    if (of.rank.rank == 1) return of.await_failure();  // perhaps before `first` has returned
    CCL_CHECK(first);
    played::fail_launch(of.rank.rank, CUDA_ERROR_UNKNOWN, 1);  // the first one is the mark
    if (of.sum(count)) return fail(Errc::internal, "the launch was not refused");
    return {};
  });
  INFO(all);
  check_all_end(all);
}
