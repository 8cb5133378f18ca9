// Checks that launches on GPUs have in common.
#include <ccl/comm/communicator.hpp>
#include <ccl/detail/lanes/host_memory.hpp>

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/state.hpp"
#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/fake_gpus.hpp"
#include "support/processes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

/// One rank on each device, with a bound of its own on the blocks of a launch.
std::vector<Communicator> create(const std::vector<std::pair<int, std::optional<int>>>& ranks) {
  const auto id = create_unique_id();
  REQUIRE(id);
  std::vector<Result<Communicator>> comms(ranks.size(), fail(Errc::internal, "not created"));
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    threads.emplace_back([&, r] {
      Config config;
      config.device = ranks[r].first;
      config.max_channels = ranks[r].second;
      comms[r] = Communicator::create(*id, int(r), int(ranks.size()), config);
    });
  }
  for (auto& thread : threads) thread.join();
  std::vector<Communicator> all;
  for (auto& comm : comms) {
    INFO((comm ? std::string{} : comm.error().message()));
    REQUIRE(comm);
    all.push_back(*std::move(comm));
  }
  return all;
}

/// Blocks of a launch, at most, on each rank.
std::vector<int> max_blocks(const std::vector<std::pair<int, std::optional<int>>>& ranks) {
  std::vector<int> blocks;
  for (const Communicator& comm : create(ranks)) {
    blocks.push_back(detail::Access::state(comm)->device.max_blocks);
  }
  return blocks;
}

/// Launch of another communicator that has not ended.
struct Launched {
  explicit Launched(const Communicator& beside, int blocks)
      : gpu{detail::Access::state(beside)->device.gpu}, owner{detail::Residency::of(*gpu)} {
    fake.never = true;
    member = owner->join(gpu, {blocks, 1, 0, false}, reinterpret_cast<CUevent>(&fake));
    detail::Residency::LaunchWaits waits;
    (void)owner->begin(
        *member, 0, [] { return false; }, waits);
    waits.lock.unlock();
    (void)member->share.take(blocks);
    owner->end(*member);
  }
  ~Launched() { owner->leave(*member); }
  Launched(const Launched&) = delete;

  fake::Event fake{};
  std::shared_ptr<detail::Gpu> gpu;
  std::shared_ptr<detail::Residency> owner;
  std::shared_ptr<detail::Residency::Member> member;
};

}  // namespace

TEST_CASE("launches have as many blocks on all ranks, whatever GPUs they are on") {
  FakeGpus& all = FakeGpus::install(3);
  all.multiprocessors = {{0, 132}, {1, 114}, {2, 24}};
  using Blocks = std::vector<int>;
  CHECK(max_blocks({{0, {}}}) == Blocks{32});
  CHECK(max_blocks({{0, {}}, {1, {}}}) == Blocks{28, 28});
  CHECK(max_blocks({{2, {}}, {0, {}}, {1, {}}}) == Blocks{6, 6, 6});
  CHECK(max_blocks({{0, {}}, {1, 8}}) == Blocks{8, 8});
}

TEST_CASE("a communicator takes more than a quarter of a GPU only if all its ranks ask for it") {
  FakeGpus& all = FakeGpus::install(3);
  all.multiprocessors = {{0, 132}, {1, 114}, {2, 3}};
  using Blocks = std::vector<int>;
  CHECK(max_blocks({{0, 1000}}) == Blocks{128});
  CHECK(max_blocks({{0, 120}, {1, 120}}) == Blocks{114, 114});
  CHECK(max_blocks({{0, 120}, {1, {}}}) == Blocks{28, 28});
  CHECK(max_blocks({{2, {}}}) == Blocks{1});
}

TEST_CASE("a wait that has timed out says that blocks have no place on the GPU") {
  FakeGpus& all = FakeGpus::install(2);
  all.multiprocessors = {{0, 132}, {1, 132}};
  const auto comms = create({{0, {}}, {1, {}}});
  const Launched one{comms[1], 128}, other{comms[1], 128};
  one.gpu->watched().waits = {.peer = 1, .step = 0, .ticket = 1};  // so the other has no place
  detail::Access::state(comms[0])->device.gpu->watched().lane_failure = {.peer = 2, .step = 5};
  const auto failed = comms[0].status();
  REQUIRE_FALSE(failed);
  CHECK(failed.error().code == Errc::timed_out);
  INFO(failed.error().message());
  CHECK(mentions(failed.error().what,
                 "on rank 1 132 of 256 blocks that 2 communicators have queued on its GPU have a "
                 "place"));
  CHECK(mentions(failed.error().what, "CCL_LAUNCH_ORDER_IMPLICIT=1"));
}

TEST_CASE("an abort ends kernels even while a launch holds the lock of all launches on the GPU") {
  FakeGpus& all = FakeGpus::install(2);
  all.multiprocessors = {{0, 132}, {1, 132}};
  const auto comms = create({{0, {}}, {1, {}}});
  const auto gpu = detail::Access::state(comms[0])->device.gpu;
  const auto owner = detail::Residency::of(*gpu);
  fake::Event event{};
  const auto member = owner->join(gpu, {8, 1, 0, false}, reinterpret_cast<CUevent>(&event));
  std::optional<detail::Residency::LaunchWaits> waits{std::in_place};  // holds it
  REQUIRE(owner->begin(
      *member, 0, [] { return true; }, *waits));
  std::thread aborting{[&] { comms[0].abort("enough"); }};
  const bool stopped =
      wait_until([&] { return detail::HostMemory::load_acquire(&gpu->watched().stop) != 0; }, 60);
  waits.reset();
  owner->end(*member);
  aborting.join();
  owner->leave(*member);
  CHECK(stopped);
  CHECK(comms[0].status().error().code == Errc::aborted);
}

TEST_CASE("a child is on its parent's device, wherever the thread is") {
  FakeGpus& all = FakeGpus::install(2);
  all.multiprocessors = {{0, 132}, {1, 132}};
  const auto comms = create({{0, {}}, {1, {}}});
  std::vector<Result<std::optional<Communicator>>> split(2, fail(Errc::internal, "not created"));
  std::vector<Result<Communicator>> shrunk(2, fail(Errc::internal, "not created"));
  std::vector<std::thread> threads;  // without a context
  for (std::size_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      split[r] = comms[r].split(0, int(r));
      shrunk[r] = comms[r].shrink(std::vector<int>{});
    });
  }
  for (auto& thread : threads) thread.join();
  for (std::size_t r = 0; r < 2; ++r) {
    REQUIRE(split[r]);
    CHECK((*split[r])->device() == int(r));
    CHECK((*split[r])->status());
    REQUIRE(shrunk[r]);
    CHECK(shrunk[r]->device() == int(r));
    CHECK(shrunk[r]->status());
  }
  const auto alone = comms[1].shrink(std::vector<int>{0});
  REQUIRE(alone);
  CHECK(alone->device() == 1);
}
