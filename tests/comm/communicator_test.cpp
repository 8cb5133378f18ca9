#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/detail/runtime/host_id.hpp>
#include <ccl/hierarchical.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/simple.hpp>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <limits>
#include <thread>

#include "support/environment.hpp"
#include "support/loopback_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Sums = Collective<AllReduce, Tree, Simple, LoopbackTransport>;
using Copies = Collective<Broadcast, Tree, LL, LoopbackTransport>;
using Levels = Collective<AllReduce, Hierarchical<Tree, Tree>, Simple, LoopbackTransport>;
using P2p = Collective<SendRecv, Pairwise, LL, LoopbackTransport>;
using Alls = Collective<AllToAll, Pairwise, LL, LoopbackTransport>;
using AllsV = Collective<AllToAllV, Pairwise, LL, LoopbackTransport>;
}  // namespace

TEST_CASE("a communicator of one rank allocates nothing and runs everything") {
  auto comm = Communicator::create(UniqueId{}, 0, 1);
  REQUIRE(comm.has_value());
  auto sums = Sums::create(*comm);
  REQUIRE(sums.has_value());
  const int in[3] = {1, -2, 3};
  int out[3] = {};
  CHECK((*sums)(in, out, 3, PreMulSum{2}).has_value());
  CHECK((out[0] == 2 && out[1] == -4 && out[2] == 6));
  CHECK((*sums)(in, out, 3, Avg{}).has_value());
  CHECK(out[1] == -2);
  auto p2p = P2p::create(*comm);
  REQUIRE(p2p.has_value());
  CHECK((*p2p)(in, 3, 0, out, 3, 0).has_value());
  CHECK(comm->memory_used() == 0);
  CHECK(comm->finalize().has_value());
}

TEST_CASE("handles that were moved from say so, and may be assigned to") {
  const auto comms = make(2);
  on_all(comms, [](Communicator comm) -> Result<void> {
    CCL_TRY(auto sums, Sums::create(comm));
    CCL_TRY(auto copies, Copies::create(comm));
    CCL_TRY(auto p2p, P2p::create(comm));
    CCL_TRY(auto alls, Alls::create(comm));
    CCL_TRY(auto alls_v, AllsV::create(comm));
    CCL_TRY(auto levels, Levels::create(comm));
    const auto own = std::move(comm);
    const auto own_sums = std::move(sums);
    const auto own_copies = std::move(copies);
    const auto own_p2p = std::move(p2p);
    const auto own_alls = std::move(alls);
    const auto own_alls_v = std::move(alls_v);
    const auto own_levels = std::move(levels);
    float x[4] = {}, y[4] = {};
    const std::vector<Index> two(2);
    std::vector<Errc> codes;
    const auto said = [&](const Result<void>& result) { codes.push_back(code(result)); };
    HostStream stream;
    // NOLINTBEGIN(bugprone-use-after-move)
    said(sums(x, y, 4));
    said(sums(x, y, 4, Avg{}, stream));
    said(sums(x, y, 0));
    said(sums(static_cast<float*>(nullptr), y, 4));
    said(copies(x, y, 4, 0));
    said(copies(x, y, 4, 1));
    said(p2p.send(x, 4, 1));
    said(p2p.group({}));
    said(alls(x, y, 2));
    said(alls_v(x, two, two, y, two, two));
    said(alls_v(x, {}, {}, y, {}, {}));
    said(alls_v.counted(x, y, {}));
    said(levels(x, y, 4));
    said(comm.status());
    said(comm.wait());
    said(comm.barrier());
    said(comm.finalize());
    said(comm.split(0, 0).transform([](auto&&) {}));
    said(Sums::create(comm).transform([](auto&&) {}));
    said(Levels::create(comm).transform([](auto&&) {}));
    comm.abort("nobody receives this");
    for (const Errc one : codes) {
      if (one != Errc::invalid_usage) return fail(Errc::internal, std::string{name(one)});
    }
    const auto why = sums(x, y, 4).error().message();
    if (why.find("moved from") == std::string::npos) return fail(Errc::internal, why);
    const bool moved_from =
        comm.rank() == -1 && comm.ranks() == 0 && comm.device() == -1 && comm.name().empty() &&
        comm.peer(0).host[0] == 0 && comm.report().ranks.empty() && comm.ring(0).empty() &&
        comm.memory_budget() == 0 && sums.ranks() == 0 && sums.plan().channels == Plan{}.channels &&
        levels.ranks() == 0 && levels.plan().channels == Plan{}.channels;
    if (!moved_from) return fail(Errc::internal, "it says that it is somebody");
    // NOLINTEND(bugprone-use-after-move)
    comm = own;
    sums = own_sums;
    levels = own_levels;
    CCL_CHECK(sums(x, y, 4));
    CCL_CHECK(levels(x, y, 4));
    return comm.finalize();
  });
}

TEST_CASE("who reads a bad setting says which rank it is") {
  const Environment bad{"CCL_TIMEOUT", "soon"};
  const auto made = Communicator::create(UniqueId{}, 2, 3);
  REQUIRE_FALSE(made);
  CHECK(made.error().code == Errc::bad_setting);
  CHECK(made.error().rank == 2);
  CHECK(made.error().host == detail::host_name());
  const Environment launch{{{"RANK", "1"}, {"WORLD_SIZE", "3"}}};
  const auto launched = Communicator::from_env();
  REQUIRE_FALSE(launched);
  CHECK(launched.error().code == Errc::bad_setting);
  CHECK(launched.error().rank == 1);
  const Environment no_size{"WORLD_SIZE", ""};
  const auto alone = Communicator::from_env();
  REQUIRE_FALSE(alone);
  CHECK(alone.error().rank == -1);  // not known
  CHECK(alone.error().what.find("CCL_TIMEOUT=soon") != std::string::npos);
}

TEST_CASE("more ranks than a communicator can have are refused before anybody is asked") {
  const UniqueId id = create_unique_id().value();
  for (const int ranks : {2'000'000'000, (1 << 20) + 1}) {
    const auto made = Communicator::create(id, 0, ranks);
    REQUIRE_FALSE(made);
    CHECK(made.error().code == Errc::invalid_argument);
    CHECK(made.error().what.starts_with(std::to_string(ranks) + " ranks are too many"));
    CHECK(Communicator::create_all(ranks).error().code == Errc::invalid_argument);
  }
}

TEST_CASE("values of Config that cannot be are refused by name") {
  const auto refused = [](const char* field, auto set) {
    Config config;
    set(config);
    const auto made = Communicator::create(UniqueId{}, 0, 1, config);
    INFO(field);
    REQUIRE_FALSE(made.has_value());
    CHECK(made.error().code == Errc::bad_setting);
    CHECK(made.error().what.find(std::string{"Config::"} + field) != std::string::npos);
    CHECK(made.error().rank == 0);
  };
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  for (const int number : {0, -4}) {
    refused("net_channels", [&](Config& c) { c.net_channels = number; });
  }
  for (const int blocks : {-1, 9}) {
    refused("cluster_blocks", [&](Config& c) { c.cluster_blocks = blocks; });
  }
  for (const int number : {-2, 256}) {
    refused("traffic_class", [&](Config& c) { c.traffic_class = number; });
  }
  for (const double s : {-1.0, nan, 1e300}) {
    refused("timeout_s", [&](Config& c) { c.timeout_s = s; });
    refused("init_timeout_s", [&](Config& c) { c.init_timeout_s = s; });
  }
  for (const Index bytes : {Index{0}, Index{-5}}) {
    refused("memory_budget_bytes", [&](Config& c) { c.memory_budget_bytes = bytes; });
  }
  for (const int n : {0, -1}) {
    refused("channels", [&](Config& c) { c.channels = n; });
  }
  refused("max_channels", [](Config& c) { c.max_channels = 0; });
  refused("device", [](Config& c) { c.device = -7; });
}

TEST_CASE("create_all gives the cause of a failure, and not its reports by others") {
  for (int round = 0; round < 10; ++round) {  // who is the first to fail is chance
    Config config;
    config.device = 1000;
    const auto made = Communicator::create_all(4, config);
    REQUIRE_FALSE(made.has_value());
    INFO(made.error().message());
    CHECK(made.error().code != Errc::aborted);
    CHECK(made.error().code != Errc::peer_lost);
  }
}

TEST_CASE("a rank that cannot take part tells the others why") {
  const auto id = create_unique_id();
  REQUIRE(id.has_value());
  const bool blocking = GENERATE(true, false);
  std::vector<Result<Communicator>> made(2, fail(Errc::internal, "not made"));
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      Config config;
      config.device = r == 1 ? 1000 : Config::cpu;  // there is none
      config.blocking = blocking;
      made[r] = Communicator::create(*id, r, 2, config);
      if (!made[r]) return;
      if (auto well = made[r]->wait(); !well) made[r] = fail(well.error());
    });
  }
  for (auto& t : threads) t.join();
  REQUIRE(!made[0]);
  REQUIRE(!made[1]);
  INFO(made[0].error().message());
  INFO(made[1].error().message());
  CHECK(made[1].error().code != Errc::aborted);
  CHECK(made[0].error().code == Errc::aborted);
  CHECK(made[0].error().peer == 1);
  CHECK(made[0].error().what.find(made[1].error().what) != std::string::npos);
}

TEST_CASE("split makes communicators of the colors, in order of the keys") {
  const auto comms = make(5);
  on_all(comms, [](const Communicator& comm) -> Result<void> {
    const int color = comm.rank() == 4 ? -1 : comm.rank() % 2;
    CCL_TRY(auto child, comm.split(color, -comm.rank()));
    if (comm.rank() == 4) {
      return child ? fail(Errc::internal, "a part without a color") : Result<void>{};
    }
    if (child->ranks() != 2) return fail(Errc::internal, "wrong size");
    if (child->rank() != (comm.rank() < 2 ? 1 : 0)) return fail(Errc::internal, "wrong order");
    CCL_TRY(auto sums, Sums::create(*child));
    const int mine = comm.rank();
    int sum = 0;
    CCL_CHECK(sums(&mine, &sum, 1));
    if (sum != (color == 0 ? 2 : 4)) return fail(Errc::internal, "wrong sum");
    return child->finalize();
  });
  on_all(comms, [](const Communicator& comm) { return comm.finalize(); });
}

TEST_CASE("a rank that does not split ends the others' wait at the deadline of the split") {
  const bool own = GENERATE(true, false);  // else that of the parent
  Config of_parent, of_child;
  of_parent.init_timeout_s = 3;
  if (own) of_child.init_timeout_s = 0.3;
  const auto comms = make(3, of_parent);
  std::vector<Result<void>> results(3);
  std::vector<std::thread> threads;
  for (int r : {0, 2}) {
    threads.emplace_back([&, r] {
      const auto child = comms[r].split(0, 0, of_child);
      if (!child) results[r] = fail(child.error());
    });
  }
  for (auto& t : threads) t.join();
  for (int r : {0, 2}) {
    REQUIRE(!results[r]);
    INFO(results[r].error().message());
    CHECK((code(results[r]) == Errc::timed_out || code(results[r]) == Errc::aborted));
    const char* const limit = own ? "no progress for 0.3 s" : "no progress for 3 s";
    CHECK(results[r].error().what.find(limit) != std::string::npos);
    CHECK(results[r].error().what.find("CCL_INIT_TIMEOUT") != std::string::npos);
    CHECK(!comms[r].status().has_value());
  }
}

TEST_CASE("ranks in calls of different kinds are told which, and do not wait") {
  using Call = Result<void> (*)(const Communicator&, const Sums&);
  const Call sum = [](const Communicator&, const Sums& sums) {
    int x = 1, y = 0;
    return sums(&x, &y, 1);
  };
  const Call split = [](const Communicator& comm, const Sums&) -> Result<void> {
    CCL_CHECK(comm.split(0, 0));
    return {};
  };
  const Call create = [](const Communicator& comm, const Sums&) -> Result<void> {
    CCL_CHECK(Sums::create(comm));
    return {};
  };
  const Call barrier = [](const Communicator& comm, const Sums&) { return comm.barrier(); };
  const Call finalize = [](const Communicator& comm, const Sums&) { return comm.finalize(); };
  struct Case {
    Call first, second;
    const char *first_is, *second_is;
  };
  for (const Case& c :
       {Case{sum, split, "the check of all_reduce/", "split"},
        Case{sum, barrier, "the check of all_reduce/", "barrier"},
        Case{sum, finalize, "the check of all_reduce/", "finalize"},
        Case{create, sum, "the creation of all_reduce/", "the check of"},
        Case{create, split, "the creation of all_reduce/", "split"},
        Case{split, barrier, "split", "barrier"}, Case{barrier, finalize, "barrier", "finalize"},
        Case{finalize, barrier, "finalize", "barrier"},
        Case{create, finalize, "the creation of all_reduce/", "finalize"}}) {
    Config config;
    config.check = true;
    const auto comms = Communicator::create_all(3, config).value();
    std::vector<Result<void>> results(3);
    std::vector<std::thread> threads;
    for (int r = 0; r < 3; ++r) {
      threads.emplace_back([&, r] {
        results[r] = [&]() -> Result<void> {
          CCL_TRY(const auto sums, Sums::create(comms[r]));
          CCL_CHECK(sum(comms[r], sums));
          return (r == 1 ? c.second : c.first)(comms[r], sums);
        }();
      });
    }
    for (auto& t : threads) t.join();
    for (const auto& result : results) {
      REQUIRE(!result);
      INFO(result.error().message());
      CHECK(code(result) == Errc::mismatch);
      for (const char* const is : {c.first_is, c.second_is}) {
        CHECK(result.error().what.find(std::string{"is in "} + is) != std::string::npos);
      }
    }
  }
}

TEST_CASE("a finalized communicator reports nothing") {
  const auto comms = make(2);
  on_all(comms, [](const Communicator& comm) -> Result<void> {
    CCL_CHECK(comm.barrier());
    return comm.finalize();
  });
  for (const Communicator& comm : comms) {
    CHECK(comm.report().ranks.empty());
    CHECK(comm.report().text().find("does not answer") == std::string::npos);
  }
}

TEST_CASE("asynchronous creation says in_progress until it is done") {
  const auto id = create_unique_id();
  REQUIRE(id.has_value());
  Config config;
  config.blocking = false;
  auto first = Communicator::create(*id, 0, 2, config);
  REQUIRE(first.has_value());
  CHECK(code(first->status()) == Errc::in_progress);  // the other rank does not exist yet
  CHECK(first->ring_count() == 0);
  CHECK(first->ring(0).empty());
  CHECK(first->peer(0).rank == -1);
  auto second = Communicator::create(*id, 1, 2);
  REQUIRE(second.has_value());
  CHECK(first->wait().has_value());
  CHECK(first->peer(1).rank == 1);
  CHECK(first->ring(0).size() == 2);
}

TEST_CASE("a communicator whose creation failed knows nobody, and reports nothing") {
  const auto id = create_unique_id();
  REQUIRE(id.has_value());
  Config config;
  config.blocking = false;
  config.init_timeout_s = 0.1;
  const auto first = Communicator::create(*id, 0, 2, config);  // the other rank never calls
  REQUIRE(first.has_value());
  CHECK(code(first->wait()) == Errc::timed_out);
  CHECK(first->report().ranks.empty());
  CHECK(first->ring_count() == 0);
  CHECK(first->ring(0).empty());
  CHECK(first->peer(0).rank == -1);
}

TEST_CASE("an asynchronous creation ends with its last handle, or by abort") {
  const auto threads = [] {
    const std::filesystem::directory_iterator tasks{"/proc/self/task"};
    return std::distance(begin(tasks), end(tasks));
  };
  const auto id = create_unique_id();  // and with it the network's thread
  REQUIRE(id.has_value());
  const auto before = threads();
  Config config;
  config.blocking = false;
  config.init_timeout_s = 0;  // for ever: there is no rank 2
  for (const bool aborts : {false, true}) {
    {
      const auto first = Communicator::create(*id, 0, 3, config);
      const auto second = Communicator::create(*id, 1, 3, config);
      REQUIRE(first.has_value());
      REQUIRE(second.has_value());
      if (aborts) {
        first->abort("rank 2 never came");
        CHECK(code(first->wait()) == Errc::aborted);
      }
    }
    for (int tries = 0; threads() > before && tries < 3000; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
    CHECK(threads() <= before);
  }
}
