// GPU memory of communicators that rest, and come back. The GPUs are played on the CPU, and memory
// that rests cannot be touched there.
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/direct.hpp>
#include <ccl/algo/one_shot.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/collective.cuh>
#include <ccl/comm/window.hpp>
#include <ccl/transport/p2p.hpp>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "comm/edges/memory_rest.hpp"
#include "support/environment.hpp"
#include "support/error_matchers.hpp"
#include "support/played/calls.hpp"
#include "support/played/capture.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr Plan small{.channels = 1, .slot_count = 2, .slot_bytes = 64 << 10};
constexpr Index count = 3000;
using Views = Collective<AllReduce, OneShot, LL128, P2pTransport>;
using Wires = Collective<AllReduce, Tree, Simple, P2pTransport>;

detail::CommState& state_of(const Communicator& comm) {
  return *detail::Access::state(comm);
}
Result<void> rest(const played::Rank& rank) {
  return detail::rest_memory(state_of(rank.comm), "the test");
}
Result<void> wake(const played::Rank& rank) {
  return detail::wake_memory(state_of(rank.comm), "the test");
}
/// Bytes of GPU memory that this process has mapped.
std::size_t mapped_bytes() {
  FakeGpus& all = fake::gpus();
  const std::lock_guard lock{all.mutex};
  return std::accumulate(all.regions.begin(), all.regions.end(), std::size_t{0},
                         [](std::size_t sum, const auto& one) { return sum + one.second.bytes; });
}

/// A graph of an all-reduce.
struct Replayed {
  std::vector<float> in, out = std::vector<float>(std::size_t(count));
  std::shared_ptr<played::Graph> graph;

  template <class C>
  Replayed(const played::Rank& rank, const C& sums) : in(std::size_t(count), float(rank.rank + 1)) {
    auto* const stream = played::stream_of(rank.stream);
    if (played::Capture::begin(*stream) != CUDA_SUCCESS) return;
    const auto done = sums(in.data(), out.data(), count, Sum{}, rank.stream);
    played::Graph* captured = nullptr;
    const auto capture = stream->capture;
    if (capture->end(*stream, &captured) == CUDA_SUCCESS && done) graph.reset(captured);
  }
  std::string replay(const played::Rank& rank) {
    if (graph == nullptr) return "no graph";
    std::fill(out.begin(), out.end(), -1.F);
    if (const auto here = rank.comm.barrier(); !here) return here.error().message();
    if (played::launch_graph(graph, rank.stream) != CUDA_SUCCESS) return "no replay";
    rank.synchronize();
    const float wanted = float(rank.ranks * (rank.ranks + 1) / 2);
    for (const float is : out) {
      if (is != wanted) return fmt::format("a replay has {}, not {}", is, wanted);
    }
    return {};
  }
};

/// Calls over peers' memory and over wires, a graph and a window, before and after rests.
std::string rest_between_calls(const played::Rank& rank,
                               const std::function<std::string()>& resting) {
  const auto views = Views::create(rank.comm, small);
  const auto wires = Wires::create(rank.comm, small);
  auto memory = SharedMemory::allocate(rank.comm, 4096);
  if (!views || !wires || !memory) return "not made";
  const auto window = Window::create(rank.comm, *memory);
  if (!window) return window.error().message();
  const auto text = [&](int from) { return fmt::format("kept by rank {}", from); };
  std::strcpy(memory->as<char>(), text(rank.rank).c_str());
  Replayed graph{rank, *views};
  for (int turn = 0; turn < 3; ++turn) {
    if (auto why = played::all_reduce(rank, *views, count, 2); !why.empty()) return why;
    if (auto why = played::all_reduce(rank, *wires, count, 2); !why.empty()) return why;
    if (auto why = graph.replay(rank); !why.empty()) return why;
    if (const auto done = rest(rank); !done) return "rest: " + done.error().message();
    if (auto why = resting(); !why.empty()) return why;
    if (const auto done = wake(rank); !done) return "wake: " + done.error().message();
    for (int r = 0; r < rank.ranks; ++r) {
      const char* const there = window->template of<char>(r).data();
      if (there != text(r)) return fmt::format("the window of rank {} has {}", r, there);
    }
    if (const auto all = rank.comm.barrier(); !all) return all.error().message();
  }
  return {};
}

}  // namespace

// The first case: played streams of this process have threads, which a fork would not have.
TEST_CASE("memory that other processes have mapped rests, and they map it again") {
  struct Said {
    UniqueId id;
    std::atomic<bool> has_id{false};
    char what[3][400] = {};
  };
  Shared<Said> said;
  std::vector<pid_t> pids;
  for (int r = 0; r < 3; ++r) {
    pids.push_back(start_process([&, r] {
      played::install(3, 4);
      if (r == 0) {
        said->id = *create_unique_id();
        said->has_id = true;
      }
      if (!wait_until([&] { return said->has_id.load(); }, 20)) return 1;
      Config config;
      config.device = r;
      std::vector<Result<Communicator>> one{Communicator::create(said->id, r, 3, config)};
      std::string problem = one.front() ? "did not run" : one.front().error().message();
      if (one.front()) {
        (void)cudaSetDevice(r);
        played::Rank rank{r, 3, *one.front()};
        (void)(*detail::cuda_driver())->stream_create(&rank.stream, CU_STREAM_NON_BLOCKING);
        problem = rest_between_calls(rank, [&]() -> std::string {
          return mapped_bytes() == 0 ? "" : "memory is still mapped";
        });
        rank.synchronize();
        if (problem.empty() && !one.front()->finalize()) problem = "no end";
      }
      problem.copy(said->what[r], sizeof said->what[r] - 1);
      return 0;
    }));
  }
  CHECK(reap(pids, 100));
  for (int r = 0; r < 3; ++r) CHECK(std::string{said->what[r]} == "");
}

TEST_CASE("a communicator at rest has no GPU memory, and goes on from where it was") {
  played::install(3, 4);
  auto comms = played::create_ranks(3);
  const std::size_t before = mapped_bytes();
  std::atomic<int> seen{0};
  played::on_each(comms, [&](const played::Rank& rank) {
    return rest_between_calls(rank, [&]() -> std::string {
      const auto bytes = detail::gpu_bytes(state_of(rank.comm));
      if (bytes.all < 8192 || bytes.can_rest != bytes.all) return "memory that does not rest";
      const bool free = mapped_bytes() <= before;  // on all ranks: each returns after all
      ++seen;
      const auto all = rank.comm.barrier();
      return free && all ? "" : "memory is still mapped";
    });
  });
  CHECK(seen == 9);
}

TEST_CASE("if one GPU has no memory, all ranks rest on, and wake later") {
  played::install(2, 4);
  auto comms = played::create_ranks(2);
  std::atomic<int> at{0};
  played::on_each(comms, [&](const played::Rank& rank) -> std::string {
    const auto views = Views::create(rank.comm, small);
    if (!views) return views.error().message();
    if (auto why = played::all_reduce(rank, *views, count, 1); !why.empty()) return why;
    if (const auto done = rest(rank); !done) return done.error().message();
    if (rank.rank == 1) fake::gpus().full = 1;
    if (const auto here = rank.comm.barrier(); !here) return here.error().message();
    const auto full = wake(rank);
    if (full || full.error().code != Errc::out_of_memory) return "woken without memory";
    if (!mentions(full.error().message(), "device 1") && rank.rank == 1) return "no device";
    if (const auto well = rank.comm.status(); !well) return well.error().message();
    if (const auto here = rank.comm.barrier(); !here) return here.error().message();
    if (mapped_bytes() != 0) return "some memory is awake";
    if (const auto here = rank.comm.barrier(); !here) return here.error().message();
    if (rank.rank == 1) fake::gpus().full = -1;
    if (const auto here = rank.comm.barrier(); !here) return here.error().message();
    if (const auto done = wake(rank); !done) return done.error().message();
    ++at;
    return played::all_reduce(rank, *views, count, 2);
  });
  CHECK(at == 2);
}

TEST_CASE("a communicator ends while it rests") {
  played::install(2, 4);
  {
    auto comms = played::create_ranks(2);
    played::on_each(comms, [&](const played::Rank& rank) -> std::string {
      const auto views = Views::create(rank.comm, small);
      if (!views) return views.error().message();
      if (const auto done = rest(rank); !done) return done.error().message();
      const auto ended = rank.comm.finalize();
      return ended ? std::string{} : ended.error().message();
    });
  }
  CHECK(mapped_bytes() == 0);
}

TEST_CASE("memory of a communicator that was aborted rests, once its kernels have left") {
  played::install(3, 4);
  auto comms = played::create_ranks(3);
  const std::size_t before = mapped_bytes();
  std::atomic<int> reached{0}, aborted{0};
  played::on_each(comms, [&](const played::Rank& rank) -> std::string {
    const auto views = Views::create(rank.comm, small);
    const auto wires = Wires::create(rank.comm, small);
    if (!views || !wires) return "not made";
    if (auto why = played::all_reduce(rank, *wires, count, 2); !why.empty()) return why;
    std::vector<float> data(std::size_t(count), 1);
    // Its kernel waits for the last rank, which does not come.
    const bool called =
        rank.rank == 2 || (*views)(data.data(), data.data(), count, Sum{}, rank.stream);
    for (++reached; reached < rank.ranks;) std::this_thread::yield();  // an abort ends later calls
    rank.comm.abort("the test");
    for (++aborted; aborted < rank.ranks;) std::this_thread::yield();
    if (!called) return "no call";
    const auto again = rank.comm.shrink({}, Shrink::keep_parent, {});
    if (!again) return again.error().message();
    const auto done = detail::rest_failed_memory(state_of(rank.comm), state_of(*again), "the test");
    if (!done) return done.error().message();
    const bool free = mapped_bytes() <= before;  // on all ranks: each returns after all
    if (const auto end = again->finalize(); !end) return end.error().message();
    return free ? "" : "memory is still mapped";
  });
}

TEST_CASE("memory of legacy handles stays, and calls go on after a rest of nothing") {
  const Environment legacy{"CCL_CUMEM_ENABLE", "0"};
  played::install(2, 4);
  auto comms = played::create_ranks(2);
  played::on_each(comms, [&](const played::Rank& rank) -> std::string {
    const auto views = Views::create(rank.comm, small);
    if (!views) return views.error().message();
    if (detail::gpu_bytes(state_of(rank.comm)).can_rest != 0) return "it can rest";
    if (!rest(rank) || !wake(rank)) return "no rest";
    return played::all_reduce(rank, *views, count, 2);
  });
}
