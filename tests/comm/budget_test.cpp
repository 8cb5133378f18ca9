// Memory that compositions take, share and return.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/simple.hpp>

#include "support/loopback_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Sums = Collective<AllReduce, Tree, Simple, LoopbackTransport>;
}  // namespace

TEST_CASE("a composition may be dropped as soon as it is made") {
  const auto comms = make(3);
  on_all(comms, [](const Communicator& comm) -> Result<void> {
    for (int i = 0; i < 20; ++i) {
      CCL_CHECK((Collective<AllReduce, Tree, LL, ShmTransport>::create(comm)));
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
