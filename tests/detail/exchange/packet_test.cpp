#include <ccl/detail/exchange/packet.hpp>

#include <tuple>

#include "support/catch.hpp"
#include "support/exchange_world.hpp"
#include "support/thread_lanes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
template <class P, class G, int R>
struct Case {
  using Proto = P;
  using Group = G;
  static constexpr int ranks = R;
};
using Cases = std::tuple<Case<LL, detail::SoloLane, 2>, Case<LL128, detail::SoloLane, 5>,
                         Case<LL, detail::SoloLane, 8>, Case<LL128, detail::ThreadLanes<8>, 3>>;
}  // namespace

TEMPLATE_LIST_TEST_CASE("packets: messages of any size between all ranks", "", Cases) {
  using Proto = typename TestType::Proto;
  using Group = typename TestType::Group;
  constexpr int R = TestType::ranks;
  const bool solo = Group::width == 1;
  ExchangeWorld world{R, Index{R} * 2048};
  detail::PeerView peers;
  peers.half_packets = Index{R} * 2048;
  peers.ranks = R;
  using Exchange = detail::PacketExchange<Group, Proto, 1>;
  using Body = detail::PeerExchangeBody<OneShot, Exchange::template Over>;
  const Index most = Exchange::max_bytes(peers);
  REQUIRE(most > 10'000);
  std::mt19937 random{3};
  for (int turn = 0; turn < (solo ? 40 : 10); ++turn) {
    Sizes sizes = random_sizes(R, random, turn % 3 == 0 ? 200 : most);
    if (turn % 4 == 0) sizes[0][R - 1] = most;
    std::vector<int> channels(R);
    for (int& c : channels) c = 1 + int(random() % (solo ? 4 : 2));
    INFO("turn " << turn);
    REQUIRE(world.run<Body, Group>(
        sizes, turn % 3, [](int, int) { return false; }, channels));
  }
}

TEST_CASE("packets: a sender that runs ahead waits for a slow receiver") {
  using Body =
      detail::PeerExchangeBody<OneShot, detail::PacketExchange<detail::SoloLane, LL128, 1>::Over>;
  ExchangeWorld world{2, 4096};
  Sizes sizes(2, std::vector<Index>(2));
  sizes[0][1] = 3000;
  for (int turn = 0; turn < 20; ++turn) {
    REQUIRE(world.run<Body, detail::SoloLane>(sizes, 0, [](int, int) { return false; }, {1, 2}));
  }
}
