// Headers of steps at their extremes, from a peer that is connected, and a peer that never is.
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/runtime/proxy_helper.hpp>

#include <optional>

#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/lent.hpp"
#include "transport/socket/task.hpp"
#include "transport/wire_layout.hpp"
#include <sys/socket.h>

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail;

namespace {

constexpr WireShape shape{1, 4, 4096};

/// Link of a receiver, rank 1, from rank 0.
std::shared_ptr<SocketLink> receiving_link(Lent& lent) {
  auto link = std::make_shared<SocketLink>();
  link->edge.side = EdgeSide::receiver;
  link->edge.shape = shape;
  link->edge.self.rank = 1;
  link->edge.peer.rank = 0;
  link->context = lent.context;
  link->deadline = link->last_look = net::Deadline::after(20).at();
  const auto layout = WireLayout::of(shape).value();
  link->memory = Mapping::anonymous(layout.bytes()).value();
  link->wires = layout.wires(link->memory.base(), EdgeSide::receiver, true);
  Handshake theirs{};
  HandshakeCursor put, get;
  put.put(theirs, 1);
  put.put(theirs, 0);
  REQUIRE(link->read_fields(theirs, get).has_value());
  link->engines.push_back(&lent.proxy);
  link->arriving.resize(1);
  return link;
}

/// The error after this header, which comes where step 0 is due. Its code is `ok` if there is none.
Error error_after(const StepHeader& header) {
  Lent lent;
  const auto link = receiving_link(lent);
  int both[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) == 0);
  const Fd far{both[1]};
  net::SecureSocket near{Fd{both[0]}};
  REQUIRE(link->arriving.put(0, near));
  const auto task = make_receive_stream(link, 0, 0);
  ProxyCounters counters;
  REQUIRE(::send(far.get(), &header, sizeof header, 0) == ssize_t(sizeof header));
  for (int turn = 0; turn < 50; ++turn) (void)task->progress(counters);
  const auto well = lent.status.result();
  link->closing = true;
  (void)task->progress(counters);
  return well ? Error{Errc::ok, ""} : well.error();
}

/// The error of a turn, by a lane that waits or by the proxy's thread, while no sender has come.
/// The two limits have passed or not.
Errc error_without_sender(bool by_lane, bool limit_passed, bool last_passed) {
  Lent lent;
  const auto link = receiving_link(lent);
  if (limit_passed) link->deadline = {};
  if (last_passed) link->last_look = {};
  const auto task = make_receive_stream(link, 0, 0);
  ProxyCounters counters;
  {
    std::optional<ProxyHelper> helps;
    if (by_lane) helps.emplace(lent.proxy);
    (void)task->progress(counters);
  }
  const auto well = lent.status.result();
  link->closing = true;
  (void)task->progress(counters);
  return well ? Errc::ok : well.error().code;
}

}  // namespace

TEST_CASE(
    "a header of another step, or of more bytes than a slot, names both ends and what is due") {
  for (const StepHeader& header : {StepHeader{0, 4097}, StepHeader{0, ~Word{0}}, StepHeader{1, 8},
                                   StepHeader{~Word{1}, 0}, StepHeader{0, Word{1} << 63}}) {
    const Error error = error_after(header);
    INFO(error.message());
    CHECK(error.code == Errc::mismatch);
    CHECK(error.rank == 1);
    CHECK(error.peer == 0);
    CHECK(mentions(error.what, "rank 0 on"));
    CHECK(mentions(error.what, "sent rank 1 on"));
    CHECK(mentions(error.what, "not 0 of at most 4096"));
  }
  CHECK(error_after({0, 4096}).code == Errc::ok);
  CHECK(error_after({0, 0}).code == Errc::ok);
}

TEST_CASE("a sender that never comes is late for a lane that waits sooner than for the thread") {
  for (const bool by_lane : {false, true}) {
    CHECK(error_without_sender(by_lane, false, false) == Errc::ok);
    CHECK(error_without_sender(by_lane, true, true) == Errc::timed_out);
  }
  CHECK(error_without_sender(true, true, false) == Errc::timed_out);
  // A round for another task: senders that wait for a rank that has stopped name that rank first.
  CHECK(error_without_sender(false, true, false) == Errc::ok);
}
