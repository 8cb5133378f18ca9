// Streams of one channel that different threads drive: one of them wakes the others.
#include <ccl/detail/lanes/host_memory.hpp>

#include <array>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "support/catch.hpp"
#include "support/lent.hpp"
#include "support/processes.hpp"
#include "transport/socket/task.hpp"
#include "transport/wire_layout.hpp"
#include <sys/ioctl.h>
#include <sys/socket.h>

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail;

namespace {

constexpr int streams = 16;
constexpr Index step_bytes = 256 << 10, piece_bytes = step_bytes / streams;
constexpr WireShape shape{1, 4, step_bytes};

struct Line {
  net::SecureSocket near;
  Fd far;
};
Line make_line() {
  int both[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) == 0);
  return {net::SecureSocket{Fd{both[0]}}, Fd{both[1]}};
}
void set_send_buffer(int socket, int bytes) {
  REQUIRE(::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) == 0);
}
/// Takes what has arrived, and returns its bytes.
Index take(const Fd& far) {
  static std::array<std::byte, 1 << 16> some;
  Index all = 0;
  for (ssize_t got; (got = ::recv(far.get(), some.data(), some.size(), 0)) > 0;) all += got;
  return all;
}

std::shared_ptr<SocketLink> make_link(const Lent& lent, int of_streams) {
  const auto link = std::make_shared<SocketLink>();
  link->edge.side = EdgeSide::sender;
  link->edge.shape = shape;
  link->edge.peer.rank = 1;
  link->context = lent.context;
  const auto layout = WireLayout::of(shape).value();
  link->memory = Mapping::anonymous(layout.bytes()).value();
  link->wires = layout.wires(link->memory.base(), EdgeSide::sender, true);
  Handshake theirs{};
  HandshakeCursor put, get;
  put.put(theirs, of_streams);
  put.put(theirs, 0);
  REQUIRE(link->read_fields(theirs, get).has_value());
  return link;
}

}  // namespace

TEST_CASE("a sender that nobody polls any more has told its receiver that it rests") {
  ProxyEngine engine;
  Lent lent;
  const auto link = make_link(lent, 1);
  link->engines = {&lent.proxy};
  link->polled = link->opens_late = true;
  link->idle_s = 0.001;
  Line line = make_line();
  link->late_calls = LateCalls::make({&engine}, 1, [&](std::size_t, const Status*) {
    return Result<net::SecureSocket>{std::move(line.near)};
  });
  const auto task = make_send_stream(link, 0, 0, net::SecureSocket{});
  ProxyCounters counters{};
  const Wire& wire = link->wires[0];
  wire.sizes[0] = 64;
  HostMemory::store_release(wire.posted, Word{1});
  Index sent = 0;
  for (int round = 0; round < 2; ++round) {
    REQUIRE(task->interest().polled);
    for (int turn = 0; turn < 1000 && task->interest().polled; ++turn) {
      (void)task->progress(counters);
      std::this_thread::sleep_for(std::chrono::microseconds{100});
    }
    REQUIRE(!task->interest().polled);
    CHECK(!task->interest().pending);
    CHECK((task->interest().events & POLLIN) != 0);
    sent += take(line.far);
    CHECK(sent == (round + 1) * Index(64 + 2 * sizeof(StepHeader)));
    REQUIRE(::send(line.far.get(), &rests_too, 1, 0) == 1);
    (void)task->progress(counters);
    CHECK(!task->interest().pending);
    CHECK(task->interest().polled);
    line = make_line();
    wire.sizes[1] = 64;
    HostMemory::store_release(wire.posted, Word{2});
  }
}

TEST_CASE("a stream that was in the middle of a step shows the others the steps behind it") {
  Lent lent;
  ProxyEngine others;
  const auto link = make_link(lent, streams);
  link->engines = {&lent.proxy, &others};
  Line first = make_line(), second = make_line();
  const int socket = first.near.get();
  set_send_buffer(socket, 1);
  const auto by_hand = make_send_stream(link, 0, 0, std::move(first.near));
  REQUIRE(others.add(make_send_stream(link, 0, 1, std::move(second.near))).has_value());
  const Wire& wire = link->wires[0];
  const auto post = [&](Word step) {
    wire.sizes[step] = Word(step_bytes);
    HostMemory::store_release(wire.posted, step + 1);
  };
  ProxyCounters counters;
  Index arrived = 0;
  const auto others_have_sent = [&](int steps) {
    return wait_until(
        [&] {
          arrived += take(second.far);
          return arrived == steps * piece_bytes;
        },
        60);
  };
  post(0);
  (void)by_hand->progress(counters);
  REQUIRE(others_have_sent(1));
  CHECK(counters.steps == 0);  // its own piece is on its way
  Word sleeps = 0;
  do {
    sleeps = others.counters().sleeps;
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
  } while (others.counters().sleeps != sleeps);

  post(1);
  set_send_buffer(socket, 1 << 20);
  (void)take(first.far);
  (void)by_hand->progress(counters);
  CHECK(counters.steps == 2);
  CHECK(others_have_sent(2));
  link->closing = true;
  (void)by_hand->progress(counters);
  others.wake();
}

TEST_CASE("what a stream has not delivered: steps without a socket, and bytes that nobody took") {
  Lent lent;
  const auto link = make_link(lent, 1);
  link->engines = {&lent.proxy};
  link->arriving.resize(1);
  const auto stream = make_send_stream(link, 0, 0, {});
  ProxyCounters counters;
  (void)stream->progress(counters);
  CHECK(stream->undelivered() == 0);
  const Wire& wire = link->wires[0];
  wire.sizes[0] = 64;
  HostMemory::store_release(wire.posted, 1);
  (void)stream->progress(counters);
  CHECK(stream->undelivered() > 0);
  Line line = make_line();
  REQUIRE(link->arriving.put(0, line.near));
  (void)stream->progress(counters);
  CHECK(stream->undelivered() > 0);  // the other end's kernel counts it until it is read
  CHECK(take(line.far) == 64 + Index(sizeof(StepHeader)));
  CHECK(stream->undelivered() == 0);
}
