#include <ccl/group.hpp>
#include <ccl/hierarchical.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/simple.hpp>

#include <limits>

#include "core/collective_suite.hpp"
#include <comm_state.hpp>

using namespace ccl;
using namespace ccl::test;

namespace {
using Sums = Collective<AllReduce, Ring, Simple, LoopbackTransport>;
using Copies = Collective<Broadcast, Ring, LL, LoopbackTransport>;
using Levels = Collective<AllReduce, Hierarchical<Ring, Ring>, Simple, LoopbackTransport>;
using P2p = Collective<SendRecv, Pairwise, LL, LoopbackTransport>;
using Alls = Collective<AllToAll, Pairwise, LL, LoopbackTransport>;
using AllsV = Collective<AllToAllV, Pairwise, LL, LoopbackTransport>;

std::vector<Communicator> make(int ranks, Config config = {}) {
  if (!config.timeout_s) config.timeout_s = 60;
  auto comms = Communicator::create_all(ranks, config);
  INFO((comms ? std::string{} : comms.error().message()));
  REQUIRE(comms.has_value());
  return *std::move(comms);
}
Errc code(const Result<void>& result) {
  return result ? Errc::ok : result.error().code;
}
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

TEST_CASE("misuse is a typed error that names the value and the rank") {
  const auto comms = make(2);
  on_all(comms, [](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto sums, Sums::create(comm));
    CCL_TRY(auto copies, Copies::create(comm));
    CCL_TRY(auto p2p, P2p::create(comm));
    CCL_TRY(auto alls, Alls::create(comm));
    CCL_TRY(auto alls_v, AllsV::create(comm));
    float x[4] = {}, y[4] = {};
    const float* none = nullptr;
    // Catch2's assertions belong to one thread.
    if (comm.rank() == 0) {
      const auto null = sums(none, y, 4);
      CHECK(code(null) == Errc::invalid_argument);
      CHECK(null.error().message().find("send is null and should hold 4 elements") !=
            std::string::npos);
      CHECK(null.error().rank == 0);
      CHECK(code(sums(x, static_cast<float*>(nullptr), 4)) == Errc::invalid_argument);
      CHECK(code(sums(x, y, -1)) == Errc::invalid_argument);
      CHECK(code(sums(x, y, Index{1} << 61)) == Errc::invalid_argument);
      CHECK(code(copies(x, y, 4, 2)) == Errc::invalid_argument);
      CHECK(code(copies(x, y, 4, -1)) == Errc::invalid_argument);
      CHECK(copies(x, y, 4, 7).error().message().find("rank 7 is not in the communicator") !=
            std::string::npos);
      CHECK(code(p2p.send(x, 4, 5)) == Errc::invalid_argument);
      CHECK(code(p2p.recv(static_cast<float*>(nullptr), 1, 1)) == Errc::invalid_argument);
      CHECK(code(alls(x, x, 1)) == Errc::invalid_argument);
      const std::vector<Index> one(1), two(2);
      CHECK(code(alls_v(x, one, two, y, two, two)) == Errc::invalid_argument);
      const std::vector<Index> here(2, 1), before(2, -1), none_there(2);
      const auto outside = alls_v(x, here, before, y, here, none_there);
      CHECK(code(outside) == Errc::invalid_argument);
      CHECK(outside.error().message().find("send offset -1 of 4-byte elements") !=
            std::string::npos);
      CHECK(code(alls_v(x, here, none_there, y, here, before)) == Errc::invalid_argument);
      Plan odd;
      odd.slot_bytes = 100;
      CHECK(code(Sums::create(comm, odd).transform([](auto&&) {})) == Errc::invalid_argument);
    }
    CCL_CHECK(comm.finalize());
    if (comm.rank() == 0) {
      CHECK(code(sums(x, y, 4)) == Errc::invalid_usage);
      CHECK(code(comm.finalize()) == Errc::invalid_usage);
      CHECK(code(comm.split(0, 0).transform([](auto&&) {})) == Errc::invalid_usage);
    }
    return {};
  });
  CHECK(code(Communicator::create(UniqueId{}, 3, 2).transform([](auto&&) {})) ==
        Errc::invalid_argument);
  CHECK(code(Communicator::create(UniqueId{}, 0, 0).transform([](auto&&) {})) ==
        Errc::invalid_argument);
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
    comm.abort("nobody hears this");
    for (const Errc one : codes) {
      if (one != Errc::invalid_usage) return fail(Errc::internal, std::string{name(one)});
    }
    const auto why = sums(x, y, 4).error().message();
    if (why.find("moved from") == std::string::npos) return fail(Errc::internal, why);
    const bool nobody = comm.rank() == -1 && comm.ranks() == 0 && comm.device() == -1 &&
                        comm.name().empty() && comm.peer(0).host[0] == 0 &&
                        comm.report().ranks.empty() && comm.memory_budget() == 0 &&
                        sums.ranks() == 0 && sums.plan().channels == Plan{}.channels &&
                        levels.ranks() == 0 && levels.plan().channels == Plan{}.channels;
    if (!nobody) return fail(Errc::internal, "it says that it is somebody");
    // NOLINTEND(bugprone-use-after-move)
    comm = own;
    sums = own_sums;
    levels = own_levels;
    CCL_CHECK(sums(x, y, 4));
    CCL_CHECK(levels(x, y, 4));
    return comm.finalize();
  });
}

TEST_CASE("a call that is refused is not in the journal") {
  on_all(make(2), [](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto sums, Sums::create(comm));
    CCL_TRY(auto p2p, P2p::create(comm));
    float x[4] = {}, y[4] = {};
    auto* const cuda = reinterpret_cast<CUstream_st*>(x);  // not of a CPU rank
    if (code(sums(x, y, 4, Sum{}, cuda)) != Errc::invalid_argument ||
        code(group(cuda, sums.bind(x, y, 4))) != Errc::invalid_argument) {
      return fail(Errc::internal, "a CUDA stream was taken");
    }
    CCL_CHECK(sums(x, y, 4));
    CCL_CHECK(comm.finalize());
    const bool refused = code(sums(x, y, 4)) == Errc::invalid_usage &&
                         code(p2p.send(x, 4, 1 - comm.rank())) == Errc::invalid_usage &&
                         code(group({}, sums.bind(x, y, 4))) == Errc::invalid_usage &&
                         code(comm.barrier()) == Errc::invalid_usage;
    const Account mine = comm.state()->account();
    if (refused && mine.called == 1 && mine.operations.size() == 1) return {};
    return fail(Errc::internal, "refused calls are in the journal");
  });
}

TEST_CASE("a plan that leaves the size of slots open gets the protocol's") {
  on_all(make(2), [](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto sums, Sums::create(comm, Plan{.slot_count = 4}));
    const Plan got = sums.plan();
    if (got.slot_count != 4) return fail(Errc::internal, "other slots");
    if (got.slot_bytes != Simple::default_slot_bytes) return fail(Errc::internal, "other sizes");
    return comm.finalize();
  });
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

TEST_CASE("create_all says why a rank failed, and not that others heard of it") {
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

TEST_CASE("with checking on, ranks that disagree are told what differs") {
  Config config;
  config.check = true;
  struct Wrong {
    const char* what;
    Index counts[2];
    bool other_type, other_op;
  };
  for (const Wrong& wrong :
       {Wrong{"count", {4, 3}, false, false}, Wrong{"type", {4, 4}, true, false},
        Wrong{"reduction", {4, 4}, false, true}}) {
    const auto comms = make(2, config);
    std::vector<std::thread> threads;
    std::vector<Result<void>> results(2);
    for (int r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        auto sums = Sums::create(comms[r]);
        if (!sums) return;
        float x[4] = {}, y[4] = {};
        int i[4] = {}, j[4] = {};
        if (!(*sums)(x, y, 4)) return;
        if (wrong.other_type && r == 1) {
          results[r] = (*sums)(i, j, wrong.counts[r]);
        } else if (wrong.other_op && r == 1) {
          results[r] = (*sums)(x, y, wrong.counts[r], Max{});
        } else {
          results[r] = (*sums)(x, y, wrong.counts[r]);
        }
      });
    }
    for (auto& t : threads) t.join();
    for (int r = 0; r < 2; ++r) {
      REQUIRE(code(results[r]) == Errc::mismatch);
      CHECK(results[r].error().what.find(wrong.what) != std::string::npos);
      CHECK(results[r].error().peer == 1 - r);
    }
  }
}

TEST_CASE("a late rank ends the others' wait at the deadline, and the error names it") {
  Config config;
  config.timeout_s = 0.3;
  const auto comms = make(3, config);
  std::vector<Result<void>> results(3);
  std::vector<Result<Sums>> sums(3, fail(Errc::internal, "not made"));  // outlive the peers' set-up
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      sums[r] = Sums::create(comms[r]);
      if (!sums[r]) results[r] = fail(sums[r].error());
      if (!sums[r] || r == 2) return;  // rank 2 never calls
      std::vector<float> x(1000), y(1000);
      results[r] = (*sums[r])(x.data(), y.data(), 1000);
      if (results[r]) results[r] = (*sums[r])(x.data(), y.data(), 1000);
    });
  }
  for (auto& t : threads) t.join();
  // Rank 0 waits for rank 2 and rank 1 for rank 0; who gives up first tells the other.
  for (int r = 0; r < 2; ++r) {
    INFO((results[r] ? std::string{"ok"} : results[r].error().message()));
    CHECK((code(results[r]) == Errc::timed_out || code(results[r]) == Errc::aborted));
    CHECK(results[r].error().what.find("no progress for 0.3 s") != std::string::npos);
    CHECK(results[r].error().peer >= 0);
  }
  CHECK(!comms[0].status().has_value());
}

TEST_CASE("abort ends a wait on every rank") {
  const auto comms = make(2);
  std::vector<Result<void>> results(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      auto sums = Sums::create(comms[r]);
      if (!sums) {
        results[r] = fail(sums.error());
        return;
      }
      if (r == 1) {
        comms[1].abort("the test says so");
        results[1] = comms[1].status();
        return;
      }
      std::vector<float> x(100), y(100);
      results[0] = (*sums)(x.data(), y.data(), 100);
    });
  }
  for (auto& t : threads) t.join();
  for (int r = 0; r < 2; ++r) {
    REQUIRE(code(results[r]) == Errc::aborted);
    CHECK(results[r].error().what.find("the test says so") != std::string::npos);
  }
}

TEST_CASE("split makes communicators of the colours, in order of the keys") {
  const auto comms = make(5);
  on_all(comms, [](const Communicator& comm) -> Result<void> {
    const int color = comm.rank() == 4 ? -1 : comm.rank() % 2;
    CCL_TRY(auto child, comm.split(color, -comm.rank()));
    if (comm.rank() == 4) {
      return child ? fail(Errc::internal, "a part without a colour") : Result<void>{};
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
  const auto comms = make(3);
  std::vector<Result<void>> results(3);
  std::vector<std::thread> threads;
  for (int r : {0, 2}) {
    threads.emplace_back([&, r] {
      Config config;
      config.init_timeout_s = 0.3;
      const auto child = comms[r].split(0, 0, config);
      if (!child) results[r] = fail(child.error());
    });
  }
  for (auto& t : threads) t.join();
  for (int r : {0, 2}) {
    REQUIRE(!results[r]);
    INFO(results[r].error().message());
    CHECK((code(results[r]) == Errc::timed_out || code(results[r]) == Errc::aborted));
    CHECK(results[r].error().what.find("no progress for 0.3 s") != std::string::npos);
    CHECK(results[r].error().what.find("CCL_INIT_TIMEOUT") != std::string::npos);
    CHECK(!comms[r].status().has_value());
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

TEST_CASE("calls on a host stream run in order and return at once") {
  const auto comms = make(2);
  on_all(comms, [](const Communicator& comm) -> Result<void> {
    HostStream stream;
    CCL_TRY(auto sums, Sums::create(comm));
    std::vector<double> x(5000, 1.0);
    for (int i = 0; i < 10; ++i) CCL_CHECK(sums(x.data(), x.data(), 5000, Sum{}, stream));
    CCL_CHECK(stream.synchronize());
    return x[4999] == 1024.0 ? Result<void>{} : fail(Errc::internal, "out of order");
  });
}

TEST_CASE("asynchronous creation says in_progress until it is done") {
  const auto id = create_unique_id();
  REQUIRE(id.has_value());
  Config config;
  config.blocking = false;
  auto first = Communicator::create(*id, 0, 2, config);
  REQUIRE(first.has_value());
  CHECK(code(first->status()) == Errc::in_progress);  // the other rank does not exist yet
  auto second = Communicator::create(*id, 1, 2);
  REQUIRE(second.has_value());
  CHECK(first->wait().has_value());
  CHECK(first->peer(1).rank == 1);
}

TEST_CASE("a composition may be dropped as soon as it is made") {
  const auto comms = make(3);
  on_all(comms, [](const Communicator& comm) -> Result<void> {
    for (int i = 0; i < 20; ++i) {
      CCL_CHECK((Collective<AllReduce, Ring, LL, ShmTransport>::create(comm)));
      CCL_CHECK((Collective<AllToAll, Pairwise, Simple, LoopbackTransport>::create(comm)));
    }
    return comm.memory_used() == 0 ? Result<void>{} : fail(Errc::internal, "memory is left");
  });
}

TEST_CASE("by default many compositions have room, and none takes all of it") {
  const auto comms = make(2);
  on_all(comms, [](const Communicator& comm) -> Result<void> {
    if (comm.memory_budget() != Index{1} << 30) return fail(Errc::internal, "another budget");
    Plan plan;
    plan.channels = 16;
    plan.slot_bytes = Index{4} << 20;  // 512 MiB of slots for each wire
    std::vector<Sums> all;
    for (Index n = 1; n <= 3; ++n) {
      CCL_TRY(auto sums, Sums::create(comm, plan));
      if (sums.plan().slot_bytes < 256 << 10 || comm.memory_used() > n * (Index{64} << 20)) {
        return fail(Errc::internal, "composition " + std::to_string(n) + " has slots of " +
                                        std::to_string(sums.plan().slot_bytes) + " bytes");
      }
      all.push_back(std::move(sums));
    }
    std::vector<float> x(1000, 1.f), y(x.size());
    CCL_CHECK(all.back()(x.data(), y.data(), Index(x.size())));
    return y.back() == 2.f ? Result<void>{} : fail(Errc::internal, "wrong sum");
  });
}

TEST_CASE("slots shrink to the memory budget, and a budget too small is refused") {
  Config config;
  config.memory_budget_bytes = 256 << 10;
  const auto comms = make(2, config);
  on_all(comms, [](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto sums, Sums::create(comm));
    if (sums.plan().slot_bytes != 16384) return fail(Errc::internal, "slots did not shrink");
    if (comm.memory_used() != 128 << 10) return fail(Errc::internal, "memory not counted");
    std::vector<float> x(100'000, 1.f), y(x.size());
    CCL_CHECK(sums(x.data(), y.data(), Index(x.size())));
    return y.back() == 2.f ? Result<void>{} : fail(Errc::internal, "wrong sum");
  });
  config.memory_budget_bytes = 1024;
  const auto poor = make(2, config);
  on_all(poor, [](const Communicator& comm) -> Result<void> {
    const auto sums = Sums::create(comm);
    if (sums || sums.error().code != Errc::over_budget) return fail(Errc::internal, "not refused");
    return {};
  });
}

TEST_CASE("all ranks name the one whose budget is too small, and its budget") {
  const auto id = create_unique_id();
  REQUIRE(id);
  std::vector<std::string> texts(2);
  std::vector<Result<Communicator>> comms(2, fail(Errc::internal, "not made"));  // until all know
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      Config config;
      config.timeout_s = 60;
      config.memory_budget_bytes = r == 1 ? 1024 : 256 << 10;
      auto& comm = comms[std::size_t(r)];
      comm = Communicator::create(*id, r, 2, config);
      if (!comm) return;
      const auto sums = Sums::create(*comm);
      if (!sums) texts[std::size_t(r)] = sums.error().message();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const std::string& text : texts) {
    INFO(text);
    CHECK(text.find("on rank 1 (its budget is 1024, of which 0 are used)") != std::string::npos);
  }
}

TEST_CASE("types and functors of every kind, one to eight ranks") {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    const auto comms = make(ranks);
    on_all(comms, [ranks](const Communicator& comm) -> Result<void> {
      CCL_TRY(auto sums, Sums::create(comm));
      const auto all_types = [&]<class T>(TypeTag<T>) -> Result<void> {
        for (const Index count : {Index{1}, Index{33}, Index{1027}}) {
          std::vector<T> in(count), out(count);
          const auto at = [](int rank, Index i) { return float((i + 3 * rank) % 3 + 1); };
          for (Index i = 0; i < count; ++i) {
            in[i] = Element<T>::narrow(accumulate_t<T>(at(comm.rank(), i)));
          }
          const auto check = [&](auto op, auto want) -> Result<void> {
            CCL_CHECK(sums(in.data(), out.data(), count, op));
            for (Index i = 0; i < count; ++i) {
              float w = at(0, i);
              for (int r = 1; r < ranks; ++r) w = want(w, at(r, i));
              if (float(Element<T>::widen(out[i])) == w) continue;
              return fail(Errc::internal,
                          fmt::format("{} of {} ranks, element {} of {}: {} instead of {}",
                                      detail::type_label<T>(), ranks, i, count,
                                      float(Element<T>::widen(out[i])), w));
            }
            return {};
          };
          // Where every partial result is exact: e5m2 counts to 8, e4m3 to 16.
          if (sizeof(T) > 1 || ranks <= 2) {
            CCL_CHECK(check(Sum{}, [](float a, float b) { return a + b; }));
          }
          CCL_CHECK(check(Max{}, [](float a, float b) { return std::max(a, b); }));
          CCL_CHECK(check(Min{}, [](float a, float b) { return std::min(a, b); }));
          if (ranks <= 2 && sizeof(T) > 1)
            CCL_CHECK(check(Prod{}, [](float a, float b) { return a * b; }));
        }
        return {};
      };
      for (int t = 0; t < data_type_count; ++t) CCL_CHECK(with_type(DataType(t), all_types));
      return {};
    });
  }
}
