#include <ccl/transport/loopback.hpp>

#include "support/driver.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
struct Pair {
  TransportContext context;
  PeerInfo a = info_of(0), b = info_of(1);
  Result<LoopbackTransport::End> end(EdgeSide side, WireShape shape, unsigned long long id = 7) {
    return LoopbackTransport::setup(context, edge_of(a, b, side, shape, id));
  }
};
}  // namespace

TEST_CASE("steps cross a loopback connection in order, whichever end connects first") {
  const int slots = GENERATE(1, 2, 4, 8);
  const bool receiver_first = GENERATE(false, true);
  const WireShape shape{3, slots, 1024};
  Pair pair;
  auto sender = pair.end(EdgeSide::sender, shape).value();
  auto receiver = pair.end(EdgeSide::receiver, shape).value();
  const Handshake s = sender.handshake(), r = receiver.handshake();
  Connection in, out;
  if (receiver_first) in = receiver.connect(s).value();
  out = sender.connect(r).value();
  if (!receiver_first) in = receiver.connect(s).value();
  REQUIRE(out.wires.size() == 3);
  REQUIRE(in.wires.size() == 3);
  CHECK(out.wires[0].slots == in.wires[0].slots);
  CHECK(reinterpret_cast<std::uintptr_t>(out.wires[1].slots) % 128 == 0);
  CHECK(out.wires[0].received == nullptr);
  CHECK(in.wires[0].sent == nullptr);
  CHECK(out.wires[0].sizes == nullptr);
  std::string pushed;
  std::thread thread(
      [&] { pushed = on_all(out, [](const Wire& wire, Word w) { return push(wire, 300, w); }); });
  const std::string pulled =
      on_all(in, [](const Wire& wire, Word w) { return pull(wire, 300, w); });
  thread.join();
  CHECK(pushed == "");
  CHECK(pulled == "");
}

TEST_CASE("ranks in threads connect both ways at once") {
  check_two_threads([](int rank, int fd) {
    TransportContext context;
    auto duplex = connect_pair<LoopbackTransport>(context, rank, {2, 4, 256}, fd);
    return duplex ? exchange(*duplex, rank, 1 - rank, 500) : duplex.error().message();
  });
}

TEST_CASE("memory outlives either end") {
  Pair pair;
  const WireShape shape{1, 2, 128};
  auto sender = std::make_unique<LoopbackTransport::End>(*pair.end(EdgeSide::sender, shape));
  auto receiver = std::make_unique<LoopbackTransport::End>(*pair.end(EdgeSide::receiver, shape));
  Connection out = sender->connect(receiver->handshake()).value();
  Connection in = receiver->connect(sender->handshake()).value();
  sender.reset();
  receiver.reset();
  CHECK(push(out.wires[0], 2, 1).problem == "");
  out = {};
  CHECK(pull(in.wires[0], 2, 1).problem == "");
}

TEST_CASE("a receiver that is gone, and an edge of another shape, are refused by name") {
  Pair pair;
  const WireShape shape{1, 2, 128};
  auto sender = pair.end(EdgeSide::sender, shape).value();
  Handshake stale;
  {
    auto receiver = pair.end(EdgeSide::receiver, shape).value();
    stale = receiver.handshake();
  }
  const auto lost = sender.connect(stale);
  REQUIRE(!lost);
  CHECK(lost.error().code == Errc::peer_lost);
  CHECK(lost.error().peer == 1);
  CHECK(lost.error().rank == 0);
  CHECK(lost.error().transport == "loopback");

  auto wider = pair.end(EdgeSide::receiver, {2, 2, 128}).value();
  CHECK(sender.connect(wider.handshake()).error().code == Errc::mismatch);
  auto other = pair.end(EdgeSide::receiver, shape, 8).value();
  CHECK(sender.connect(other.handshake()).error().code == Errc::mismatch);
  CHECK(sender.connect(Handshake{}).error().code == Errc::peer_lost);

  // 16 bytes of a token, then which copy of ccl made it.
  auto receiver = pair.end(EdgeSide::receiver, shape).value();
  Handshake of_a_plug_in = receiver.handshake();
  of_a_plug_in[16] ^= std::byte{64};
  const auto apart = sender.connect(of_a_plug_in);
  REQUIRE(!apart);
  CHECK(apart.error().code == Errc::no_transport);
  CHECK(apart.error().what.find("another copy of ccl") != std::string::npos);
  CHECK(sender.connect(receiver.handshake()).has_value());
}

TEST_CASE("shapes that no wire can have are refused") {
  Pair pair;
  const WireShape shape = GENERATE(
      WireShape{0, 2, 128}, WireShape{1, 3, 128}, WireShape{1, 0, 128}, WireShape{1, 2, 100},
      WireShape{1, 2, 0}, WireShape{1, 1 << 30, Index(1) << 34}, WireShape{1, 2, Index(1) << 36});
  const auto end = pair.end(EdgeSide::receiver, shape);
  REQUIRE(!end);
  CHECK(end.error().code == Errc::invalid_argument);
}

TEST_CASE("loopback connects one process only") {
  PeerInfo a = info_of(0), b = info_of(1);
  CHECK(LoopbackTransport::can_connect(a, b).has_value());
  b.pid_hash ^= 1;
  const auto refused = LoopbackTransport::can_connect(a, b);
  REQUIRE(!refused);
  CHECK(refused.error().code == Errc::no_transport);
}
