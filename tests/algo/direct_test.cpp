#include <tuple>

#include "support/catch.hpp"
#include "support/exchange_world.hpp"
#include "support/thread_lanes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
template <class G, int R>
struct Case {
  using Group = G;
  static constexpr int ranks = R;
};
using Cases = std::tuple<Case<detail::SoloLane, 2>, Case<detail::SoloLane, 5>,
                         Case<detail::ThreadLanes<8>, 3>>;
using Body = detail::PeerExchangeBody<Direct, detail::DirectExchange>;
}  // namespace

TEMPLATE_LIST_TEST_CASE("direct: messages of any size, into mapped buffers and through scratch", "",
                        Cases) {
  using Group = typename TestType::Group;
  constexpr int R = TestType::ranks;
  const bool solo = Group::width == 1;
  // Slots of 128 bytes: messages of many rounds.
  ExchangeWorld world{R, Index{128} * R * detail::Mailbox::max_rings * detail::Rings::slot_count /
                             Index{sizeof(Packet)} / 2};
  std::mt19937 random{5};
  for (int turn = 0; turn < (solo ? 40 : 10); ++turn) {
    const Index most = turn % 5 == 0 ? 300 : turn % 5 == 4 ? 200'000 : 20'000;
    const Sizes sizes = random_sizes(R, random, most);
    const auto which = random();
    std::vector<int> channels(R);
    for (int& c : channels) c = 1 + int(random() % (solo ? 4 : 2));
    world.in_turns = R > 2 && turn % 2 == 1;
    world.mappable = turn % 4 < 3;
    INFO("turn " << turn);
    REQUIRE(world.run<Body, Group>(
        sizes, turn % 3,
        [which](int from, int to) { return (which >> ((from * 5 + to) % 32) & 1) != 0; },
        channels));
  }
}

TEST_CASE("direct: who has no message need not take part") {
  ExchangeWorld world{4, 8192};
  world.one_peer = true;
  const auto mapped = [](int, int) { return false; };
  for (int turn = 0; turn < 6; ++turn) {
    Sizes sizes(4, std::vector<Index>(4));
    sizes[turn % 2][1 - turn % 2] = 70'000;
    REQUIRE(world.run<Body, detail::SoloLane>(sizes, 0, mapped, {2, 3, 0, 0}));
    Sizes ring(4, std::vector<Index>(4));
    for (int r = 0; r < 4; ++r) ring[r][(r + 1) % 4] = 5000 * (r + 1);
    REQUIRE(world.run<Body, detail::SoloLane>(ring, 0, mapped, {2, 1, 3, 2}));
  }
}

TEST_CASE("messages over peers move only if the scratch has room for some of each") {
  using Packets = detail::PacketExchange<detail::SoloLane, LL128, 1>;
  for (const int ranks : {2, 3, 8}) {
    for (const bool one_peer : {false, true}) {
      const int most = detail::Rings::limit(ranks, one_peer, 32, ranks > 2 && !one_peer).many;
      detail::PeerView peers;
      peers.ranks = ranks;
      bool large = false;
      for (peers.half_packets = 8; peers.half_packets <= 1 << 16; peers.half_packets *= 2) {
        const Index slot = detail::Rings::slot_bytes(peers, most);
        const Index max_bytes = detail::DirectExchange<detail::SoloLane>::max_bytes(peers, most);
        REQUIRE((max_bytes > 0) == (slot > 0));
        REQUIRE(max_bytes % 128 == 0);
        REQUIRE((peers.half_packets >= 8 * ranks || Packets::max_bytes(peers) == 0));
        large = slot > 0 && Packets::max_bytes(peers) > 0;
      }
      CHECK(large);
    }
  }
}

TEST_CASE("direct: a message's rings are its bytes, each once") {
  for (const int ranks : {2, 3, 4, 8}) {
    for (const Index bytes : {1, 127, 128, 16384, 16385, 1 << 20, 1234567}) {
      char base[1];
      Index next = 0;
      detail::RingLimit limit = detail::Rings::limit(ranks, bytes % 2 == 0, 128, false);
      limit.few = (limit.few + 1) / 2, limit.long_bytes = 20'000;
      for (int ring = 0; ring < limit.many; ++ring) {
        const detail::Message part = detail::Rings::part({base, bytes}, ring, limit);
        if (part.bytes == 0) continue;
        REQUIRE(part.data - base == next);
        next += part.bytes;
        REQUIRE((next == bytes || next % 128 == 0));
      }
      REQUIRE(next == bytes);
    }
  }
}
