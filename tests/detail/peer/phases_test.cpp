// Kernels over the memory of peers note their phases: on CPU lanes, in the kernels' own code.
#include <ccl/traced.hpp>

#include <chrono>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <vector>

#include "support/catch.hpp"
#include "support/peer_world.hpp"
#include "support/thread_lanes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
constexpr int count = 500, channels = 3, late_rank = 1;
constexpr Word late_ns = 30'000'000;

bool in_order(const detail::PhaseTimes& at) {
  return at.begun != 0 && at.begun <= at.ready && at.ready <= at.first_data &&
         at.first_data <= at.last_data && at.last_data <= at.ended;
}

/// Launches an operation of which a rank is late, and looks at the notes of every rank.
template <class Op, class Algo, class Proto, class Group, int Ranks, int Kernel>
void late_rank_is_seen() {
  using R = std::conditional_t<Op::reduces, detail::Reduction<Sum, float>, detail::Bytes>;
  using T = typename R::Type;
  PeerWorld<Ranks, Kernel> world{4096 * Kernel};
  world.phases.resize(Ranks);
  std::vector<std::vector<T>> in(Ranks), out(Ranks);
  const R reduction = [] {
    if constexpr (Op::reduces) {
      return R{{}, Ranks};
    } else {
      return R{};
    }
  }();
  for (int r = 0; r < Ranks; ++r) {
    in[r].assign(std::size_t(count) * Ranks, T{1});
    out[r].assign(std::size_t(count) * Ranks, T{});
  }
  REQUIRE(world.template run<Op, Algo, Proto, Group>(reduction, channels, [&](int r, auto& work) {
    if (r == late_rank) std::this_thread::sleep_for(std::chrono::nanoseconds{late_ns});
    work.input = in[r].data();
    work.output = out[r].data();
    if (std::is_same_v<Op, AllGather>) work.layout = {count, 0, count, false};
    if (std::is_same_v<Op, ReduceScatter>) work.layout = {count, count, 0, false};
    if (std::is_same_v<Op, AllReduce>) work.layout = {count, 0, 0, Algo::splits};
  }));
  for (int r = 0; r < Ranks; ++r) {
    for (int channel = 0; channel < channels; ++channel) {
      const detail::PhaseTimes& at = world.phases[r].times[world.ticket][channel];
      INFO(Algo::name << " rank " << r << " channel " << channel << ": " << at.begun << " "
                      << at.ready << " " << at.first_data << " " << at.last_data << " "
                      << at.ended);
      REQUIRE(at.ticket == world.ticket);
      REQUIRE(in_order(at));
      // Every rank needs the data of the late one.
      if (r != late_rank) REQUIRE(at.last_data - at.ready > late_ns / 2);
    }
    REQUIRE(world.phases[r].times[world.ticket][channels].ticket == 0);
    REQUIRE(world.phases[r].times[world.ticket + 1][0].ticket == 0);
  }
}
}  // namespace

TEST_CASE("kernels of OneShot and TwoShot note when data of a late rank arrives") {
  late_rank_is_seen<AllReduce, Traced<OneShot>, LL128, detail::SoloLane, 3, 4>();
  late_rank_is_seen<AllReduce, Traced<TwoShot>, LL, detail::ThreadLanes<8>, 2, 2>();
  late_rank_is_seen<AllGather, Traced<OneShot>, LL, detail::SoloLane, 3, 4>();
  late_rank_is_seen<ReduceScatter, Traced<OneShot>, LL, detail::SoloLane, 2, 2>();
}

TEST_CASE("kernels for any number of ranks note phases, too") {
  late_rank_is_seen<AllReduce, Traced<OneShot>, LL, detail::SoloLane, 9, max_view_ranks>();
}

TEST_CASE("an algorithm that is not traced has no code for times") {
  using Plain = detail::notes_of<OneShot, detail::SoloLane>;
  STATIC_REQUIRE(std::is_empty_v<Plain>);
  STATIC_REQUIRE(!std::is_empty_v<detail::notes_of<Traced<OneShot>, detail::SoloLane>>);
  PeerWorld<2> world{4096};
  world.phases.resize(2);
  float in[2] = {1, 2}, out[2] = {};
  REQUIRE(world.run<AllReduce, OneShot, LL, detail::SoloLane>(detail::Reduction<Sum, float>{{}, 2},
                                                              1, [&](int r, auto& work) {
                                                                work.input = &in[r];
                                                                work.output = &out[r];
                                                                work.layout = {1, 0, 0, false};
                                                              }));
  CHECK(out[0] == 3);
  CHECK(world.phases[0].times[world.ticket][0].ticket == 0);
}
