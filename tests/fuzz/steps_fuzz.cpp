// Headers and data of steps, as the receiver of the socket transport reads them.
#include <ccl/detail/lanes/host_memory.hpp>

#include "fuzz/fuzz.hpp"
#include "support/lent.hpp"
#include "transport/socket/task.hpp"
#include "transport/wire_layout.hpp"
#include <sys/socket.h>

namespace ccl::fuzz {

using namespace detail;

namespace {
constexpr WireShape shape{1, 4, 4096};

std::shared_ptr<SocketLink> make_link(const TransportContext& context, int streams) {
  auto link = std::make_shared<SocketLink>();
  link->edge.side = EdgeSide::receiver;
  link->edge.shape = shape;
  link->edge.self.rank = 1;
  link->edge.peer.rank = 0;
  link->context = context;
  link->deadline = net::Deadline::after(20).at();
  const auto layout = WireLayout::of(shape).value();
  link->memory = Mapping::anonymous(layout.bytes()).value();
  link->wires = layout.wires(link->memory.base(), EdgeSide::receiver, true);
  Handshake theirs{};
  HandshakeCursor put, get;
  put.put(theirs, streams);
  put.put(theirs, 0);
  demand(link->read_fields(theirs, get).has_value(), "streams");
  link->engines.push_back(context.proxy);
  link->arriving.resize(link->lines());
  return link;
}
}  // namespace

void prepare() {}

void read(Input input) {
  Source source{input};
  const std::size_t piece = 1 + source.take<std::uint8_t>();
  const int streams = 1 + source.take<std::uint8_t>() % 2;
  test::Lent lent;
  const auto link = make_link(lent.context, streams);
  int both[2];
  demand(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) == 0, "pair");
  const Fd far{both[1]};
  net::SecureSocket near{Fd{both[0]}};
  demand(link->arriving.put(0, near), "line");
  const auto task = make_receive_stream(link, 0, 0);
  ProxyCounters counters;
  const Wire& wire = link->wires[0];
  while (!source.empty() && lent.status.ok()) {
    const Input bytes = source.take_bytes(piece);
    if (::send(far.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) break;
    for (int turn = 0; turn < 3; ++turn) (void)task->progress(counters);
    // Lanes drain at once what has been posted.
    const Word posted = HostMemory::load_acquire(wire.posted);
    HostMemory::store_release(wire.drained, posted);
  }
  link->closing = true;
  (void)task->progress(counters);
}

std::vector<std::string> seeds() {
  const auto step = [](Word number, Word bytes) {
    return bytes_of(StepHeader{number, bytes}) + std::string(std::size_t(bytes), 'x');
  };
  const std::string one{"\377\0", 2}, small{"\7\0", 2}, two{"\377\1", 2};
  return {one + step(0, 8) + step(1, 4096) + step(2, 0) + bytes_of(StepHeader{goodbye, 0}),
          small + step(0, 24) + step(1, 100), two + step(0, 4096) + step(1, 8),
          one + step(0, 8) + step(3, 8)};
}

}  // namespace ccl::fuzz
