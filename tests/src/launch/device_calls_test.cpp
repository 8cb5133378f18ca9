// Checks that launches on GPUs have in common.
#include <ccl/comm/communicator.hpp>

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/state.hpp"
#include "support/catch.hpp"
#include "support/fake_gpus.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

/// Blocks of a launch, at most, on each rank: each on a device, and with a bound of its own.
std::vector<int> max_blocks(const std::vector<std::pair<int, std::optional<int>>>& ranks) {
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
  std::vector<int> blocks;
  for (const auto& comm : comms) {
    INFO((comm ? std::string{} : comm.error().message()));
    REQUIRE(comm);
    blocks.push_back(detail::Access::state(*comm)->device.max_blocks);
  }
  return blocks;
}

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
