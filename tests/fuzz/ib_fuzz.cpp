// Control messages of the RDMA transport, to a receiver and to a sender on an emulated device.
#include "fuzz/fuzz.hpp"
#include "support/catch.hpp"
#include "support/fake_verbs.hpp"
#include "support/lent.hpp"
#include "transport/ib/task.hpp"
#include "transport/wire_layout.hpp"
#include <sys/socket.h>

namespace ccl::fuzz {

using namespace detail;

namespace {
constexpr WireShape shape{2, 4, 4096};

std::shared_ptr<IbLink> make_link(const TransportContext& context, EdgeSide side) {
  auto link = std::make_shared<IbLink>();
  link->edge.side = side;
  link->edge.shape = shape;
  link->edge.self.rank = side == EdgeSide::receiver ? 1 : 0;
  link->edge.peer.rank = 1 - link->edge.self.rank;
  link->context = context;
  link->deadline = net::Deadline::after(20).at();
  demand(link->prepare().has_value(), "prepare");
  const auto layout = WireLayout::of(shape).value();
  link->memory = Mapping::anonymous(layout.bytes()).value();
  link->wires = layout.wires(link->memory.base(), side, true);
  link->arriving.resize(1);
  return link;
}

struct Head {
  std::uint32_t say, bytes;
};
template <class... T>
std::string message(IbControlType say, const T&... values) {
  const std::string body = bytes_of(values...);
  return bytes_of(Head{std::uint32_t(say), std::uint32_t(body.size())}) + body;
}
IbPortCard card() {
  IbPortCard one{};
  one.mtu = 3;
  one.nic = 0;
  std::string_view{"fake_0 port 1"}.copy(one.where, sizeof one.where);
  return one;
}
}  // namespace

void prepare() {
  static test::FakeVerbs* const fabric = new test::FakeVerbs{1};
  (void)fabric;
}

void read(Input input) {
  Source source{input};
  const bool sends = source.take<std::uint8_t>() % 2 != 0;
  const std::size_t piece = 1 + 16 * source.take<std::uint8_t>();
  test::Lent lent;
  lent.context.status = nullptr;  // an end that loses the other one waits for no cause
  const auto link = make_link(lent.context, sends ? EdgeSide::sender : EdgeSide::receiver);
  int both[2];
  demand(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) == 0, "pair");
  const Fd far{both[1]};
  net::SecureSocket near{Fd{both[0]}};
  std::shared_ptr<ProxyTask> task;
  if (sends) {
    // The engine's thread runs the task that the maker returns only if it is added.
    task = make_ib_sender(link, std::move(near));
  } else {
    demand(link->arriving.put(0, near), "line");
    task = make_ib_receiver(link);
  }
  ProxyCounters counters;
  while (!source.empty()) {
    const Input bytes = source.take_bytes(piece);
    if (::send(far.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) break;
    for (int turn = 0; turn < 2; ++turn) (void)task->progress(counters);
    char answer[4096];
    while (::recv(far.get(), answer, sizeof answer, 0) > 0) {
    }
  }
  link->closing = true;
  (void)task->progress(counters);
}

std::vector<std::string> seeds() {
  const std::string receiver{"\0\377", 2}, sender{"\1\377", 2};
  const std::uint32_t round = 1, one = 1, none = 0, two = 2;
  const std::int32_t qps = 1, whole = 0;
  const std::uint64_t table = 0x1000;
  const IbPair pair{0, 0, 17, 5};
  const IbChannelPlan plan{1, 1, 0};
  const std::string offer =
      message(IbControlType::offer, round, table, qps, whole, one, card(), two, none, none, none);
  return {
      receiver + offer + message(IbControlType::ready, round, two, pair, pair) +
          message(IbControlType::close_notify),
      receiver + message(IbControlType::refused, qps, whole, one, 'x'),
      sender + message(IbControlType::plan, round, one, card(), two, plan, plan, two, pair, pair) +
          message(IbControlType::go, round) + message(IbControlType::broken, round, none, one, 'x'),
      sender + message(IbControlType::close_notify)};
}

}  // namespace ccl::fuzz
