#include <ccl/transport/any_of.hpp>
#include <ccl/transport/plugin.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "proxy/transfer_log.hpp"
#include "support/driver.hpp"
#include "support/environment.hpp"
#include "support/error_matchers.hpp"
#include "support/lent.hpp"
#include "support/log_of.hpp"
#include "support/net_plug_in.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

const WireShape shape{3, 4, 1024};

/// A communicator of its own: a proxy may lie where an earlier one was, whose context lives on
/// until its connections are closed, and the plug-in's contexts are found by proxy and secret.
using Secret = std::array<std::byte, 16>;
Secret fresh_secret() {
  static std::uint32_t communicators = 0;
  Secret secret{};
  ++communicators;
  std::memcpy(secret.data(), &communicators, sizeof communicators);
  return secret;
}

std::string rank_main(int rank, int fd, const WireShape& of, Word steps, const Secret& secret) {
  Lent lent;
  lent.context.secret = secret;
  std::string problem;
  {
    const auto duplex = connect_pair<PluginTransport>(lent.context, rank, of, fd);
    if (!duplex) return duplex.error().message();
    problem = exchange(*duplex, rank, 1 - rank, steps, &lent.status, &lent.proxy);
  }
  if (!lent.status.ok()) problem += lent.status.result().error().message();
  return problem;
}
void check_exchange(const WireShape& of, Word steps) {
  check_two_threads([&, secret = fresh_secret()](int rank, int fd) {
    return rank_main(rank, fd, of, steps, secret);
  });
}

/// A fault of a function, for as long as this lives.
class Faulty {
 public:
  Faulty(const TestNet& net, const char* function, int after, int result)
      : net_{net}, function_{function} {
    net.fail(function, after, result);
  }
  ~Faulty() { net_.fail(function_, 0, 0); }

 private:
  const TestNet& net_;
  const char* const function_;
};

/// One edge, with both ends in this process.
struct OneEdge {
  Lent from, to;
  PeerInfo a = info_of(0), b = info_of(1);
  std::optional<Result<PluginTransport::End>> sender, receiver;
  Result<Connection> out{}, in{};

  /// Connects the ends, as far as that goes.
  explicit OneEdge(double deadline_s = 20, const WireShape& of = {2, 4, 1024}, int entries = 0) {
    from.context.secret = to.context.secret = fresh_secret();
    from.proxy.note_transfers(entries);
    to.proxy.note_transfers(entries);
    from.context.deadline_s = to.context.deadline_s = deadline_s;
    receiver = PluginTransport::setup(to.context, edge_of(a, b, EdgeSide::receiver, of, 1));
    sender = PluginTransport::setup(from.context, edge_of(a, b, EdgeSide::sender, of, 1));
    if (!*sender || !*receiver) return;
    out = (*sender)->connect((*receiver)->handshake());
    in = (*receiver)->connect((*sender)->handshake());
  }
  /// The error of the end at which it happened.
  Error error() {
    for (auto* const end : {&sender, &receiver}) {
      if (!**end) return (*end)->error();
    }
    const auto errors = [&] {
      std::vector<Error> all;
      for (Lent* const end : {&to, &from}) {
        if (!end->status.ok()) all.push_back(end->status.result().error());
      }
      if (!out) all.push_back(out.error());
      if (!in) all.push_back(in.error());
      std::erase_if(all, [](const Error& one) { return mentions(one.what, "gave up"); });
      return all;
    };
    REQUIRE(wait_until([&] { return !errors().empty(); }));
    return errors().front();
  }
  /// Posts steps until an end fails or `most` are posted. The receiver's lanes return at once what
  /// has arrived, and no step is posted that has no slot there: this plug-in sends also what nobody
  /// receives, and so would all steps of a receiver whose thread does not run.
  Word push_steps(Word most) {
    const Wire &wire = out->wires[0], &there = in->wires[0];
    for (Word n = 0; n < most; ++n) {
      const bool free = wait_until(
          [&] {
            const Word arrived = detail::HostMemory::load_acquire(there.posted);
            detail::HostMemory::store_credit(there.drained, arrived);
            to.proxy.wake();
            const Word drained = detail::HostMemory::load_credit(wire.drained);
            return !to.status.ok() || *wire.sent < std::min(drained, arrived) + 4;
          },
          &from.status);
      if (!free || !from.status.ok() || !to.status.ok()) return n;
      wire.sizes[*wire.sent % 4] = 64;
      *wire.sent += 1;
      detail::HostMemory::store_release(wire.posted, *wire.sent);
      from.proxy.wake();
    }
    return most;
  }
};

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
          (void)edge.push_steps(3);
          edge.from.status.set({Errc::aborted, "abort was called"});
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
        const auto duplex = connect_pair<PluginTransport>(lent.context, 1, shape, fd);
        if (!duplex) return duplex.error().message();
        ::raise(SIGKILL);
        return std::string{};
      },
      [&](int fd, pid_t) {
        Lent lent;
        const auto duplex = connect_pair<PluginTransport>(lent.context, 0, shape, fd);
        if (!duplex) return duplex.error().message();
        if (!wait_until([&] { return !lent.status.ok(); })) return std::string{"nothing happened"};
        const Error error = lent.status.result().error();
        return fmt::format("{} {} {}", name(error.code), error.peer, error.transport);
      });
  CHECK(problem == "peer_lost 1 plugin");
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
