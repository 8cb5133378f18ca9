// Selection of the GPUs of a host that address each other, at creation of a communicator. The
// driver is emulated: its GPUs are plain memory, and its paths can fail.
#include <ccl/comm/communicator.hpp>
#include <ccl/transport/any_of.hpp>

#include <string>
#include <utility>

#include "support/catch.hpp"
#include "support/driver.hpp"
#include "support/environment.hpp"
#include "support/fake_gpus.hpp"
#include "support/gpu_ranks.hpp"
#include "transport/p2p/check.hpp"

using namespace ccl;
using namespace ccl::test;
using detail::PathFault;

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
        CHECK(mentions(refused.error().what, one.text));
        CHECK(mentions(refused.error().what, "CCL_P2P_CHECK=0"));
        CHECK(mentions(refused.error().what, "shm would"));
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
  const Environment shared{"CCL_MULTI_RANK_GPU_ENABLE", "1"};
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

TEST_CASE("hosts may have different numbers of GPUs") {
  gpus();
  // The host with fewer ranks receives rows that are longer than its own number of places.
  const std::vector<int> of_child{38, 39}, of_parent{0, 1, 2, 3, 4, 5, 6, 7};
  const int ranks = int(of_child.size() + of_parent.size());
  const auto at_host = [&](const char* host, const UniqueId& id, int first,
                           const std::vector<int>& devices, int fd) -> std::string {
    std::vector<Result<Communicator>> comms;
    {
      const Environment own{"CCL_HOSTID", host};
      comms = create(id, first, ranks, devices);
    }
    char here = 1, there = 0;  // who leaves too early is missed by the other
    const bool joined = swap_bytes(fd, &here, &there, 1);
    for (const auto& comm : comms) {
      if (!comm) return comm.error().message();
      for (int p = 0; p < ranks; ++p) {
        const bool neighbor = p >= first && p < first + int(devices.size());
        if (p == comm->rank()) continue;
        if (fault(comm, p) != PathFault::none) return "a fault";
        if (bool(address(comm, p)) != neighbor) return "addresses others than those of its host";
      }
    }
    return joined ? "" : "no peer";
  };
  const auto child = [&](int fd) -> std::string {
    UniqueId id;
    if (::recv(fd, &id, sizeof id, MSG_WAITALL) != ssize_t(sizeof id)) return "no id";
    return at_host("few", id, 0, of_child, fd);
  };
  const auto parent = [&](int fd, pid_t) -> std::string {
    const auto id = create_unique_id();
    if (!id) return id.error().message();
    if (::send(fd, &*id, sizeof *id, MSG_NOSIGNAL) != ssize_t(sizeof *id)) return "no child";
    return at_host("many", *id, int(of_child.size()), of_parent, fd);
  };
  CHECK(alone_with_child(child, parent) == "");
}

TEST_CASE("with a broken path the next transport of a composition carries the pair") {
  FakeGpus& all = gpus();
  const Environment no_relay{"CCL_NVB_DISABLE", "1"};
  all.link(24, 25, {true, true, FakePath::lost});
  const auto comms = create({24, 25, 0});
  CHECK(fault(comms[0], 1) == PathFault::lost);
  CHECK(carried_by(comms[0], 1) == "shm");
  CHECK(carried_by(comms[1], 0) == "shm");
  CHECK(carried_by(comms[0], 2) == "p2p");
  const auto only = AnyOf<P2pTransport>::can_connect(comms[0]->peer(0), comms[0]->peer(1));
  REQUIRE(!only);
  CHECK(only.error().code == Errc::no_transport);
  CHECK(mentions(only.error().what, "rank 0 to rank 1"));
  CHECK(mentions(only.error().what, "did not arrive"));
}

TEST_CASE("CCL_P2P_CHECK=0 tries nothing and uses everything") {
  FakeGpus& all = gpus();
  all.link(26, 27, {true, true, FakePath::lost});
  const int tried = all.copies_between;
  const Environment unchecked{"CCL_P2P_CHECK", "0"};
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

TEST_CASE("two instances of one GPU (MIG) are ranks of their own, and use the host's memory") {
  FakeGpus& all = gpus();
  all.instances[33] = 32;
  const auto comms = create({32, 33});
  CHECK(carried_by(comms[0], 1) == "shm");
  CHECK(carried_by(comms[1], 0) == "shm");
  CHECK(mentions(address(comms[0], 1).error().what, "two instances (MIG) of one GPU"));
  CHECK(comms[0]->peer(0).bus_id == comms[0]->peer(1).bus_id);
}

TEST_CASE("CCL_P2P_EXCLUDE names pairs by ranks or by GPUs; nothing is tried between them") {
  FakeGpus& all = gpus();
  const int tried = all.copies_between;
  for (const char* pair : {"1-0", "fade:2e:00.0-FADE:2f:00.0", "7-8, 0-1,"}) {
    const Environment excluded{"CCL_P2P_EXCLUDE", pair};
    const auto comms = create({30, 31});
    INFO(pair);
    CHECK(fault(comms[0], 1) == PathFault::excluded);
    CHECK(fault(comms[1], 0) == PathFault::excluded);
    CHECK(mentions(address(comms[0], 1).error().what, "CCL_P2P_EXCLUDE"));
  }
  CHECK(all.copies_between == tried);
}

TEST_CASE("a path is not slow because its rank learns late that copies have ended") {
  FakeGpus& all = gpus();
  all.link(30, 31, {true, true, FakePath::seen_late});
  const auto comms = create({0, 30, 31});
  CHECK(fault(comms[1], 2) == PathFault::none);
  CHECK(fault(comms[2], 1) == PathFault::none);
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
