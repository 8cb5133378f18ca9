// Which GPUs of a host address each other, found out when a communicator is created: on a driver
// whose GPUs are plain memory, and whose paths can fail.
#include <ccl/communicator.hpp>
#include <ccl/transport/any_of.hpp>

#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "fake_gpus.hpp"
#include "gpu/devices.hpp"
#include "gpu/memory.hpp"
#include "transport/driver.hpp"
#include "transport/p2p_check.hpp"

using namespace ccl;
using namespace ccl::test;
using detail::PathFault;

namespace {

/// A process remembers what it has found: each case takes GPUs of its own.
FakeGpus& gpus(int devices = FakeGpus::most) {
  return FakeGpus::install(devices);
}

/// One variable, for as long as it lives.
class Env {
 public:
  Env(const char* name, const char* value) : name_{name} { ::setenv(name, value, 1); }
  ~Env() { ::unsetenv(name_); }
  Env(const Env&) = delete;

 private:
  const char* name_;
};

/// Rank r on the r-th of `devices`, a thread each.
std::vector<Result<Communicator>> create(const std::vector<int>& devices) {
  const auto id = create_unique_id();
  REQUIRE(id);
  std::vector<Result<Communicator>> all(devices.size(), fail(Errc::internal, "not created"));
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < devices.size(); ++r) {
    threads.emplace_back([&, r] {
      Config config;
      config.device = devices[r];
      all[r] = Communicator::create(*id, int(r), int(devices.size()), config);
    });
  }
  for (auto& thread : threads) thread.join();
  return all;
}

PathFault fault(const Result<Communicator>& comm, int peer) {
  INFO((comm ? std::string{} : comm.error().message()));
  REQUIRE(comm);
  return PathFault(comm->peer(peer).way.fault);
}
Result<void> address(const Result<Communicator>& comm, int peer) {
  const int me = comm->rank();
  return P2pTransport::can_address(comm->peer(std::min(me, peer)), comm->peer(std::max(me, peer)));
}
std::string carried_by(const Result<Communicator>& comm, int peer) {
  return DefaultTransport::carrier(comm->peer(comm->rank()), comm->peer(peer)).transport;
}
bool says(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("paths that work are used, and tried once in a process") {
  FakeGpus& all = gpus();
  const auto first = create({0, 1, 2, 3});
  for (const auto& comm : first) {
    for (int p = 0; p < 4; ++p) {
      if (p == comm->rank()) continue;
      CHECK(fault(comm, p) == PathFault::none);
      CHECK(address(comm, p));
      CHECK(carried_by(comm, p) == "p2p");
    }
  }
  const int copies = all.copies_between;
  CHECK(copies >= 4 * 3 * 2);  // each to each, there and back; more if this machine is busy
  const auto second = create({3, 1, 0});
  CHECK(fault(second[0], 1) == PathFault::none);
  CHECK(all.copies_between == copies);
  create({0, 4});
  CHECK(all.copies_between >= copies + 4);
}

TEST_CASE("a path that fails is used by neither end, says what was seen, and leaves the others") {
  FakeGpus& all = gpus();
  const struct {
    FakePath path;
    PathFault seen;
    const char* text;
  } cases[] = {{FakePath::lost, PathFault::lost, "did not arrive"},
               {FakePath::corrupt, PathFault::corrupt, "read as something else"},
               {FakePath::slow, PathFault::slow, "slower than any link"},
               {FakePath::stuck, PathFault::stuck, "did not end"}};
  int a = 8;
  for (const bool both : {false, true}) {
    for (const auto& one : cases) {
      const int b = a + 1;
      // PCIe, which may be slower: this machine may be busy.
      all.link(0, a, {true, false, FakePath::well});
      all.link(0, b, {true, false, FakePath::well});
      all.links[std::size_t(a)][std::size_t(b)] = {true, false, one.path};
      if (both) all.links[std::size_t(b)][std::size_t(a)] = {true, false, one.path};
      const auto comms = create({0, a, b});
      INFO(one.text << (both ? " both ways" : " one way"));
      CHECK(fault(comms[1], 2) == one.seen);
      CHECK(fault(comms[2], 1) == one.seen);
      CHECK(fault(comms[0], 1) == PathFault::none);
      CHECK(fault(comms[2], 0) == PathFault::none);
      for (const auto& [from, to] : {std::pair{1, 2}, std::pair{2, 1}}) {
        const auto refused = address(comms[std::size_t(from)], to);
        REQUIRE(!refused);
        CHECK(refused.error().code == Errc::no_transport);
        CHECK(says(refused.error().what, one.text));
        CHECK(says(refused.error().what, "CCL_P2P_CHECK=0"));
        CHECK(says(refused.error().what, "shm would"));
      }
      const int tried = all.copies_between;
      const auto again = create({b, a});  // remembered, the other way round, too
      CHECK(fault(again[0], 1) == one.seen);
      CHECK(all.copies_between == tried);
      a += 2;
    }
  }
}

TEST_CASE("ranks of one process that share a GPU map the memory of others once") {
  gpus();
  const Env shared{"CCL_MULTI_RANK_GPU_ENABLE", "1"};
  const auto comms = create({38, 39, 38, 39});
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < 4; ++b) {
      if (a != b) CHECK(fault(comms[std::size_t(a)], b) == PathFault::none);
    }
  }
}

TEST_CASE("a GPU whose copies do not end is not waited for at every path") {
  FakeGpus& all = gpus();
  for (int to = 33; to < 38; ++to) all.links[32][std::size_t(to)].path = FakePath::stuck;
  const auto comms = create({32, 33, 34, 35, 36, 37});
  int stuck = 0;
  for (int p = 1; p < 6; ++p) {
    stuck += fault(comms[0], p) == PathFault::stuck;
    CHECK(fault(comms[0], p) != PathFault::none);
    CHECK(fault(comms[std::size_t(p)], 0) == fault(comms[0], p));
  }
  CHECK(stuck == 3);
  CHECK(fault(comms[1], 2) == PathFault::none);
}

TEST_CASE("with a broken path the next transport of a composition carries the pair") {
  FakeGpus& all = gpus();
  const Env no_relay{"CCL_NVB_DISABLE", "1"};
  all.link(24, 25, {true, true, FakePath::lost});
  const auto comms = create({24, 25, 0});
  CHECK(fault(comms[0], 1) == PathFault::lost);
  CHECK(carried_by(comms[0], 1) == "shm");
  CHECK(carried_by(comms[1], 0) == "shm");
  CHECK(carried_by(comms[0], 2) == "p2p");
  const auto only = AnyOf<P2pTransport>::can_connect(comms[0]->peer(0), comms[0]->peer(1));
  REQUIRE(!only);
  CHECK(only.error().code == Errc::no_transport);
  CHECK(says(only.error().what, "rank 0 to rank 1"));
  CHECK(says(only.error().what, "did not arrive"));
}

TEST_CASE("CCL_P2P_CHECK=0 tries nothing and uses everything") {
  FakeGpus& all = gpus();
  all.link(26, 27, {true, true, FakePath::lost});
  const int tried = all.copies_between;
  const Env unchecked{"CCL_P2P_CHECK", "0"};
  const auto comms = create({26, 27});
  CHECK(fault(comms[0], 1) == PathFault::none);
  CHECK(address(comms[0], 1));
  CHECK(all.copies_between == tried);
}

TEST_CASE("memory that the driver does not map is a fault of the path") {
  FakeGpus& all = gpus();
  all.link(28, 29, {true, true, FakePath::well});
  all.refuses_to_map = 29;
  const auto comms = create({28, 29});
  all.refuses_to_map = -1;
  CHECK(fault(comms[0], 1) == PathFault::not_mapped);
  CHECK(fault(comms[1], 0) == PathFault::not_mapped);
}

TEST_CASE("CCL_P2P_EXCLUDE names pairs by ranks or by GPUs; nothing is tried between them") {
  FakeGpus& all = gpus();
  const int tried = all.copies_between;
  for (const char* pair : {"1-0", "fade:2e:00.0-FADE:2f:00.0", "7-8, 0-1"}) {
    const Env excluded{"CCL_P2P_EXCLUDE", pair};
    const auto comms = create({30, 31});
    INFO(pair);
    CHECK(fault(comms[0], 1) == PathFault::excluded);
    CHECK(fault(comms[1], 0) == PathFault::excluded);
    CHECK(says(address(comms[0], 1).error().what, "CCL_P2P_EXCLUDE"));
  }
  for (const char* pair : {"0", "0-x", "0-0000:1b:00.0", "-1", "0-1,"}) {
    const Env excluded{"CCL_P2P_EXCLUDE", pair};
    const auto comms = create({30, 31});
    INFO(pair);
    if (std::string{pair} == "0-1,") {
      CHECK(comms[0]);
      continue;
    }
    REQUIRE(!comms[0]);
    CHECK(comms[0].error().code == Errc::bad_setting);
    CHECK(says(comms[0].error().what, pair));
  }
  CHECK(all.copies_between == tried);
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
  // For wires only, and for none that need lines to land whole.
  CHECK(carried_by(comms[0], 2) == "p2p");
  CHECK_FALSE(address(comms[0], 2));
  const PeerInfo from = comms[0]->peer(0), from_here = comms[2]->peer(0);
  const PeerInfo to = comms[0]->peer(2), to_here = comms[2]->peer(2);
  CHECK(P2pTransport::can_connect(from, to));
  CHECK(P2pTransport::carrier(from, to).line_bytes == 16);

  const auto gpu_of = [](int device) { return *detail::Gpu::open(device); };
  detail::GpuArena sends{gpu_of(4)}, receives{gpu_of(6)};
  TransportContext at_sender, at_receiver;
  at_sender.arena = &sends;
  at_receiver.arena = &receives;
  const WireShape shape{2, 4, 1024};
  auto out = P2pTransport::setup(at_sender, edge_of(from, to, Side::sender, shape, 1));
  auto in = P2pTransport::setup(at_receiver, edge_of(from_here, to_here, Side::receiver, shape, 1));
  REQUIRE(out);
  REQUIRE(in);
  const Handshake of_sender = out->handshake(), of_receiver = in->handshake();
  const auto sender = out->connect(of_receiver);
  const auto receiver = in->connect(of_sender);
  REQUIRE(sender);
  REQUIRE(receiver);
  CHECK(sender->line_bytes == 16);
  for (std::size_t c = 0; c < 2; ++c) {
    const Wire &a = sender->wires[c], &b = receiver->wires[c];
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
  std::string problem;
  std::thread pushing{[&] {
    problem = on_all(*sender, [](const Wire& wire, Word w) { return push(wire, 300, w); });
  }};
  CHECK(on_all(*receiver, [](const Wire& wire, Word w) { return pull(wire, 300, w); }) == "");
  pushing.join();
  CHECK(problem == "");
}

TEST_CASE("a GPU in between can be forbidden, and is no farther than CCL_P2P_LEVEL") {
  FakeGpus& all = gpus();
  all.link(1, 3, {false, false, FakePath::well});
  CHECK(create({1, 2, 3})[0]->peer(2).way.relay == 1);
  for (const auto& [name, value] :
       {std::pair{"CCL_NVB_DISABLE", "1"}, {"CCL_P2P_LEVEL", "NVL"}, {"CCL_CUMEM_ENABLE", "0"}}) {
    const Env forbids{name, value};
    const Env unchecked{"CCL_P2P_CHECK", "0"};
    const auto comms = create({1, 2, 3});
    INFO(name);
    REQUIRE(comms[0]);
    CHECK(comms[0]->peer(2).way.relay == -1);
    CHECK(carried_by(comms[0], 2) == "shm");
  }
}

TEST_CASE("GPUs of hosts that one NVLink domain joins are connected by fabric handles") {
  FakeGpus& all = gpus();
  const auto at_host = [](const UniqueId& id, int rank, const char* host) {
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
    if (P2pTransport::can_address(from, to)) return "addresses all of its memory";
    const Carrier by = DefaultTransport::carrier(from, to);
    if (std::string{by.transport} != "p2p" || by.line_bytes != 16) return by.transport;
    const bool sends = comm->rank() == 0;
    auto gpu = *detail::Gpu::open(4 * comm->rank());
    gpu->use_fabric();
    detail::GpuArena arena{gpu};
    TransportContext context;
    context.arena = &arena;
    auto end = P2pTransport::setup(
        context, test::edge_of(from, to, sends ? Side::sender : Side::receiver, {2, 4, 1024}, 1));
    if (!end) return end.error().what;
    const Handshake mine = end->handshake();
    Handshake theirs{};
    if (!swap_bytes(fd, mine.data(), theirs.data(), mine.size())) return "no handshake";
    const auto made = end->connect(theirs);
    if (!made) return made.error().what;
    std::string wrong = on_all(*made, [&](const Wire& wire, Word w) {
      return sends ? push(wire, 100, w) : pull(wire, 100, w);
    });
    char here = 1, there = 0;
    return swap_bytes(fd, &here, &there, 1) ? wrong : "no end";
  };
  const Env domain{"CCL_MNNVL_UUID", "5"};
  const auto id = create_unique_id();
  REQUIRE(id);
  const int before = all.fabric_imports;
  CHECK(with_child([&](int fd) { return connected(at_host(*id, 1, "b"), fd); },
                   [&](int fd, pid_t) { return connected(at_host(*id, 0, "a"), fd); }) == "");
  CHECK(all.fabric_imports == before + 2);  // the trial's, and the wires'

  // Without access to the fabric, as without IMEX, the pair takes the network.
  all.fabric = false;
  const auto id_without = create_unique_id();
  REQUIRE(id_without);
  const auto unconnected = [](const Result<Communicator>& comm, int fd) -> std::string {
    char here = 1, there = 0;  // who leaves too early is missed by the other
    const bool met = swap_bytes(fd, &here, &there, 1);
    if (!comm) return comm.error().message();
    if (!met) return "no peer";
    const int other = 1 - comm->rank();
    if (comm->peer(other).way.fault != int(PathFault::not_mapped)) return "no fault";
    return carried_by(comm, other) == "p2p" ? "by p2p" : "";
  };
  CHECK(with_child([&](int fd) { return unconnected(at_host(*id_without, 1, "c"), fd); },
                   [&](int fd, pid_t) { return unconnected(at_host(*id_without, 0, "d"), fd); }) ==
        "");
  all.fabric = true;
}

TEST_CASE("a GPU's NVLink domain is what NVML says, or the settings") {
  const auto domain = [](const char* text) { return *detail::fabric_domain(text); };
  CHECK(domain("") == 0);
  CHECK(domain("0a:1") != 0);
  CHECK(domain("0a:1") == domain("0a:1"));
  CHECK(domain("0a:1") != domain("0a:2"));
  CHECK(domain("0a:1") != domain("0b:1"));
  {
    const Env clique{"CCL_MNNVL_CLIQUE_ID", "1"};
    CHECK(domain("0a:2") == domain("0a:1"));
    CHECK(domain("") == 0);
    const Env uuid{"CCL_MNNVL_UUID", "10"};
    CHECK(domain("0a:2") == domain("0b:3"));
    CHECK(domain("") == domain("0b:3"));
  }
  for (const char* off : {"CCL_MNNVL_ENABLE", "CCL_CUMEM_ENABLE"}) {
    const Env none{off, "0"};
    CHECK(domain("0a:1") == 0);
  }
}

TEST_CASE("only a path that is slower than any link is slow") {
  using detail::judge;
  using topo::PathType;
  const auto us_at = [](double gb_per_s) {
    return double(detail::path_trial_bytes) / gb_per_s / 1e3;
  };
  CHECK(judge(PathType::nvl, {us_at(20), us_at(20)}) == PathFault::none);
  CHECK(judge(PathType::nvl, {us_at(20), us_at(0.5)}) == PathFault::slow);
  CHECK(judge(PathType::phb, {us_at(0.8), us_at(0.25)}) ==
        PathFault::none);  // one lane of PCIe 3, 1
  CHECK(judge(PathType::sys, {us_at(0.02), us_at(6)}) == PathFault::slow);
}
