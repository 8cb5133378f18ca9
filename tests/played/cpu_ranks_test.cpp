// CPU ranks of several hosts with NICs: the NUMA node of what serves these NICs. The hosts are
// those of a machine room.
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/ring.hpp>
#include <ccl/collective.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/ib.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/numa.hpp"
#include "support/driver.hpp"
#include "support/environment.hpp"
#include "support/room/room.hpp"
#include "support/skip.hpp"
#include <sched.h>

using namespace ccl;
using namespace ccl::test;

namespace {

/// CPUs of each thread of this process.
std::map<int, std::vector<int>> cpus_of_threads() {
  std::map<int, std::vector<int>> all;
  for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/task"}) {
    const int thread = std::stoi(entry.path().filename());
    cpu_set_t set;
    if (::sched_getaffinity(thread, sizeof set, &set) != 0) continue;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) all[thread].push_back(cpu);
    }
  }
  return all;
}
/// Threads that run on `cpu` alone, without those of `before`.
int bound_to(int cpu, const std::map<int, std::vector<int>>& before) {
  const auto all = cpus_of_threads();
  return int(std::count_if(all.begin(), all.end(), [&](const auto& thread) {
    return thread.second == std::vector{cpu} && !before.contains(thread.first);
  }));
}

/// NUMA nodes of the buffers of two CPU ranks on two hosts, and the number of threads that run on
/// `cpu` alone while they communicate.
std::string served_by(const room::Shape& shape, int cpu) {
  const room::Room hosts{shape, 2};
  const auto id = create_unique_id();
  REQUIRE(id);
  const auto before = cpus_of_threads();
  std::atomic<int> ready{0}, bound{-1};
  std::vector<std::string> nodes(2);
  const auto rank = [&](int r) {
    played::host_of_thread = r;
    const auto comm = Communicator::create(*id, r, 2);
    if (!comm) {
      nodes[std::size_t(r)] = comm.error().message();
      ++ready;
      bound = 0;
      return;
    }
    nodes[std::size_t(r)] = std::to_string(detail::Access::state(*comm)->device.numa);
    const auto made = Collective<AllReduce, Ring, Simple, IbTransport>::create(*comm);
    std::vector<float> data(1000, 1);
    const auto done =
        made ? (*made)(data.data(), data.data(), 1000, Sum{}) : Result<void>{fail(made.error())};
    if (!done) nodes[std::size_t(r)] = done.error().message();
    // The thread of the proxy chooses its CPUs before it does anything else.
    const auto runs = [&] {
      const auto counters = detail::Access::state(*comm)->proxy.counters();
      return counters.rounds + counters.sleeps > 0;
    };
    if (done && !wait_until(runs)) nodes[std::size_t(r)] = "no proxy";
    ++ready;
    while (ready < 2) std::this_thread::yield();
    if (r == 0) bound = bound_to(cpu, before);
    while (bound < 0) std::this_thread::yield();
  };
  std::thread other{[&] { rank(1); }};
  rank(0);
  other.join();
  played::host_of_thread = -1;
  return fmt::format("{} on nodes {}", bound.load(), fmt::join(nodes, " "));
}
}  // namespace

TEST_CASE("what serves the NICs of CPU ranks runs at their NUMA node, unless the process may not") {
  const std::vector<int> allowed = detail::allowed_cpus();
  if (allowed.size() < 2) return skip("this process may run on one CPU alone");
  const int a = allowed[0], b = allowed[1];
  const detail::OnCpus both{{a, b}};
  room::Shape shape = room::one_sided();
  shape.gpus = 2;
  shape.switches = {{0, {0}, {}}, {1, {1}, {0, 1, 2, 3}}};
  shape.cpus = {{a}, {b}};
  CHECK(served_by(shape, b) == "2 on nodes 1 1");  // a proxy of each rank
  CHECK(detail::allowed_cpus() == std::vector{a, b});
  shape.switches = {{0, {0}, {0, 1, 2, 3}}, {1, {1}, {}}};
  CHECK(served_by(shape, a) == "2 on nodes 0 0");
  shape.cpus = {{b + 1}, {a}};  // this thread may not run on that of node 0
  CHECK(served_by(shape, b + 1) == "0 on nodes 0 0");
  // A process that is bound to a node stays there with its threads and its memory.
  shape.cpus = {{a, b}, {b + 1}};
  CHECK(served_by(shape, b + 1) == "0 on nodes -1 -1");
  shape.cpus = {{b}, {a}};
  const detail::OnCpus bound{{a}};
  const Environment unbound{"CCL_IGNORE_CPU_AFFINITY", "1"};
  CHECK(served_by(shape, b) == "2 on nodes 0 0");
}

TEST_CASE("NICs at several NUMA nodes leave CPU ranks where they are") {
  const std::vector<int> allowed = detail::allowed_cpus();
  if (allowed.size() < 2) return skip("this process may run on one CPU alone");
  const int a = allowed[0], b = allowed[1];
  const detail::OnCpus both{{a, b}};
  room::Shape shape = room::one_sided();
  shape.gpus = 2;
  shape.switches = {{0, {0}, {0, 1}}, {1, {1}, {2, 3}}};
  shape.cpus = {{a}, {b}};
  CHECK(served_by(shape, a) == "0 on nodes -1 -1");
  CHECK(served_by(shape, b) == "0 on nodes -1 -1");
}
