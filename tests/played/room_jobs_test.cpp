// Jobs of hosts that are played in one process: NICs beside those that NCCL uses, hosts that
// differ, and all operations of a job.
#define CCL_PLAYED_WARP 2  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/tree.hpp>
#include <ccl/choose/candidate.hpp>
#include <ccl/collective.cuh>
#include <ccl/detail/choose/chooser.hpp>
#include <ccl/detail/choose/facts.hpp>

#include <array>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "base/log_style.hpp"
#include "comm/state.hpp"
#include "support/log_of.hpp"
#include "support/room/calls.hpp"
#include "support/room/nccl_answers.hpp"
#include "support/room/room.hpp"
#include "support/room/traffic.hpp"
#include "transport/ib/verbs/presence.hpp"

using namespace ccl;
using namespace ccl::test;
using room::moved_by;
using room::small;
using room::Ways;

namespace {
constexpr double evenly = 0.05;

/// The part of a host's channels between hosts that NCCL gives each of its NICs.
std::vector<double> parts_of(const std::vector<room::NcclChannel>& channels, int nics) {
  std::vector<double> parts(std::size_t(nics), 0.0);
  for (const auto& channel : channels) {
    parts[std::size_t(channel.nic)] += 1 / double(channels.size());
  }
  return parts;
}

/// Each NIC of each host has moved its part of the host's bytes.
void check_parts(const std::vector<room::Traffic>& moved, const std::vector<double>& parts) {
  for (std::size_t first = 0; first < moved.size(); first += parts.size()) {
    double all = 0;
    for (std::size_t n = 0; n < parts.size(); ++n) {
      all += double(moved[first + n].sent + moved[first + n].received);
    }
    REQUIRE(all > 0);
    for (std::size_t n = 0; n < parts.size(); ++n) {
      INFO("host " << first / parts.size() << ", NIC " << n);
      const double part = double(moved[first + n].sent + moved[first + n].received) / all;
      CHECK(part > parts[n] * (1 - evenly));
      CHECK(part < parts[n] * (1 + evenly));
    }
  }
}

/// Hosts of the shape, each in the NVLink domain "1:clique"; -1: in none.
std::vector<room::Shape> in_cliques(room::Shape shape, const std::vector<int>& cliques) {
  std::vector<room::Shape> shapes;
  for (const int clique : cliques) {
    shape.fabric = clique < 0 ? "" : fmt::format("1:{}", clique);
    shapes.push_back(shape);
  }
  return shapes;
}
int machines_of(const played::Ranks& ranks) {
  return detail::Access::state(*ranks[0])->identity.arrangement().machine_count();
}
std::uint64_t sent(const std::vector<room::Traffic>& moved) {
  std::uint64_t all = 0;
  for (const room::Traffic& nic : moved) all += nic.sent;
  return all;
}
}  // namespace

TEST_CASE("bytes between hosts go by the NICs of NCCL's channels, as much by each as there") {
  const int count = GENERATE(2, 4);
  for (const room::NcclAnswer& answer : room::nccl_answers()) {
    INFO(answer.shape.name << ", " << count << " hosts");
    room::Room hosts{answer.shape, count};
    auto ranks = hosts.create_ranks();
    if (!ranks[0]) FAIL(ranks[0].error().message());
    const int rings = ranks[0]->ring_count(), nics = answer.shape.nics;
    CHECK(rings == int(answer.rings.size()));
    check_parts(moved_by(hosts, "AllReduce by rings",
                         [&] { room::rings::all_reduces(ranks, rings * 8192, small(rings), 1); }),
                parts_of(answer.rings, nics));
    check_parts(
        moved_by(hosts, "AllReduce by trees",
                 [&] { room::trees::all_reduces(ranks, rings * 4096, small(2 * rings), 1); }),
        parts_of(answer.trees, nics));
  }
}

TEST_CASE("lines of NCCL's log name the RDMA port of each channel by its number in the list") {
  detail::use_nccl_log_style([] { return -1; });  // for the rest of the process
  room::Room hosts{room::two_nics(), 2};
  auto ranks = hosts.create_ranks();
  if (!ranks[0]) FAIL(ranks[0].error().message());
  const auto ports = detail::ib_port_names();
  REQUIRE(ports.has_value());
  REQUIRE(ports->size() == 4);
  for (const int channels : {1, 2}) {
    std::vector<room::Traffic> moved;
    const std::string lines = log_of([&] {
      moved = moved_by(hosts, "AllReduce by a ring",
                       [&] { room::rings::all_reduces(ranks, 4096, small(channels), 1); });
    });
    std::set<int> named, busy;
    for (std::size_t n = 0; n < moved.size(); ++n) {
      if (moved[n].sent + moved[n].received > 0) busy.insert(int(n));
    }
    const std::regex line{"Channel [0-9]+/0 : .* via NET/IB(/([0-9]+))?\n"};
    for (std::sregex_iterator at{lines.begin(), lines.end(), line}, end; at != end; ++at) {
      REQUIRE((*at)[1].matched);
      named.insert(std::stoi((*at)[2]));
    }
    INFO(lines);
    CHECK(busy.size() == 2 * std::size_t(channels));
    CHECK(named == busy);
  }
}

TEST_CASE("all operations are right between hosts of 8 and 4 GPUs, of which one lacks a NIC") {
  room::Shape whole = room::dgx(), part = whole;
  part.absent = {2};  // GPU 2 of the second host has none at its switch
  room::Room hosts{std::vector{whole, part}, {8, 4}};
  auto ranks = hosts.create_ranks();
  if (!ranks[0]) FAIL(ranks[0].error().message());
  const int rings = ranks[0]->ring_count(), last = int(ranks.size()) - 1;
  const auto moved = moved_by(hosts, "all operations", [&] {
    room::rings::all_reduces(ranks, 5000, small(rings), 2);
    room::trees::all_reduces(ranks, 5000, small(2 * rings), 2);
    room::rings::all_gathers(ranks, 1000, small(rings), 2);
    room::rings::reduce_scatters(ranks, 1000, small(rings), 2);
    room::rings::broadcasts(ranks, 1000, last, small(rings), 2);
    room::trees::reduces(ranks, 1000, last, small(2 * rings), 2);
    room::pairs::all_to_alls(ranks, 1000, small(2), 2);
    room::pairs::all_to_all_vs(ranks, small(2), 2);
    room::pairs::gathers(ranks, 1000, last, small(2), 2);
    room::pairs::scatters(ranks, 1000, last, small(2), 2);
    room::pairs::send_recvs(ranks, 1000, small(2), 2, 4);
  });
  const std::set<int> of_part = room::busy(moved, 1, whole.nics);
  CHECK(of_part == std::set{0, 1, 3});
  CHECK(room::busy(moved, 0, whole.nics).size() == 8);
}

TEST_CASE("a ring of GPUs on 2 and 4 hosts sums lines of 128 bytes over RDMA alone") {
  const int count = GENERATE(2, 4);
  room::Room hosts{room::dgx(), std::vector<int>(std::size_t(count), 1)};
  auto ranks = hosts.create_ranks();
  if (!ranks[0]) FAIL(ranks[0].error().message());
  const auto moved = moved_by(hosts, "AllReduce",
                              [&] { room::rings::all_reduces_by_lines(ranks, 5000, small(2), 3); });
  for (int h = 0; h < count; ++h) CHECK(!room::busy(moved, h, 8).empty());
}

TEST_CASE("rings and trees leave an NVLink domain of two hosts once, by NICs of both") {
  constexpr int gpus = 2, calls = 2;
  const auto run = [&](const std::vector<int>& cliques, int machines, const char* what) {
    INFO(what);
    room::Room hosts{in_cliques(room::dgx(), cliques), std::vector<int>(cliques.size(), gpus)};
    auto ranks = hosts.create_ranks();
    if (!ranks[0]) FAIL(ranks[0].error().message());
    CHECK(machines_of(ranks) == machines);
    const int rings = ranks[0]->ring_count();
    const auto by_rings = moved_by(
        hosts, what, [&] { room::rings::all_reduces(ranks, 8 * 4096, small(rings), calls); });
    room::trees::all_reduces(ranks, 8 * 4096, small(2 * rings), calls);
    room::rings::all_gathers(ranks, 1000, small(rings), calls);
    room::trees::broadcasts(ranks, 1000, int(ranks.size()) - 1, small(2 * rings), calls);
    room::pairs::all_to_alls(ranks, 1000, small(2), calls);
    if (machines > 1) CHECK(room::unevenness(by_rings, 8) < evenly);
    return by_rings;
  };
  const auto apart = run({-1, -1, -1, -1}, 4, "four hosts");
  const auto joined = run({0, 0, 1, 1}, 2, "two domains of two hosts");
  CHECK(2 * sent(joined) == sent(apart));
  const auto mixed = run({-1, 0, 0, -1}, 3, "a domain between two hosts");
  CHECK(4 * sent(mixed) == 3 * sent(apart));
  CHECK(sent(run({0, 0}, 1, "one domain")) == 0);
}

TEST_CASE("the hops of a tree between domains are those between as many hosts") {
  const auto us_of_tree = [](const std::vector<int>& cliques) {
    room::Room hosts{in_cliques(room::dgx(), cliques), std::vector<int>(cliques.size(), 2)};
    auto ranks = hosts.create_ranks();
    if (!ranks[0]) FAIL(ranks[0].error().message());
    const std::array facts{detail::facts_of<AllReduce, Candidate<Tree, LL>, Ways>()};
    std::vector<double> us(ranks.size());
    played::on_each(ranks, [&](const played::Rank& rank) -> std::string {
      const auto made = detail::Chooser::create(rank.comm, {AllReduce::name, facts, false, true});
      if (!made) return made.error().message();
      us[std::size_t(rank.rank)] = made->predict(0, 1024);
      return {};
    });
    return us[0];
  };
  CHECK(us_of_tree({0, 0, 1, 1}) < 0.9 * us_of_tree({-1, -1, -1, -1}));
}

TEST_CASE("hosts are no domain where settings or the driver keep GPUs from sharing memory") {
  const auto machines = [] {
    room::Room hosts{in_cliques(room::dgx(), {0, 0}), {2, 2}};
    auto ranks = hosts.create_ranks();
    if (!ranks[0]) FAIL(ranks[0].error().message());
    return machines_of(ranks);
  };
  CHECK(machines() == 1);
  for (const char* const off : {"CCL_MNNVL_ENABLE", "CCL_CUMEM_ENABLE"}) {
    const Environment none{off, "0"};
    CHECK(machines() == 2);
  }
  {
    const Environment none{"CCL_TRANSPORT", "^p2p"};
    CHECK(machines() == 2);
  }
  fake::gpus().fabric = false;
  CHECK(machines() == 2);
  fake::gpus().fabric = true;
}
