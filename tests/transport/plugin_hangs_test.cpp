// Functions of a network plug-in that never return: while a connection is made, while it works, and
// as it ends.
#include <ccl/transport/plugin.hpp>

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "support/elapsed.hpp"
#include "support/environment.hpp"
#include "support/log_of.hpp"
#include "support/plug_in_edge.hpp"
#include "transport/registered_memory.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

using Clock = std::chrono::steady_clock;

/// The test plug-in, before any of its functions hangs: ranks look for it once.
const TestNet& looked_for(const TestNet& net = TestNet::all()[0]) {
  const Environment chosen{"CCL_NET_PLUGIN", net.path()};
  (void)info_of(0);
  return net;
}

std::string text_of(const char* function) {
  return fmt::format("{} of the network plug-in Test (", function);
}
void check_names(const Error& error, const char* function, const char* limit) {
  INFO(error.message());
  CHECK(error.code == Errc::timed_out);
  CHECK(mentions(error.what, text_of(function).c_str()));
  CHECK(mentions(error.what, "version 12) has not returned for "));
  CHECK(mentions(error.what, fmt::format("(half of {}), on test", limit).c_str()));
  CHECK(mentions(error.what, "from rank 0 on "));
  CHECK(mentions(error.what, "to rank 1 on "));
  CHECK(error.transport == "plugin");
  CHECK(error.rank + error.peer == 1);
}

using Buffer = std::array<std::byte, 64>;
std::shared_ptr<detail::RegisteredMemory> registered(Buffer& memory) {
  auto entry = std::make_shared<detail::RegisteredMemory>(memory.data(), Index(memory.size()));
  detail::add_registered(entry);
  return entry;
}
/// Lends a registered buffer as the first step of an edge.
void lend(OneEdge& edge, Buffer& memory) {
  REQUIRE(edge.out->wires[0].zero_copy->lend(0, memory.data(), Index(memory.size())));
}
/// Posts that step.
void post_lent(OneEdge& edge) {
  const Wire& wire = edge.out->wires[0];
  wire.sizes[0] = Word(sizeof(Buffer)) | detail::ZeroCopy::mark;
  *wire.sent += 1;
  detail::HostMemory::store_release(wire.posted, *wire.sent);
  edge.from.proxy.wake();
}

/// Pushes steps until `function` has been called more than `before` times.
bool push_until_called(OneEdge& edge, const TestNet& net, const char* function, int before) {
  return wait_until([&] {
    (void)edge.try_push();
    return net.calls(function) > before;
  });
}

}  // namespace

TEST_CASE("a function that does not return while the connection is made is named") {
  const TestNet& net = looked_for();
  const Environment chosen{"CCL_NET_PLUGIN", net.path()};
  for (const char* function : {"listen", "connect", "accept", "regMr", "closeListen"}) {
    INFO(function);
    const auto begin = Clock::now();
    const Faulty fault{net, function, 0, TestNet::held};
    {
      OneEdge edge{4};
      check_names(edge.error(), function, "CCL_INIT_TIMEOUT");
    }
    CHECK(seconds_since(begin) < 20);
  }
}

TEST_CASE("a function that does not return within the operation limit is named") {
  const TestNet& net = looked_for();
  const Environment chosen{"CCL_NET_PLUGIN", net.path()};
  for (const char* function : {"isend", "irecv", "test"}) {
    INFO(function);
    const auto begin = Clock::now();
    const Faulty fault{net, function, 20, TestNet::held};
    {
      OneEdge edge{20, {2, 4, 1024}, 0, 2};
      REQUIRE(edge.out);
      REQUIRE(edge.in);
      (void)edge.push_steps(2000);
      check_names(edge.error(), function, "CCL_TIMEOUT");
      // The end whose plug-in returns is told of it, or had the same fault.
      REQUIRE(wait_until([&] { return !edge.from.status.ok() && !edge.to.status.ok(); }));
      CHECK(mentions(edge.from.status.result().error().what, text_of(function).c_str()));
      CHECK(mentions(edge.to.status.result().error().what, text_of(function).c_str()));
    }
    CHECK(seconds_since(begin) < 20);
  }
}

TEST_CASE("without a limit, a call that does not return keeps neither an abort nor the end") {
  const TestNet& net = looked_for();
  const Environment chosen{"CCL_NET_PLUGIN", net.path()};
  for (const char* function : {"isend", "irecv", "test"}) {
    for (const bool aborts : {false, true}) {
      INFO(function << (aborts ? ", abort" : ", end"));
      const auto begin = Clock::now();
      const std::string said = text_of(function);
      const std::string log = log_of(
          [&] {
            const int before = net.calls(function);
            const Faulty fault{net, function, 20, TestNet::held};
            OneEdge edge;
            REQUIRE(edge.out);
            REQUIRE(edge.in);
            REQUIRE(push_until_called(edge, net, function, before + 20));
            CHECK(edge.from.status.ok());
            CHECK(edge.to.status.ok());
            if (!aborts) return;
            for (Lent* const end : {&edge.from, &edge.to}) {
              end->status.set({Errc::aborted, "abort was called"});
            }
            const auto tasks = [](const Lent& of) { return of.proxy.counters().tasks; };
            CHECK(tasks(edge.from) + tasks(edge.to) == 2);
            CHECK(wait_until([&] { return tasks(edge.from) + tasks(edge.to) < 2; }));
          },
          said);
      CHECK(mentions(log, said.c_str()));
      CHECK(mentions(log, "after the failure or the end of its communicator"));
      CHECK(seconds_since(begin) < 20);
    }
  }
}

TEST_CASE("a call that returns late, when its ends are gone, changes nothing") {
  const TestNet& net = looked_for();
  const Environment chosen{"CCL_NET_PLUGIN", net.path()};
  // Under AddressSanitizer, an access to the ends would end the test.
  for (const char* function : {"connect", "accept", "regMr", "isend", "irecv", "test"}) {
    INFO(function);
    const int before = net.calls(function);
    std::optional<Faulty> fault{std::in_place, net, function, 0, TestNet::held};
    {
      OneEdge edge{1};
      if (edge.out) (void)edge.try_push();
      REQUIRE(wait_until([&] { return net.calls(function) > before; }));
    }
    fault.reset();
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
  }
  check_exchange({1, 4, 256}, 20);  // the plug-in works on
}

TEST_CASE("the end of a buffer's registration may return after its rank is gone") {
  const TestNet& net = looked_for();
  const Environment chosen{"CCL_NET_PLUGIN", net.path()};
  static Buffer memory;
  std::optional<Faulty> fault;
  {
    OneEdge edge;
    REQUIRE(edge.out);
    REQUIRE(edge.in);
    auto entry = registered(memory);
    lend(edge, memory);
    detail::remove_registered(*entry);
    entry.reset();  // the step keeps it, and the task drops it
    const int before = net.calls("deregMr");
    fault.emplace(net, "deregMr", 0, TestNet::held);
    post_lent(edge);
    REQUIRE(wait_until([&] { return net.calls("deregMr") > before; }));
  }
  fault.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  check_exchange({1, 4, 256}, 20);
}

TEST_CASE("a buffer ends within some seconds where its registration does not") {
  const TestNet& net = looked_for();
  const Environment chosen{"CCL_NET_PLUGIN", net.path()};
  static Buffer memory;
  const std::string log = log_of([&] {
    OneEdge edge;
    REQUIRE(edge.out);
    REQUIRE(edge.in);
    const Wire& wire = edge.out->wires[0];
    auto entry = registered(memory);
    lend(edge, memory);
    post_lent(edge);
    REQUIRE(wait_until([&] { return detail::HostMemory::load_credit(wire.drained) == 1; }));
    const Faulty fault{net, "deregMr", 0, TestNet::held};
    const auto begin = Clock::now();
    detail::remove_registered(*entry);
    entry.reset();  // the last owner
    CHECK(seconds_since(begin) < 10);
  });
  CHECK(mentions(log, "a registered buffer stays registered with the network plug-in Test ("));
}

TEST_CASE("a call that does not return keeps no connection of another communicator") {
  const TestNet& net = looked_for();
  const Environment chosen{"CCL_NET_PLUGIN", net.path()};
  for (const char* function : {"isend", "irecv", "test"}) {
    INFO(function);
    std::array<OneEdge, 2> edges{OneEdge{20, {2, 4, 1024}, 0, 6}, OneEdge{20, {2, 4, 1024}, 0, 6}};
    const auto failed = [](const OneEdge& one) {
      return !one.from.status.ok() || !one.to.status.ok();
    };
    for (OneEdge& one : edges) {
      REQUIRE(one.out);
      REQUIRE(one.in);
      CHECK(one.push_steps(20) == 20);
    }
    const Faulty fault{net, function, 0, TestNet::one_held};  // one of both has the call
    CHECK(wait_until([&] {
      for (OneEdge& one : edges) (void)one.try_push();
      return failed(edges[0]) || failed(edges[1]);
    }));
    OneEdge& stuck = edges[failed(edges[0]) ? 0 : 1];
    OneEdge& well = edges[failed(edges[0]) ? 1 : 0];
    check_names(stuck.error(), function, "CCL_TIMEOUT");
    CHECK(*well.out->wires[0].sent > *stuck.out->wires[0].sent + 10);  // meanwhile
    CHECK(well.push_steps(200) == 200);
    CHECK_FALSE(failed(well));
  }
}

TEST_CASE("a buffer of two communicators is registered with one while the other does not return") {
  const TestNet& net = looked_for();
  const Environment chosen{"CCL_NET_PLUGIN", net.path()};
  static Buffer memory;
  OneEdge stuck, well;
  REQUIRE(stuck.out);
  REQUIRE(well.out);
  REQUIRE(well.in);
  const auto entry = registered(memory);
  const int before = net.calls("regMr");
  const Faulty fault{net, "regMr", 0, TestNet::one_held};
  lend(stuck, memory);
  post_lent(stuck);
  REQUIRE(wait_until([&] { return net.calls("regMr") > before; }));
  lend(well, memory);
  post_lent(well);
  CHECK(
      wait_until([&] { return detail::HostMemory::load_credit(well.out->wires[0].drained) == 1; }));
  detail::remove_registered(*entry);
}
