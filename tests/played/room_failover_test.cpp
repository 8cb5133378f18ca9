// A NIC of a host fails, between two calls or during one: the calls end rightly, and the nearest
// NICs share what the lost one carried.
#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/played/played_gpus.hpp"
#include "support/room/calls.hpp"
#include "support/room/room.hpp"
#include "support/room/traffic.hpp"

using namespace ccl;
using namespace ccl::test;
using room::small;

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

/// Creates a rank's composition.
using Create = std::function<Result<room::RankCall>(const played::Rank&, const Plan&)>;

/// Calls a composition of each rank: once well, once with the failure, once more.
Seen calls_with_failure(room::Room& hosts, bool under_way, const Plan& plan, const Create& create) {
  Seen seen;
  auto ranks = hosts.create_ranks();
  if (!ranks[0]) FAIL(ranks[0].error().message());
  std::barrier all{std::ptrdiff_t(ranks.size())};
  std::vector<room::Traffic> before;
  std::atomic<bool> over{false};
  std::thread breaker;
  played::on_each(ranks, [&](const played::Rank& rank) -> std::string {
    const auto made = create(rank, plan);
    if (!made) {
      all.arrive_and_drop();
      return made.error().message();
    }
    std::string problem = (*made)(rank, few, 1);
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
    if (problem.empty()) problem = (*made)(rank, many, 1);
    meet([&] {
      seen.took_s = seconds_since(began);
      over = true;
      if (breaker.joinable()) breaker.join();
      before = hosts.verbs().traffic();
    });
    if (problem.empty()) problem = (*made)(rank, few, 1);
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

void check_composition(const char* what, int channels, const Create& create) {
  const bool under_way = GENERATE(false, true);
  const room::Shape shape = room::dgx();
  room::Room hosts{shape, 2};
  check_failover(what, calls_with_failure(hosts, under_way, small(channels), create), shape,
                 under_way);
}
}  // namespace

TEST_CASE("rings go on over the nearest NICs") {
  check_composition("AllReduce by rings", 8, [](const auto& rank, const Plan& plan) {
    return room::rings::create(rank, plan);
  });
}

TEST_CASE("trees go on over the nearest NICs") {
  check_composition("AllReduce by trees", 16, [](const auto& rank, const Plan& plan) {
    return room::trees::create(rank, plan);
  });
}

TEST_CASE("messages go on over the nearest NICs") {
  check_composition("SendRecv with the next host", 2, [](const auto& rank, const Plan& plan) {
    return room::pairs::create(rank, plan, 8);
  });
}
