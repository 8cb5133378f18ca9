// Ends of an RDMA connection that leave or give up, on emulated devices: what they have sent
// arrives, and the other end learns why.
#include <ccl/transport/ib.hpp>

#include <chrono>
#include <thread>

#include "support/fake_verbs.hpp"
#include "support/two_ranks.hpp"
#include "transport/ib/link.hpp"

using namespace ccl;
using namespace ccl::test;

TEST_CASE("what was sent before the sender left arrives, though queue pairs had just failed") {
  FakeVerbs fabric{1};
  {
    OneEdge edge{{2, 4, 128}};
    {
      const Hold hold{edge.from.proxy};
      REQUIRE(fabric.break_one());  // of the receiver's channel 0: it requests others
      await_turns(edge.to.proxy);
      CHECK(edge.push(1, 3, 1).problem == "");
      edge.out.reset();
    }
    CHECK(pull(edge.in->wires[1], 3, 1, &edge.to.status, &edge.to.proxy).problem == "");
    CHECK(edge.from.status.ok());
    CHECK(edge.to.status.ok());
  }
  CHECK(fabric.held() == 0);
}

TEST_CASE("a step for a rank whose process has ended keeps no core busy") {
  FakeVerbs fabric{1};
  OneEdge edge{{1, 4, 128}};
  (void)edge.from.status.set_departed(1);
  edge.in.reset();
  REQUIRE(wait_until([&] { return edge.to.proxy.counters().tasks == 0; }));
  const int before = fabric.held();
  fabric.take_down(0);
  REQUIRE(wait_until([&] { return fabric.held() < before; }));  // the sender has no queue pairs
  CHECK(edge.push(0, 1, 1).problem == "");
  const auto& proxy = edge.from.proxy;
  std::this_thread::sleep_for(std::chrono::milliseconds{300});  // its polls get rare
  const Word so_far = proxy.counters().rounds;
  std::this_thread::sleep_for(std::chrono::milliseconds{500});
  CHECK(proxy.counters().rounds - so_far < 5000);
  CHECK(edge.from.status.ok());
}

TEST_CASE("a sender that recreates queue pairs learns at once that the receiver has left") {
  FakeVerbs fabric{1};
  OneEdge edge{{1, 4, 128}};
  const Wire& wire = edge.out->wires[0];
  {
    const Hold hold{edge.to.proxy};
    REQUIRE(fabric.break_one());  // the receiver's
    const int before = fabric.held();
    CHECK(push(wire, 1, 1, &edge.from.status, &edge.from.proxy).problem == "");
    REQUIRE(wait_until([&] { return fabric.held() < before; }));  // and the sender has none
    CHECK(push(wire, 1, 1).problem == "");
    edge.in.reset();
  }
  REQUIRE(wait_until([&] { return !edge.from.status.ok(); }));
  CHECK(edge.from.status.result().error().code == Errc::peer_lost);
  CHECK(contains(edge.from.status.result().error().what, "it closed its end"));
}

TEST_CASE("a step for a receiver that has left is an error, though queue pairs failed meanwhile") {
  FakeVerbs fabric{1};
  OneEdge edge{{1, 4, 128}};
  edge.in.reset();
  REQUIRE(wait_until([&] { return edge.to.proxy.counters().tasks == 0; }));
  const int before = fabric.held();
  fabric.take_down(0);
  REQUIRE(wait_until([&] { return fabric.held() < before; }));  // the sender has recreated none
  CHECK(edge.from.status.ok());
  CHECK(push(edge.out->wires[0], 1, 1, nullptr, &edge.from.proxy).problem == "");
  REQUIRE(wait_until([&] { return !edge.from.status.ok(); }));
  CHECK(edge.from.status.result().error().code == Errc::peer_lost);
  CHECK(contains(edge.from.status.result().error().what, "it closed its end"));
}

TEST_CASE("what had arrived when queue pairs end counts, however slowly it is taken") {
  FakeVerbs fabric{1};
  OneEdge edge{{2, 4, 128}};
  const Wire &out = edge.out->wires[1], &in = edge.in->wires[1];
  {
    const Hold hold{edge.to.proxy};
    REQUIRE(fabric.break_one());  // of the receiver's channel 0
    CHECK(push(out, 3, 1, &edge.from.status, &edge.from.proxy).problem == "");
    REQUIRE(wait_until([&] { return detail::HostMemory::load_credit(out.drained) == 3; }));
    const std::lock_guard lock{fabric.mutex};
    fabric.faults.max_at_once = 1;  // the error, and what is behind it when it is made good
    fabric.faults.stall_ms = 250;   // longer than the receiver waits for lost data
  }
  CHECK(pull(in, 3, 1, &edge.to.status, &edge.to.proxy).problem == "");
  CHECK(push(out, 4, 1, &edge.from.status, &edge.from.proxy).problem == "");
  CHECK(pull(in, 4, 1, &edge.to.status, &edge.to.proxy).problem == "");
  CHECK(edge.from.status.ok());
  CHECK(edge.to.status.ok());
}

TEST_CASE("an engine is not drained while a step waits for a slot of the receiver") {
  FakeVerbs fabric{1};
  OneEdge edge{{1, 4, 128}};
  const auto drained = [&] { return edge.from.proxy.drain() == 0; };
  CHECK(edge.push(0, 4, 1).problem == "");
  REQUIRE(wait_until(drained));
  CHECK(edge.push(0, 1, 1).problem == "");
  for (int n = 0; n < 100; ++n) CHECK_FALSE(drained());
  CHECK(pull(edge.in->wires[0], 4, 1, &edge.to.status, &edge.to.proxy).problem == "");
  CHECK(wait_until(drained));
}

TEST_CASE("an end that gives up tells the other its reason, whatever the code") {
  FakeVerbs fabric{1};
  const Errc code = GENERATE(Errc::timed_out, Errc::internal, Errc::overflow);
  OneEdge edge{{1, 4, 128}};
  edge.from.status.set({code, "the reason"});
  edge.out.reset();
  REQUIRE(wait_until([&] { return !edge.to.status.ok(); }));
  CHECK(edge.to.status.result().error().code == code);
  CHECK(contains(edge.to.status.result().error().what, "rank 0 on"));
  CHECK(contains(edge.to.status.result().error().what, "gave up: the reason"));
}

TEST_CASE("an end that gives up because of a third rank names that rank") {
  FakeVerbs fabric{1};
  const int at_fault = GENERATE(7, -1, 1);  // 1 is the other end, which cannot name itself
  OneEdge edge{{1, 4, 128}};
  edge.from.status.set({Errc::timed_out, "rank 7 is late", 0, at_fault});
  edge.out.reset();
  REQUIRE(wait_until([&] { return !edge.to.status.ok(); }));
  const Error error = edge.to.status.result().error();
  CHECK(error.code == Errc::timed_out);
  CHECK(error.rank == 1);
  CHECK(error.peer == (at_fault == 7 ? 7 : 0));
  CHECK(contains(error.what, "gave up: rank 7 is late"));
}

TEST_CASE("a peer that has left is not named if the communicator learns why it left") {
  FakeVerbs fabric{1};
  OneEdge edge{{1, 4, 128}};
  edge.in.reset();
  REQUIRE(wait_until([&] { return edge.to.proxy.counters().tasks == 0; }));
  const int before = fabric.held();
  fabric.take_down(0);
  REQUIRE(wait_until([&] { return fabric.held() < before; }));
  CHECK(edge.push(0, 1, 1).problem == "");
  edge.from.proxy.wake();  // its own thread finds the loss
  std::this_thread::sleep_for(std::chrono::milliseconds{100});
  CHECK(edge.from.status.ok());
  edge.from.status.set({Errc::timed_out, "rank 7 is late", 0, 7});
  edge.out.reset();
  CHECK(edge.from.status.result().error().peer == 7);
}
