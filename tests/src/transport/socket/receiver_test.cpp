// Headers of steps at their extremes, from a peer that is connected.
#include <ccl/detail/lanes/host_memory.hpp>

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

/// The error after this header, which comes where step 0 is due. Its code is `ok` if there is none.
Error error_after(const StepHeader& header) {
  Lent lent;
  const auto link = std::make_shared<SocketLink>();
  link->edge.side = EdgeSide::receiver;
  link->edge.shape = shape;
  link->edge.self.rank = 1;
  link->edge.peer.rank = 0;
  link->context = lent.context;
  link->deadline = net::Deadline::after(20).at();
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
