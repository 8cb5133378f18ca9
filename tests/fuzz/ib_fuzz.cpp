// Control messages of the RDMA transport, to a receiver and to a sender on an emulated device, and
// immediates of writes to a receiver that is connected.
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/transport/zero_copy.hpp>

#include "fuzz/connected.hpp"
#include "fuzz/fuzz.hpp"
#include "fuzz/links.hpp"
#include "support/catch.hpp"
#include "support/fake_verbs.hpp"
#include "support/lent.hpp"
#include "transport/ib/task.hpp"
#include <arpa/inet.h>
#include <sys/socket.h>

namespace ccl::fuzz {

using namespace detail;

namespace {
test::FakeVerbs& fabric() {
  static test::FakeVerbs* const one = new test::FakeVerbs{1};
  return *one;
}

/// The receiver's lanes drain at once what has arrived, which must be a step of at most a slot.
void drain(const Wire& wire) {
  const Word posted = HostMemory::load_acquire(wire.posted);
  for (Word n = HostMemory::load_credit(wire.drained); n < posted; ++n) {
    const Word bytes = wire.sizes[n % Word(wire.slot_count)];
    demand(bytes <= Word(link_shape.slot_bytes), "a step of more bytes than a slot has");
  }
  HostMemory::store_credit(wire.drained, posted);
}

/// Lets a sender connect to a receiver, which then gets immediates that the sender has not written.
void read_immediates(Source& source) {
  test::Lent from, to;
  const auto sends = make_link<IbLink>(from.context, EdgeSide::sender);
  const auto receives = make_link<IbLink>(to.context, EdgeSide::receiver);
  int both[2];
  demand(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) == 0, "pair");
  net::SecureSocket near{Fd{both[0]}}, far{Fd{both[1]}};
  demand(receives->arriving.put(0, near), "line");
  const auto receiver = make_ib_receiver(receives), sender = make_ib_sender(sends, std::move(far));
  ProxyCounters counters;
  const auto turn = [&] {
    (void)receiver->progress(counters);
    (void)sender->progress(counters);
    for (const Wire& wire : receives->wires) drain(wire);
  };
  for (int n = 0; n < 1000 && sends->state() != IbLink::State::works; ++n) turn();
  demand(sends->state() == IbLink::State::works, "the ends do not connect");
  for (int n = 0; n < 4; ++n) turn();  // the receiver reports its slots
  for (int n = 0; n < 64 && !source.empty(); ++n) {
    const auto what = source.take<std::uint8_t>();
    const auto value = source.take<std::uint32_t>();
    const auto opcode = what % 8 == 7 ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
    if (!fabric().announce(what % 2 == 0 ? htonl(value) : value, opcode)) break;
    turn();
  }
  sends->closing = receives->closing = true;
  for (int n = 0; n < 4; ++n) turn();
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
  (void)fabric();
}

void read(Input input) {
  Source source{input};
  const auto what = source.take<std::uint8_t>() % 3;
  if (what == 2) return read_immediates(source);
  const bool sends = what != 0;
  const std::size_t piece = 1 + 16 * source.take<std::uint8_t>();
  test::Lent lent;
  const auto link = make_link<IbLink>(lent.context, sends ? EdgeSide::sender : EdgeSide::receiver);
  auto [far, near] = Connected::make();
  std::shared_ptr<ProxyTask> task;
  if (sends) {
    // The engine's thread runs the task that the maker returns only if it is added.
    task = make_ib_sender(link, std::move(near));
  } else {
    demand(link->arriving.put(0, near), "line");
    task = make_ib_receiver(link);
  }
  feed(source, piece, far, *task);
  ProxyCounters counters;
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
  const auto step = [](std::uint32_t bytes) { return '\0' + bytes_of(bytes); };
  const std::string immediates{'\2'};
  return {
      immediates + step(8) + step(4096) + step(0),
      immediates + step(4097) + step(~0u),
      immediates + step(8) + '\7' + bytes_of(std::uint32_t{8}),
      receiver + offer + message(IbControlType::ready, round, two, pair, pair) +
          message(IbControlType::close_notify),
      receiver + message(IbControlType::refused, qps, whole, one, 'x'),
      sender + message(IbControlType::plan, round, one, card(), two, plan, plan, two, pair, pair) +
          message(IbControlType::go, round) + message(IbControlType::broken, round, none, one, 'x'),
      sender + message(IbControlType::close_notify)};
}

}  // namespace ccl::fuzz
