// Launches over multicast memory whose ranks are late, and those that do not fit.
#include <ccl/detail/multicast/body.hpp>

#include "support/catch.hpp"
#include "support/multicast_world.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Lane = detail::SoloLane;
using Summed = detail::Reduction<Sum, float>;
constexpr int ranks = 3;
constexpr Index count = 300;

/// Runs some ranks; the others never come. Returns the peer that each rank names, or -1.
template <class Op, class R>
std::vector<int> run_some(const R& how, const std::vector<int>& present, int root) {
  using T = typename R::Type;
  MulticastWorld world{ranks, 4096};
  std::vector<T> in(count * ranks, T(1)), out[ranks];
  std::vector<int> named(present.size(), -1);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < present.size(); ++i) {
    const int r = present[i];
    out[r].assign(count * ranks, T(9));
    threads.emplace_back([&, r, i] {
      detail::LaneFailure failure;
      const Word stop = 0;
      const detail::AbortWatch watch{&stop, &failure, Word{30} * 1'000'000};
      world.run_rank<Op, Lane>(r, how, 2, watch, [&](auto& work) {
        work.input = in.data(), work.output = out[r].data(), work.root = root;
        work.layout = {count, count, count, std::is_same_v<Op, AllReduce>};
      });
      named[i] = int(failure.peer) - 1;
    });
  }
  for (auto& t : threads) t.join();
  // Whoever waited for the late rank has stored nothing.
  for (const int r : present) {
    for (const T x : out[r]) REQUIRE(x == T(9));
  }
  return named;
}
}  // namespace

TEST_CASE("a wait names the rank that has not arrived") {
  const Summed sum{Sum{}, ranks};
  const std::vector<int> both{2, 2};
  CHECK(run_some<AllReduce>(sum, {0, 1}, 0) == both);
  CHECK(run_some<ReduceScatter>(sum, {0, 1}, 0) == both);
  CHECK(run_some<AllGather>(detail::Bytes{}, {0, 1}, 0) == both);
  CHECK(run_some<Broadcast>(detail::Bytes{}, {0, 1}, 2) == both);
  CHECK(run_some<Reduce>(sum, {1}, 1) == std::vector<int>{2});
  // No earlier launch has used this half, so only the root waits.
  CHECK(run_some<Reduce>(sum, {0}, 1) == std::vector<int>{-1});
}

TEST_CASE("launches of many ranks' counts and halves") {
  const Summed sum{Sum{}, ranks};
  MulticastWorld world{ranks, 4096, Word{1} << 40};
  for (int launch = 0; launch < 20; ++launch) {
    std::vector<float> data[ranks];
    for (auto& d : data) d.assign(count, float(launch));
    REQUIRE(world.run<AllReduce, Lane>(sum, 1 + launch % 4, [&](int r, auto& work) {
      work.input = work.output = data[r].data(), work.layout = {count, 0, 0, true};
    }));
    for (auto& d : data) REQUIRE(d == std::vector<float>(count, 3.f * float(launch)));
  }
}

TEST_CASE("a launch that does not fit the scratch or the mailboxes does not begin") {
  using Multicast = detail::UnicastMulticast<detail::HostMemory>;
  using Body = detail::MulticastBody<AllReduce, Nvls, Simple, Multicast, 1, Summed>;
  detail::MulticastWork<Summed> work{Summed{Sum{}, ranks}};
  work.peers.ranks = ranks;
  for (int r = 0; r < ranks; ++r) work.add_head(r);
  work.layout = {count, 0, 0, true};
  // Two boxes of three shares, of 128 elements each.
  work.peers.half_packets = 2 * 3 * 128 / 4;
  CHECK(Body::fits<Lane>(work));
  work.peers.half_packets -= 1;
  CHECK_FALSE(Body::fits<Lane>(work));
  work.peers.half_packets += 1;
  work.channels = detail::Mailbox::max_rings + 1;
  CHECK_FALSE(Body::fits<Lane>(work));
}

TEST_CASE("a rank that is a launch ahead does not overwrite what others still read") {
  constexpr int launches = 300;
  constexpr Index bytes = 4096;
  MulticastWorld world{ranks, 4096};
  int wrong[ranks] = {};
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      detail::LaneFailure failure;
      const Word stop = 0;
      const detail::AbortWatch watch{&stop, &failure, Word{20} * 1'000'000'000};
      for (int launch = 0; launch < launches && failure.peer == 0; ++launch) {
        const std::vector<char> in(bytes, char(launch));
        std::vector<char> out(ranks * bytes);
        world.run_rank<AllGather, Lane>(r, detail::Bytes{}, 1, watch, [&](auto& work) {
          work.input = in.data(), work.output = out.data();
          work.layout = {bytes, 0, bytes, false};
        });
        wrong[r] += out != std::vector<char>(ranks * bytes, char(launch));
      }
      wrong[r] += failure.peer != 0;
    });
  }
  for (auto& t : threads) t.join();
  for (const int w : wrong) CHECK(w == 0);
}
