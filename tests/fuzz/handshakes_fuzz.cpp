// Handshakes of the other end, to each transport but that of network plug-ins, whose fields are
// those of TCP. GPUs and RDMA devices are emulated. All runs in a network namespace without
// interfaces, so that no address leads anywhere.
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/transport/ib.hpp>
#include <ccl/transport/loopback.hpp>
#include <ccl/transport/p2p.hpp>
#include <ccl/transport/shm.hpp>
#include <ccl/transport/socket.hpp>

#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "fuzz/fuzz.hpp"
#include "gpu/memory.hpp"
#include "net/address.hpp"
#include "support/catch.hpp"
#include "support/fake_gpus.hpp"
#include "support/lent.hpp"
#include "transport/fd_server.hpp"
#include "transport/handshake_fields.hpp"
#include "transport/proof.hpp"
#include <sched.h>
#if __has_include(<infiniband/verbs.h>)
#  include "support/fake_verbs.hpp"
#endif

namespace ccl::fuzz {

using namespace detail;

namespace {
constexpr WireShape shape{1, 2, 128};

Edge edge_to_receiver() {
  Edge edge;
  edge.self.rank = 0;
  edge.peer.rank = 1;
  edge.side = EdgeSide::sender;
  edge.shape = shape;
  edge.id = 1;
  return edge;
}
/// The other end of an edge between two GPUs, with changes to its handshake: a place and a value
/// each. `elsewhere`: the ranks are of different processes.
void connect_gpus(Source& source) {
  // They outlive the emulated driver's objects of this thread.
  static const auto& gpus = *new std::array{Gpu::open(0).value(), Gpu::open(1).value()};
  test::Lent from, to;
  GpuArena sends{gpus[0]}, receives{gpus[1]};
  from.context.arena = &sends;
  to.context.arena = &receives;
  from.context.deadline_s = to.context.deadline_s = 0.2;
  Edge edge = edge_to_receiver();
  edge.self.device = 0;
  edge.peer.device = 1;
  const bool elsewhere = source.take<std::uint8_t>() % 2 != 0;
  edge.peer.pid_hash = elsewhere ? 1 : 0;
  Edge there = edge;
  std::swap(there.self, there.peer);
  there.side = EdgeSide::receiver;
  auto sender = P2pTransport::setup(from.context, edge);
  const auto receiver = P2pTransport::setup(to.context, there);
  demand(sender && receiver, "no end");
  Handshake theirs = receiver->handshake();
  while (!source.empty()) {
    const auto at = source.take<std::uint8_t>() % (theirs.size() - sizeof(Word));
    const auto value = source.take<Word>();
    std::memcpy(theirs.data() + at, &value, sizeof value);
  }
  constexpr std::size_t kind_at = 160;
  Word kind = 0;
  std::memcpy(&kind, theirs.data() + kind_at, sizeof kind);
  if (kind == 0) return;  // the driver alone knows how long memory of a legacy handle is
  const auto made = sender->connect(theirs);
  if (!made) return demand(made.error().code != Errc::internal, "an internal error");
  for (const Wire& wire : made->wires) {  // the kernel would use all of it
    HostMemory::store_release(wire.posted, Word{0});
    std::memset(wire.slots, 0, std::size_t(wire.slot_count) * std::size_t(shape.slot_bytes));
  }
}

template <class Transport>
void connect(const Handshake& theirs) {
  test::Lent lent;
  lent.context.deadline_s = 0.001;
  auto end = Transport::setup(lent.context, edge_to_receiver());
  if (!end) return;
  (void)end->connect(theirs);
}
}  // namespace

void prepare() {
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    std::fprintf(stderr, "SKIP: no network namespace of its own\n");
    std::exit(77);
  }
  (void)test::FakeGpus::install(2);
#if __has_include(<infiniband/verbs.h>)
  static test::FakeVerbs* const fabric = new test::FakeVerbs{1};
  (void)fabric;
#endif
}

void read(Input input) {
  Source source{input};
  const auto what = source.take<std::uint8_t>() % 5;
  if (what == 4) return connect_gpus(source);
  Handshake theirs{};
  const Input bytes = source.take_bytes(theirs.size());
  std::copy(bytes.begin(), bytes.end(), theirs.begin());
  if (what == 0) connect<LoopbackTransport>(theirs);
  if (what == 1) connect<ShmTransport>(theirs);
  if (what == 2) connect<SocketTransport>(theirs);
#if __has_include(<infiniband/verbs.h>)
  if (what == 3) connect<IbTransport>(theirs);
#endif
}

std::vector<std::string> seeds() {
  const std::string loopback{'\0'}, shm{'\1'}, socket{'\2'}, ib{'\3'}, here{"\4\0", 2},
      elsewhere{"\4\1"};
  const auto change = [](std::uint8_t at, Word value) { return bytes_of(at, value); };
  UnixName name;
  name.address.sun_family = AF_UNIX;
  std::memcpy(name.address.sun_path, "\0abcde", 6);
  name.bytes = sizeof(sa_family_t) + 6;
  const net::WireAddress at = net::Address::parse("127.0.0.1:9").value().wire();
  const std::array<std::byte, 16> token{};
  return {loopback + bytes_of(token, Word{0}),
          shm + bytes_of(Nonce{}, name),
          socket + bytes_of(Nonce{}, std::size_t{1}, at, int{1}, int{0}),
          socket + bytes_of(Nonce{}, std::size_t{2}, at, at, int{4}, int{1}),
          ib + bytes_of(Nonce{}, std::size_t{1}, at),
          here,
          elsewhere,
          here + change(240, 128),
          elsewhere + change(160, 2) + change(152, 1 << 20)};
}

}  // namespace ccl::fuzz
