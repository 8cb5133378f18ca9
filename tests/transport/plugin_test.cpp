#include <ccl/transport/any_of.hpp>
#include <ccl/transport/plugin.hpp>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

#include "proxy/transfer_log.hpp"
#include "support/environment.hpp"
#include "support/plug_in_edge.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

const WireShape shape{3, 4, 1024};

std::string refusal(const PeerInfo& from, const PeerInfo& to) {
  const auto answer = PluginTransport::can_connect(from, to);
  return answer ? "" : answer.error().what;
}

}  // namespace

TEST_CASE("steps arrive over each version of the interface, and all objects end") {
  for (const TestNet& net : TestNet::all()) {
    INFO("version " << net.version());
    const Environment chosen{"CCL_NET_PLUGIN", net.path()};
    check_exchange(shape, 200);
    CHECK(net.calls("isend") >= 2 * 3 * 200);
    CHECK(net.calls("closeSend") == 6);
    CHECK(net.calls("closeRecv") == 6);
    CHECK(net.calls("closeListen") == 6);
    CHECK(wait_until([&] { return net.objects() == 0; }));
    // Two ranks, and one look at the plug-in, each with a context of its own.
    CHECK(net.calls("init") == (net.version() >= 11 ? 3 : 1));
  }
}

TEST_CASE("steps arrive where the plug-in takes every other call only") {
  const TestNet& net = TestNet::all()[0];
  const Environment chosen{"CCL_NET_PLUGIN", net.path()};
  const Faulty sends{net, "isend", 0, TestNet::busy}, receives{net, "irecv", 0, TestNet::busy},
      connects{net, "connect", 0, TestNet::busy}, accepts{net, "accept", 0, TestNet::busy},
      tests{net, "test", 0, TestNet::busy};
  check_exchange({1, 2, 256}, 100);
  check_exchange({2, 64, 128}, 300);  // more slots than requests
}

TEST_CASE("steps of a sender that has left arrive, however late they are received") {
  const Environment chosen{"CCL_NET_PLUGIN", TestNet::all()[0].path()};
  OneEdge edge;
  REQUIRE(edge.out);
  REQUIRE(edge.in);
  constexpr Word steps = 24;  // six times the slots
  const Wire& from = edge.out->wires[0];
  const Wire& to = edge.in->wires[0];
  for (Word n = 0; n < steps; ++n) {
    REQUIRE(wait_until([&] { return n < detail::HostMemory::load_credit(from.drained) + 4; }));
    std::memset(from.slot(n), int(n), 64);
    from.sizes[n % 4] = 64;
    detail::HostMemory::store_release(from.posted, n + 1);
    edge.from.proxy.wake();
  }
  REQUIRE(wait_until([&] { return detail::HostMemory::load_credit(from.drained) == steps; }));
  edge.sender.reset();
  edge.out->owner.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds{20});  // for its goodbye
  for (Word n = 0; n < steps; ++n) {
    REQUIRE(wait_until([&] { return detail::HostMemory::load_acquire(to.posted) > n; }));
    CHECK(to.sizes[n % 4] == 64);
    CHECK(reinterpret_cast<const std::byte*>(to.slot(n))[63] == std::byte(n));
    detail::HostMemory::store_credit(to.drained, n + 1);
    edge.to.proxy.wake();
  }
  CHECK(edge.from.status.ok());
  CHECK(edge.to.status.ok());
}

TEST_CASE(
    "a receiver that leaves before it has accepted is not lost to a sender that has connected") {
  const TestNet& net = TestNet::all()[0];
  const Environment chosen{"CCL_NET_PLUGIN", net.path()};
  for (const bool accepts : {true, false}) {
    INFO((accepts ? "accept is late" : "accept makes no connection"));
    std::optional<Faulty> fault{std::in_place, net, "accept", 0, TestNet::no_end};
    OneEdge edge;
    REQUIRE(edge.out);
    REQUIRE(edge.in);
    const auto begin = std::chrono::steady_clock::now();
    edge.receiver.reset();
    edge.in->owner.reset();
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
    if (accepts) fault.reset();
    CHECK(wait_until([&] { return edge.to.proxy.counters().tasks == 0; }));
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds{10});
    std::this_thread::sleep_for(std::chrono::milliseconds{2500});  // it would wait 2 s for a cause
    for (const Lent* const end : {&edge.from, &edge.to}) {
      INFO((end->status.ok() ? "" : end->status.result().error().message()));
      CHECK(end->status.ok());
    }
  }
}

TEST_CASE("the times of steps are kept, with the plug-in's device") {
  const Environment chosen{"CCL_NET_PLUGIN", TestNet::all()[0].path()};
  OneEdge edge{20, {1, 4, 1024}, 64};
  REQUIRE(edge.out);
  constexpr Word steps = 10;
  REQUIRE(edge.push_steps(steps) == steps);
  REQUIRE(wait_until([&] {
    const Wire& there = edge.in->wires[0];
    const Word arrived = detail::HostMemory::load_acquire(there.posted);
    detail::HostMemory::store_credit(there.drained, arrived);
    edge.to.proxy.wake();
    return arrived == steps;
  }));
  for (const Lent* const end : {&edge.from, &edge.to}) {
    const detail::TransferLog& log = *end->proxy.transfers();
    REQUIRE(wait_until([&] { return log.latest().size() >= steps; }));
    const auto entries = log.latest();
    CHECK(entries.size() == steps);
    for (std::size_t n = 0; n < entries.size(); ++n) {
      CHECK(entries[n].times.step == n);
      CHECK(entries[n].times.bytes == 64);
      CHECK(entries[n].times.begun <= entries[n].times.ended);
      CHECK(entries[n].line.sends == (end == &edge.from));
      CHECK(entries[n].network.starts_with("test"));
      if (end == &edge.from) CHECK(entries[n].times.posted <= entries[n].times.begun);
    }
  }
}

TEST_CASE("steps arrive between processes") {
  const Environment chosen{"CCL_NET_PLUGIN", TestNet::all()[0].path()};
  const Secret secret = fresh_secret();
  CHECK(alone_with_child([&](int fd) { return rank_main(1, fd, shape, 100, secret); },
                         [&](int fd, pid_t) { return rank_main(0, fd, shape, 100, secret); }) ==
        "");
}

TEST_CASE("ranks without the same plug-in are refused, and other networks where one is asked for") {
  PeerInfo plain = info_of(0);
  PeerInfo asked;
  {
    const Environment chosen{"CCL_NET_PLUGIN", TestNet::all()[0].path()};
    asked = info_of(1);
  }
  PeerInfo other = asked;
  ++other.net_plug_in;
  CHECK(mentions(refusal(plain, asked), "plugin does not connect rank 0 to rank 1 (rank 0 on"));
  CHECK(mentions(refusal(plain, asked), "neither CCL_NET nor CCL_NET_PLUGIN names one"));
  CHECK(mentions(refusal(asked, other), "different names"));
  CHECK(refusal(asked, asked) == "");
  CHECK(SocketTransport::can_connect(plain, plain));
  const auto socket = SocketTransport::can_connect(plain, asked);
  REQUIRE_FALSE(socket);
  CHECK(mentions(socket.error().what, "the settings of rank 1 on"));
  CHECK_FALSE(IbTransport::can_connect(asked, plain));
  using Any = AnyOf<IbTransport, PluginTransport, SocketTransport>;
  CHECK(std::string{Any::edge_transport(asked, asked).transport} == "plugin");
  CHECK_FALSE(Any::can_connect(plain, asked));
  asked.net_plug_in_only = 0;  // found unasked: after RDMA, before TCP
  CHECK(std::string{Any::edge_transport(asked, asked).transport} == "plugin");
  CHECK(std::string{Any::edge_transport(plain, asked).transport} == "socket");
}

TEST_CASE("slots that are larger than a message of the plug-in are refused") {
  const Environment chosen{"CCL_NET_PLUGIN", TestNet::all()[0].path()};
  Lent lent;
  const PeerInfo a = info_of(0), b = info_of(1);
  const auto end = PluginTransport::setup(
      lent.context, edge_of(a, b, EdgeSide::sender, {1, 2, Index{2} << 30}, 1));
  REQUIRE_FALSE(end);
  CHECK(end.error().code == Errc::invalid_argument);
  CHECK(mentions(end.error().what, "are too large for the network plug-in Test"));
}
