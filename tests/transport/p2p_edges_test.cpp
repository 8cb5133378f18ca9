// Transports of edges between GPUs, and the places of their slots: read mode, GPUs in between, and
// handles of all kinds. The driver's GPUs are plain memory.
#include <ccl/comm/communicator.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/any_of.hpp>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/devices.hpp"
#include "gpu/memory.hpp"
#include "support/catch.hpp"
#include "support/driver.hpp"
#include "support/environment.hpp"
#include "support/fake_gpus.hpp"
#include "support/gpu_ranks.hpp"
#include "support/id_between.hpp"
#include "topo/graph/p2p_path.hpp"
#include "transport/p2p/check.hpp"

using namespace ccl;
using namespace ccl::test;
using detail::PathFault;

namespace {

/// An edge between two ranks of this process, both ends of it.
struct EdgeHere {
  detail::GpuArena sends, receives;
  Result<Connection> sender = fail(Errc::internal, "not made"), receiver = sender;
};
constexpr int channels = 2;

/// `reads`: CCL_P2P_READ_ENABLE, at the sender and at the receiver.
EdgeHere edge_here(const Communicator& from, const Communicator& to, bool polls_slots = true,
                   std::pair<const char*, const char*> reads = {"0", "0"}) {
  const auto gpu_of = [](const Communicator& comm) { return *detail::Gpu::open(comm.device()); };
  EdgeHere here{detail::GpuArena{gpu_of(from)}, detail::GpuArena{gpu_of(to)}};
  TransportContext at_sender, at_receiver;
  at_sender.arena = &here.sends;
  at_receiver.arena = &here.receives;
  const auto set_up = [&](const Communicator& comm, EdgeSide side, const char* read) {
    const Environment setting{"CCL_P2P_READ_ENABLE", read};
    Edge edge = edge_of(comm.peer(from.rank()), comm.peer(to.rank()), side, {channels, 4, 1024}, 1);
    edge.polls_slots = polls_slots;
    return P2pTransport::setup(side == EdgeSide::sender ? at_sender : at_receiver, edge);
  };
  auto out = set_up(from, EdgeSide::sender, reads.first);
  auto in = set_up(to, EdgeSide::receiver, reads.second);
  REQUIRE(out);
  REQUIRE(in);
  const Handshake of_sender = out->handshake(), of_receiver = in->handshake();
  here.sender = out->connect(of_receiver);
  here.receiver = in->connect(of_sender);
  return here;
}

/// Returns the error, or an empty text.
std::string move_steps(const EdgeHere& edge) {
  std::string of_sender;
  std::thread pushing{[&] {
    of_sender = on_all(*edge.sender, [](const Wire& wire, Word w) { return push(wire, 300, w); });
  }};
  const std::string of_receiver =
      on_all(*edge.receiver, [](const Wire& wire, Word w) { return pull(wire, 300, w); });
  pushing.join();
  return of_sender + of_receiver;
}

/// Moves steps over one end of an edge from rank 0 to rank 1, whose other end is the process behind
/// `fd`. Tests that its slots are at the expected place. Returns the error, or an empty text.
std::string move_to_process(const Communicator& comm, int fd, bool reads) {
  const PeerInfo from = comm.peer(0), to = comm.peer(1);
  const bool sends = comm.rank() == 0;
  auto gpu = *detail::Gpu::open(comm.device());
  if (from.host_hash != to.host_hash) gpu->use_fabric();
  detail::GpuArena arena{gpu};
  TransportContext context;
  context.arena = &arena;
  Edge edge = test::edge_of(from, to, sends ? EdgeSide::sender : EdgeSide::receiver,
                            {channels, 4, 1024}, 1);
  edge.polls_slots = !reads;
  auto end = P2pTransport::setup(context, edge);
  if (!end) return end.error().what;
  const Handshake mine = end->handshake();
  Handshake theirs{};
  if (!swap_bytes(fd, mine.data(), theirs.data(), mine.size())) return "no handshake";
  const auto made = end->connect(theirs);
  if (!made) return made.error().what;
  if (made->reads != reads) return reads ? "write mode" : "read mode";
  for (const Wire& wire : made->wires) {
    const FakeGpus& all = fake::gpus();
    const auto own = [&](const void* at) {
      return all.region(at) == all.region(sends ? wire.sent : wire.received);
    };
    if (own(wire.slots) != (sends == reads)) return "slots with the wrong end";
    if (own(wire.posted) == sends || own(wire.drained) != sends) return "polls another's memory";
  }
  std::string wrong = on_all(*made, [&](const Wire& wire, Word w) {
    return sends ? push(wire, 100, w) : pull(wire, 100, w);
  });
  char here = 1, there = 0;
  return swap_bytes(fd, &here, &there, 1) ? wrong : "no end";
}

/// The error of a sender whose receiver's handshake has `value` at `at`.
Error error_with(std::size_t at, Word value) {
  const auto gpu_of = [](int device) { return *detail::Gpu::open(device); };
  detail::GpuArena sends{gpu_of(0)}, receives{gpu_of(1)};
  TransportContext at_sender, at_receiver;
  at_sender.arena = &sends;
  at_receiver.arena = &receives;
  PeerInfo from, to;
  from.rank = from.device = 0;
  to.rank = to.device = 1;
  const auto set_up = [&](TransportContext& context, EdgeSide side) {
    return P2pTransport::setup(context, edge_of(from, to, side, {channels, 4, 1024}, 1));
  };
  auto out = set_up(at_sender, EdgeSide::sender), in = set_up(at_receiver, EdgeSide::receiver);
  REQUIRE(out);
  REQUIRE(in);
  Handshake theirs = in->handshake();
  std::memcpy(theirs.data() + at, &value, sizeof value);
  const auto made = out->connect(theirs);
  return made ? Error{} : made.error();
}

}  // namespace

TEST_CASE("the fields of a handshake are checked before its memory is used") {
  (void)gpus();
  constexpr std::size_t memory = 136, handles = memory + 24, borrowed = memory + 96,
                        offset = memory + 104, reads = offset + 8;
  const auto refused = [](std::size_t at, Word value, const char* why) {
    const Error error = error_with(at, value);
    INFO(error.message() << "\nexpected: " << why);
    CHECK(error.code == Errc::mismatch);
    CHECK(error.peer == 1);
    CHECK(mentions(error.what, why));
  };
  CHECK(error_with(offset, 0).code == Error{}.code);
  refused(reads, 2, "mode is 2, not from 0 to 1");
  refused(handles, 3, "kind of handle is 3, not from 0 to 2");
  refused(borrowed, 2, "owner is 2, not from 0 to 1");
  refused(offset, 1, "offset is 1, no multiple of 128");
  refused(offset, Word(-128), "do not match");
}

TEST_CASE("two GPUs without NVLink go through one that has it to both, and steps arrive") {
  FakeGpus& all = gpus();
  const FakeGpus::Link none{false, false, FakePath::well};
  all.link(4, 6, none);
  const auto comms = create({4, 5, 6});
  CHECK(comms[0]->peer(2).way.relay == 1);
  CHECK(comms[2]->peer(0).way.relay == 1);
  CHECK(comms[0]->peer(1).way.relay == -1);
  CHECK(comms[0]->peer(2).way.relay_bus_id == comms[0]->peer(1).bus_id);
  // Wires only, and only those that do not need lines to land whole.
  CHECK(carried_by(comms[0], 2) == "p2p");
  CHECK_FALSE(address(comms[0], 2));
  CHECK(P2pTransport::can_connect(comms[0]->peer(0), comms[0]->peer(2)));
  CHECK(P2pTransport::edge_transport(comms[0]->peer(0), comms[0]->peer(2)).line_bytes == 16);

  // Read mode is not for them, nor need its setting be the same at both ends.
  for (const char* reads : {"0", "1"}) {
    const EdgeHere edge = edge_here(*comms[0], *comms[2], false, {reads, "0"});
    REQUIRE(edge.sender);
    REQUIRE(edge.receiver);
    CHECK(edge.sender->line_bytes == 16);
    CHECK_FALSE(edge.sender->reads);
    CHECK_FALSE(edge.receiver->reads);
    for (std::size_t c = 0; c < channels; ++c) {
      const Wire &a = edge.sender->wires[c], &b = edge.receiver->wires[c];
      for (const void* shared : {static_cast<void*>(b.slots), static_cast<void*>(b.posted),
                                 static_cast<void*>(b.drained)}) {
        const FakeGpus::Region* const region = all.region(shared);
        REQUIRE(region != nullptr);
        CHECK(region->device == 5);
        CHECK(region->accessible == std::vector<int>{6, 4});
      }
      CHECK(all.region(a.sent)->device == 4);
      CHECK(all.region(b.received)->device == 6);
    }
    CHECK(move_steps(edge) == "");
  }
}

TEST_CASE("in read mode slots lie with the sender where packets carry no flags; steps arrive") {
  FakeGpus& all = gpus();
  for (const char* handles : {"1", "0"}) {
    const Environment shared{"CCL_CUMEM_ENABLE", handles};
    const auto comms = create({0, 2});
    const struct {
      bool polls_slots;
      const char* setting;
    } cases[] = {{false, "1"}, {true, "1"}, {false, "0"}, {true, "0"}};
    for (const auto& [polls_slots, setting] : cases) {
      INFO("handles " << handles << " polls " << polls_slots << " setting " << setting);
      const EdgeHere edge = edge_here(*comms[0], *comms[1], polls_slots, {setting, setting});
      REQUIRE(edge.sender);
      REQUIRE(edge.receiver);
      const bool reads = !polls_slots && setting[0] == '1';
      CHECK(edge.sender->reads == reads);
      CHECK(edge.receiver->reads == reads);
      CHECK(edge.sender->line_bytes == 128);
      for (std::size_t c = 0; c < channels; ++c) {
        const Wire &a = edge.sender->wires[c], &b = edge.receiver->wires[c];
        CHECK(a.slots == b.slots);
        CHECK(all.region(a.slots)->device == (reads ? 0 : 2));
        // Each end waits for words of its own.
        CHECK(all.region(b.posted)->device == 2);
        CHECK(all.region(a.drained)->device == 0);
        CHECK(all.region(a.sent)->device == 0);
        CHECK(all.region(b.received)->device == 2);
      }
      CHECK(move_steps(edge) == "");
    }
  }
}

TEST_CASE("the ends of an edge must agree on read mode") {
  gpus();
  const auto comms = create({0, 2});
  for (const char* at_sender : {"0", "1"}) {
    const char* const at_receiver = at_sender[0] == '1' ? "0" : "1";
    const EdgeHere edge = edge_here(*comms[0], *comms[1], false, {at_sender, at_receiver});
    for (const Result<Connection>* end : {&edge.sender, &edge.receiver}) {
      REQUIRE(!*end);
      const Error& error = end->error();
      INFO(error.message());
      CHECK(error.code == Errc::mismatch);
      CHECK(error.rank + error.peer == 1);
      CHECK(error.transport == "p2p");
      const std::string here = error.rank == 0 ? at_sender : at_receiver;
      const std::string there = error.rank == 0 ? at_receiver : at_sender;
      const std::string said = "CCL_P2P_READ_ENABLE is " + here + " on rank " +
                               std::to_string(error.rank) + " and " + there + " on rank " +
                               std::to_string(error.peer);
      CHECK(mentions(error.what, said.c_str()));
      CHECK(mentions(error.what, "the same on all ranks"));
    }
    // Read mode does not apply to packets that carry flags.
    CHECK(move_steps(edge_here(*comms[0], *comms[1], true, {at_sender, at_receiver})) == "");
  }
}

TEST_CASE("processes read each other's slots, by descriptors and by legacy handles") {
  gpus();
  const Environment reads{"CCL_P2P_READ_ENABLE", "1"};
  for (const char* handles : {"1", "0"}) {
    INFO("handles " << handles);
    const Environment shared{"CCL_CUMEM_ENABLE", handles};
    const auto move = [&](int rank, int fd) -> std::string {
      Config config;
      config.device = 2 * rank;
      const auto comm = Communicator::create(id_between(rank, fd), rank, 2, config);
      if (!comm) return comm.error().message();
      if (comm->peer(0).pid_hash == comm->peer(1).pid_hash) return "one process";
      for (const bool flags : {false, true}) {
        if (auto wrong = move_to_process(*comm, fd, !flags); !wrong.empty()) return wrong;
      }
      return (fake::gpus().legacy_imports > 0) == (handles[0] == '0') ? "" : "by other handles";
    };
    CHECK(alone_with_child([&](int fd) { return move(1, fd); },
                           [&](int fd, pid_t) { return move(0, fd); }) == "");
  }
}

TEST_CASE("a composition in Simple reads, one in LL does not; who has the slots pays for them") {
  gpus();
  const Environment setting{"CCL_P2P_READ_ENABLE", "1"};
  const auto comms = create({0, 2});
  Plan plan;
  plan.slot_bytes = 4096;
  const Index ring = plan.slot_bytes * plan.slot_count;
  struct Seen {
    std::string problem;
    Index simple = 0, ll = 0;
  };
  const auto connect = [&](const Communicator& comm) {
    Seen seen;
    std::vector<std::shared_ptr<detail::Connections>> kept;
    const auto add = [&](const detail::WireNeeds& needs) {
      const Index before = comm.memory_used();
      auto links = detail::Connections::create(comm, detail::Plans::same(plan), 1, needs,
                                               detail::transport_table<P2pTransport>(), "by hand");
      if (!links) {
        seen.problem += links.error().message();
        return Index{-1};
      }
      using Peer = detail::PeerChannel;
      const std::vector<Peer> none, other{Peer{1 - comm.rank(), 0}};
      const auto made = (*links)->connect(comm.rank() == 1 ? other : none,
                                          comm.rank() == 0 ? other : none, (*links)->reserve());
      if (!made) seen.problem += made.error().message();
      kept.push_back(*std::move(links));
      return comm.memory_used() - before;
    };
    seen.simple = add(detail::WireNeeds::of<Simple>());
    seen.ll = add(detail::WireNeeds::of<LL>());
    if (auto joined = comm.barrier(); !joined) seen.problem += joined.error().message();
    return seen;
  };
  Seen receiver;
  std::thread other{[&] { receiver = connect(*comms[1]); }};
  const Seen sender = connect(*comms[0]);
  other.join();
  CHECK(sender.problem == "");
  CHECK(receiver.problem == "");
  CHECK(sender.simple == ring);
  CHECK(receiver.simple == 0);
  CHECK(sender.ll == 0);
  CHECK(receiver.ll == ring);
}

TEST_CASE("a rank whose GPU is full when its wires are there says so to all") {
  FakeGpus& all = gpus();
  const auto comms = create({0, 2});
  // With its words, of two lines, a wire fills a piece of memory to the last byte.
  const Plan plan{1, 2, ((64 << 10) - 256) / 2};
  const auto connect = [&](const Communicator& comm) -> Error {
    auto links = detail::Connections::create(comm, detail::Plans::same(plan), 1,
                                             detail::WireNeeds::of<Simple>(),
                                             detail::transport_table<P2pTransport>(), "by hand");
    if (!links) return links.error();
    using Peer = detail::PeerChannel;
    const std::vector<Peer> none, other{Peer{1 - comm.rank(), 0}};
    const auto ready = (*links)->reserve();
    if (comm.rank() == 1) all.full = 2;
    const auto made =
        (*links)->connect(comm.rank() == 1 ? other : none, comm.rank() == 0 ? other : none, ready);
    if (auto joined = comm.barrier(); !joined) return joined.error();
    return made ? Error{} : made.error();
  };
  Error receiver;
  std::thread other{[&] { receiver = connect(*comms[1]); }};
  const Error sender = connect(*comms[0]);
  other.join();
  all.full = -1;
  CHECK(receiver.code == Errc::out_of_memory);
  CHECK(mentions(receiver.what, "cannot allocate"));
  CHECK(sender.code == Errc::out_of_memory);
  CHECK(mentions(sender.what, "by hand is refused by rank 1 (cannot allocate"));
}

TEST_CASE("a GPU in between can be forbidden, and is no farther than CCL_P2P_LEVEL") {
  FakeGpus& all = gpus();
  all.link(1, 3, {false, false, FakePath::well});
  CHECK(create({1, 2, 3})[0]->peer(2).way.relay == 1);
  for (const auto& [name, value] :
       {std::pair{"CCL_NVB_DISABLE", "1"}, {"CCL_P2P_LEVEL", "NVL"}, {"CCL_CUMEM_ENABLE", "0"}}) {
    const Environment forbids{name, value};
    const Environment unchecked{"CCL_P2P_CHECK", "0"};
    const auto comms = create({1, 2, 3});
    INFO(name);
    REQUIRE(comms[0]);
    CHECK(comms[0]->peer(2).way.relay == -1);
    CHECK(carried_by(comms[0], 2) == "shm");
  }
}

TEST_CASE("GPUs of hosts that one NVLink domain joins are connected by fabric handles") {
  FakeGpus& all = gpus();
  const auto at_host = [](int fd, int rank, const char* host) {
    const UniqueId id = id_between(rank, fd);
    ::setenv("CCL_HOSTID", host, 1);
    Config config;
    config.device = 4 * rank;
    auto comm = Communicator::create(id, rank, 2, config);
    ::unsetenv("CCL_HOSTID");
    return comm;
  };
  /// Rank 0 sends to rank 1. What is wrong, or nothing.
  const auto connected = [](const Result<Communicator>& comm, int fd) -> std::string {
    if (!comm) return comm.error().message();
    const PeerInfo from = comm->peer(0), to = comm->peer(1);
    if (from.host_hash == to.host_hash) return "one host";
    if (from.way.fault + to.way.fault != 0) return "a fault";
    if (auto can = P2pTransport::can_connect(from, to); !can) return can.error().what;
    if (auto can = P2pTransport::can_address(from, to); !can) return can.error().what;
    const EdgeTransport by = DefaultTransport::edge_transport(from, to);
    if (std::string{by.transport} != "p2p" || by.line_bytes != 16) return by.transport;
    if (auto wrong = move_to_process(*comm, fd, false); !wrong.empty()) return wrong;
    const Environment reads{"CCL_P2P_READ_ENABLE", "1"};
    return move_to_process(*comm, fd, true);
  };
  const Environment domain{"CCL_MNNVL_UUID", "5"};
  const int before = all.fabric_imports;
  CHECK(alone_with_child([&](int fd) { return connected(at_host(fd, 1, "b"), fd); },
                         [&](int fd, pid_t) { return connected(at_host(fd, 0, "a"), fd); }) == "");
  CHECK(all.fabric_imports == before + 3);  // the trial's, and those of both modes' wires

  // Without access to the fabric, as without IMEX, the pair takes the network.
  all.fabric = false;
  const auto unconnected = [](const Result<Communicator>& comm, int fd) -> std::string {
    char here = 1, there = 0;  // who leaves too early is missed by the other
    const bool joined = swap_bytes(fd, &here, &there, 1);
    if (!comm) return comm.error().message();
    if (!joined) return "no peer";
    const int other = 1 - comm->rank();
    if (comm->peer(other).way.fault != int(PathFault::not_mapped)) return "no fault";
    return carried_by(comm, other) == "p2p" ? "by p2p" : "";
  };
  CHECK(alone_with_child([&](int fd) { return unconnected(at_host(fd, 1, "c"), fd); },
                         [&](int fd, pid_t) { return unconnected(at_host(fd, 0, "d"), fd); }) ==
        "");
  all.fabric = true;
}

TEST_CASE("of GPUs that a process does not see, it knows the NVLink that ranks there have named") {
  FakeGpus& all = gpus();
  all.link(20, 21, {true, false, FakePath::well});
  const auto comms = create({20, 21, 22});
  const auto path = [&](int a, int b) {
    return detail::gpu_path(comms[0]->peer(a), comms[0]->peer(b));
  };
  const auto note = [&](int a, int b) {
    detail::note_nvlink(comms[0]->peer(a).bus_id, comms[0]->peer(b).bus_id);
  };
  CHECK(path(0, 1) > topo::PathType::nvl);
  CHECK(path(0, 2) == topo::PathType::nvl);
  note(0, 1);  // the driver knows better
  CHECK(path(0, 1) > topo::PathType::nvl);
  all.seen = {20};
  note(0, 1);
  CHECK(path(0, 1) == topo::PathType::nvl);
  CHECK(path(1, 0) == topo::PathType::nvl);
  all.seen = {};
}

TEST_CASE("a GPU's NVLink domain is what NVML says, or the settings") {
  const auto domain = [](const char* text) { return *detail::fabric_domain(text); };
  CHECK(domain("") == 0);
  CHECK(domain("0a:1") != 0);
  CHECK(domain("0a:1") == domain("0a:1"));
  CHECK(domain("0a:1") != domain("0a:2"));
  CHECK(domain("0a:1") != domain("0b:1"));
  {
    const Environment clique{"CCL_MNNVL_CLIQUE_ID", "1"};
    CHECK(domain("0a:2") == domain("0a:1"));
    CHECK(domain("") == 0);
    const Environment uuid{"CCL_MNNVL_UUID", "10"};
    CHECK(domain("0a:2") == domain("0b:3"));
    CHECK(domain("") == domain("0b:3"));
  }
  for (const char* off : {"CCL_MNNVL_ENABLE", "CCL_CUMEM_ENABLE"}) {
    const Environment none{off, "0"};
    CHECK(domain("0a:1") == 0);
  }
}
