// Functions of a network plug-in that fail, hang or never end, and processes that die.
#include <ccl/transport/plugin.hpp>

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <thread>

#include "support/environment.hpp"
#include "support/log_of.hpp"
#include "support/plug_in_edge.hpp"

using namespace ccl;
using namespace ccl::test;

TEST_CASE("each function that fails is an error that names it, its result and the ends") {
  struct Case {
    const char* function;
    int after;
    Errc code = Errc::network;
    int result = 2;
    const char* text = "ncclSystemError (2)";
    int rank = -1;  // that reports it
  };
  const TestNet& net = TestNet::all()[0];
  for (const Case& one :
       {Case{"init", 0}, Case{"devices", 0}, Case{"getProperties", 1},
        Case{"listen", 1, Errc::network, 2, "ncclSystemError (2)", 1},
        Case{"connect", 0, Errc::network, 3, "ncclInternalError (3)", 0},
        Case{"accept", 0, Errc::network, 4, "ncclInvalidArgument (4)", 1}, Case{"regMr", 0},
        Case{"regMr", 3}, Case{"closeListen", 0, Errc::network, 5, "ncclInvalidUsage (5)", 1},
        Case{"irecv", 10, Errc::network, 2, "ncclSystemError (2)", 1},
        Case{"isend", 0, Errc::cuda, 1, "ncclUnhandledCudaError (1)", 0},
        Case{"isend", 5, Errc::network, 99, "an unknown result (99)", 0},
        Case{"test", 40, Errc::network, 7, "ncclInProgress (7)"}}) {
    INFO(one.function << " after " << one.after);
    // The ranks have looked for the plug-in before it fails.
    const Environment chosen{"CCL_NET_PLUGIN", net.path()};
    (void)info_of(0);
    const Faulty fault{net, one.function, one.after, one.result};
    Error error;
    {
      OneEdge edge;
      if (edge.out && edge.in && *edge.sender && *edge.receiver) (void)edge.push_steps(2000);
      error = edge.error();
    }
    INFO(error.message());
    CHECK(error.code == one.code);
    CHECK(mentions(error.what,
                   fmt::format("{} of the network plug-in Test (", one.function).c_str()));
    CHECK(mentions(error.what, net.path()));
    CHECK(mentions(error.what, "version 12) gave"));
    CHECK(mentions(error.what, one.text));
    CHECK(error.transport == "plugin");
    CHECK(error.host == info_of(0).host);
    CHECK(error.rank + error.peer == 1);
    if (one.rank >= 0) CHECK(error.rank == one.rank);
  }
}

TEST_CASE("the other end is told of an error, too") {
  const TestNet& net = TestNet::all()[0];
  const Environment chosen{"CCL_NET_PLUGIN", net.path()};
  OneEdge edge;
  REQUIRE(edge.out);
  const Faulty fault{net, "isend", 0, 3};
  (void)edge.push_steps(10);
  REQUIRE(wait_until([&] { return !edge.to.status.ok(); }));
  const Error error = edge.to.status.result().error();
  CHECK(error.rank == 1);
  CHECK(error.peer == 0);
  CHECK(mentions(error.what, "gave up: isend of the network plug-in Test"));
}

TEST_CASE("the network does not have a step while the plug-in has not sent it") {
  const TestNet& net = TestNet::all()[0];
  const Environment chosen{"CCL_NET_PLUGIN", net.path()};
  OneEdge edge;
  REQUIRE(edge.out);
  REQUIRE(edge.in);
  const auto drained = [&] { return edge.from.proxy.drain() == 0; };
  REQUIRE(wait_until(drained));
  {
    const Faulty fault{net, "test", 0, TestNet::no_end};
    CHECK(edge.push_steps(1) == 1);
    for (int n = 0; n < 100; ++n) {
      CHECK_FALSE(drained());
      std::this_thread::sleep_for(std::chrono::microseconds{100});
    }
  }
  CHECK(wait_until(drained));
}

TEST_CASE("the end of a connection to a rank whose process has exited fails nothing") {
  const TestNet& net = TestNet::all()[0];
  const Environment chosen{"CCL_NET_PLUGIN", net.path()};
  OneEdge edge;
  REQUIRE(edge.out);
  REQUIRE(edge.in);
  CHECK(edge.push_steps(3) == 3);
  CHECK(edge.from.status.set_departed(1));
  edge.in = fail(Errc::aborted, "the receiver has gone");
  edge.receiver.reset();
  REQUIRE(wait_until([&] { return edge.to.proxy.counters().tasks == 0; }));
  std::this_thread::sleep_for(std::chrono::milliseconds{100});
  CHECK(edge.from.status.ok());
}

TEST_CASE("a function that fails at the end is a line of the log, and the memory stays") {
  const TestNet& net = TestNet::all()[1];
  const Environment chosen{"CCL_NET_PLUGIN", net.path()};
  for (const char* function : {"finalize", "deregMr", "closeSend", "closeRecv"}) {
    INFO(function);
    const int before = net.calls(function);
    const int ends = function == std::string_view{"deregMr"} ? 4 : 2;
    const std::string said = fmt::format("WARN NET {} of the network plug-in Test", function);
    const std::string log = log_of(
        [&] {
          const Faulty fault{net, function, 0, 2};
          check_exchange({1, 4, 256}, 20);
          CHECK(wait_until([&] { return net.calls(function) >= before + ends; }));
        },
        said);
    CHECK(mentions(log, said.c_str()));
    CHECK(mentions(log, "ncclSystemError (2)"));
  }
}

TEST_CASE("a connection that is not made ends at the deadline, with the function") {
  const TestNet& net = TestNet::all()[0];
  const Environment chosen{"CCL_NET_PLUGIN", net.path()};
  {
    const Faulty fault{net, "connect", 0, TestNet::no_end};
    OneEdge edge{0.2};
    REQUIRE_FALSE(edge.out);
    CHECK(edge.out.error().code == Errc::timed_out);
    CHECK(edge.out.error().peer == 1);
    CHECK(mentions(edge.out.error().what, "connect of the network plug-in Test"));
  }
  {
    const Faulty fault{net, "accept", 0, TestNet::no_end};
    OneEdge edge{0.2};
    const Error error = edge.error();
    CHECK(error.code == Errc::timed_out);
    CHECK(error.rank == 1);
    CHECK(mentions(error.what, "accept of the network plug-in Test"));
  }
  {
    Lent lent;  // its sender never comes
    lent.context.deadline_s = 0.1;
    const PeerInfo a = info_of(0), b = info_of(1);
    const auto end =
        PluginTransport::setup(lent.context, edge_of(a, b, EdgeSide::receiver, {1, 4, 256}, 1));
    REQUIRE(end);
    REQUIRE(wait_until([&] { return !lent.status.ok(); }));
    CHECK(lent.status.result().error().code == Errc::timed_out);
    CHECK(lent.status.result().error().peer == 0);
    CHECK(mentions(lent.status.result().error().what, "has not connected"));
    CHECK(mentions(lent.status.result().error().what, "raise CCL_INIT_TIMEOUT"));
  }
}

TEST_CASE("an abort ends a connection that waits, with receives under way") {
  const TestNet& net = TestNet::all()[0];
  const Environment chosen{"CCL_NET_PLUGIN", net.path()};
  const auto began = std::chrono::steady_clock::now();
  const std::string log = log_of(
      [&] {
        {
          OneEdge edge;
          REQUIRE(edge.out);
          REQUIRE(edge.in);
          (void)edge.push_steps(3);
          // Only then the receiver works, with receives under way for its other slots.
          const Word& arrived = *edge.in->wires[0].posted;
          REQUIRE(wait_until([&] { return detail::HostMemory::load_acquire(&arrived) == 3; }));
          edge.from.status.set({Errc::aborted, "abort was called"});
          edge.from.proxy.wake();  // all steps are sent, so its thread may sleep
          REQUIRE(wait_until([&] { return !edge.to.status.ok(); }));
          CHECK(edge.to.status.result().error().code == Errc::aborted);
        }
        CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds{4});
      },
      "closeRecv of the network plug-in Test");
  // This plug-in, like others, refuses then. The slots stay, because it may write to them.
  CHECK(mentions(log, "closeRecv of the network plug-in Test"));
}

TEST_CASE("a function that does not return at the end is left to itself") {
  const TestNet& net = TestNet::all()[2];
  const Environment chosen{"CCL_NET_PLUGIN", net.path()};
  std::optional<Faulty> fault{std::in_place, net, "closeRecv", 0, TestNet::held};
  const auto began = std::chrono::steady_clock::now();
  check_exchange({1, 4, 256}, 20);
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds{4});
  CHECK(net.objects() > 0);
  fault.reset();
  CHECK(wait_until([&] { return net.objects() == 0; }));
}

TEST_CASE("a message that is larger than its slot is an error") {
  const TestNet& net = TestNet::all()[0];
  const Environment chosen{"CCL_NET_PLUGIN", net.path()};
  OneEdge edge;
  REQUIRE(edge.out);
  const Faulty fault{net, "test", 0, TestNet::oversize};
  (void)edge.push_steps(10);
  const Error error = edge.error();
  CHECK(error.code == Errc::network);
  CHECK(mentions(error.what, "gave 1073741824 bytes for step 0 from rank 0"));
}

TEST_CASE("a process that is killed is missed") {
  const Environment chosen{"CCL_NET_PLUGIN", TestNet::all()[0].path()};
  const std::string problem = alone_with_child(
      [&](int fd) {
        Lent lent;
        const auto duplex = connect_pair<PluginTransport>(lent.context, 1, {3, 4, 1024}, fd);
        if (!duplex) return duplex.error().message();
        ::raise(SIGKILL);
        return std::string{};
      },
      [&](int fd, pid_t) {
        Lent lent;
        const auto duplex = connect_pair<PluginTransport>(lent.context, 0, {3, 4, 1024}, fd);
        if (!duplex) return duplex.error().message();
        if (!wait_until([&] { return !lent.status.ok(); })) return std::string{"nothing happened"};
        const Error error = lent.status.result().error();
        return fmt::format("{} {} {}", name(error.code), error.peer, error.transport);
      });
  CHECK(problem == "peer_lost 1 plugin");
}
