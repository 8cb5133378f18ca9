// A NIC of a host fails, between two calls or during one: the calls end rightly, and the nearest
// NICs share what the lost one carried.
#define CCL_PLAYED_WARP 2  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/collective.cuh>

#include <atomic>
#include <barrier>
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/room/room.hpp"
#include "support/room/traffic.hpp"

using namespace ccl;
using namespace ccl::test;
using room::small;
using room::Ways;

namespace {
constexpr int failing = 3;                      // NIC of host 0
const std::set<int> nearest{0, 1, 2};           // to the GPU at its switch: of the same socket
constexpr double limit_s = 20;                  // a call that waits for a deadline takes longer
constexpr Index few = 1 << 16, many = 1 << 19;  // elements, of which each NIC has an equal part

double seconds_since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

/// What the calls of one composition see.
struct Seen {
  double took_s = 0;  // of the call in which, or before which, the NIC failed
  bool fell_under_way = false;
  std::vector<room::Traffic> after;  // that a later call of the same composition moved
};

/// Takes the NIC down as soon as it has sent `bytes` more.
void fail_under_way(room::Room& hosts, double bytes, const std::atomic<bool>& over, Seen& seen) {
  const auto sent = [&] { return double(hosts.verbs().traffic()[failing].sent); };
  const double until = sent() + bytes;
  while (!over && sent() < until) std::this_thread::sleep_for(std::chrono::microseconds{50});
  seen.fell_under_way = !over;
  hosts.verbs().take_down(failing);
}

/// Calls a composition of each rank: once well, once with the failure, once more. `call(rank,
/// composition, count)` returns what went wrong.
template <class C, class Call>
Seen calls_with_failure(room::Room& hosts, bool under_way, const Plan& plan, Call call) {
  Seen seen;
  auto ranks = hosts.create_ranks();
  if (!ranks[0]) FAIL(ranks[0].error().message());
  std::barrier all{std::ptrdiff_t(ranks.size())};
  std::vector<room::Traffic> before;
  std::atomic<bool> over{false};
  std::thread breaker;
  played::on_each(ranks, [&](const played::Rank& rank) -> std::string {
    const auto made = C::create(rank.comm, plan);
    if (!made) {
      all.arrive_and_drop();
      return made.error().message();
    }
    std::string problem = call(rank, *made, few);
    const auto meet = [&](auto alone) {
      all.arrive_and_wait();
      if (rank.rank == 0) alone();
      all.arrive_and_wait();
    };
    std::chrono::steady_clock::time_point began;
    meet([&] {
      const double sent = double(hosts.verbs().traffic()[failing].sent);  // by `few` elements
      if (under_way) {
        breaker = std::thread{[&, sent] { fail_under_way(hosts, 2 * sent, over, seen); }};
      } else {
        hosts.verbs().take_down(failing);
      }
    });
    began = std::chrono::steady_clock::now();
    if (problem.empty()) problem = call(rank, *made, many);
    meet([&] {
      seen.took_s = seconds_since(began);
      over = true;
      if (breaker.joinable()) breaker.join();
      before = hosts.verbs().traffic();
    });
    if (problem.empty()) problem = call(rank, *made, few);
    meet([&] { seen.after = hosts.verbs().traffic(); });
    return problem;
  });
  for (std::size_t n = 0; n < seen.after.size(); ++n) {
    seen.after[n].sent -= before[n].sent;
    seen.after[n].received -= before[n].received;
  }
  return seen;
}

/// No host misses a NIC but the failed one, and the nearest NICs share its part.
void check_failover(const char* what, const Seen& seen, const room::Shape& shape, bool under_way) {
  INFO(what << (under_way ? " during a call" : " between calls"));
  std::cout << what << (under_way ? ", a NIC fails during a call: " : ", between calls: ")
            << seen.took_s << " s; then KiB sent/received by the NICs of host 0: "
            << room::text(seen.after, shape.nics) << "\n";
  CHECK(seen.took_s < limit_s);
  CHECK(seen.fell_under_way == under_way);
  REQUIRE(seen.after.size() == std::size_t(2 * shape.nics));
  CHECK(room::busy(seen.after, 0, shape.nics) == std::set{0, 1, 2, 4, 5, 6, 7});
  CHECK(room::busy(seen.after, 1, shape.nics).size() == std::size_t(shape.nics));
  const auto bytes = [&](int nic) {
    const room::Traffic& of = seen.after[std::size_t(nic)];
    return double(of.sent + of.received);
  };
  const double usual = bytes(7);
  for (int nic = 0; nic < shape.nics; ++nic) {
    INFO("NIC " << nic);
    const double part = nic == failing ? 0 : nearest.count(nic) != 0 ? 4.0 / 3 : 1;
    // Parts of a step are whole lines.
    CHECK(bytes(nic) >= 0.92 * part * usual);
    CHECK(bytes(nic) <= 1.08 * part * usual);
  }
}

template <class C, class Call>
void check_composition(const char* what, int channels, Call call) {
  const bool under_way = GENERATE(false, true);
  const room::Shape shape = room::dgx();
  room::Room hosts{shape, 2};
  check_failover(what, calls_with_failure<C>(hosts, under_way, small(channels), call), shape,
                 under_way);
}
}  // namespace

TEST_CASE("rings go on over the nearest NICs") {
  using C = Collective<AllReduce, Ring, Simple, Ways>;
  check_composition<C>("AllReduce by rings", 8, [](const auto& rank, const C& sums, Index count) {
    return played::all_reduce(rank, sums, count, 1);
  });
}

TEST_CASE("trees go on over the nearest NICs") {
  using C = Collective<AllReduce, Tree, Simple, Ways>;
  check_composition<C>("AllReduce by trees", 16, [](const auto& rank, const C& sums, Index count) {
    return played::all_reduce(rank, sums, count, 1);
  });
}

TEST_CASE("messages go on over the nearest NICs") {
  using C = Collective<SendRecv, Pairwise, Simple, Ways>;
  check_composition<C>("SendRecv with the next host", 2,
                       [](const auto& rank, const C& messages, Index count) {
                         return played::send_recv(rank, messages, count, 1, 8);
                       });
}
