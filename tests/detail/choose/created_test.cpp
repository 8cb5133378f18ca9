// Compositions that `Auto` creates for multicast by switches, over a driver that is a fake.
#include <ccl/algo/tree.hpp>
#include <ccl/choose/peer_candidates.hpp>
#include <ccl/collective/all_reduce.hpp>
#include <ccl/detail/choose/auto_collective.hpp>

#include <string>
#include <thread>
#include <vector>

#include "support/environment.hpp"
#include "support/fake_multicast.hpp"
#include "support/gpu_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
constexpr int ranks = 3;
using Listed = AutoOf<detail::Switches, OnGpus<Candidate<Tree, Simple>>>;
using Sums = Collective<AllReduce, Listed, Auto, DefaultTransport>;

/// Returns the compositions of rank 0, or its error. They are those of all ranks.
std::string compositions() {
  gpus(ranks);
  auto comms = create({0, 1, 2});
  std::vector<std::string> names(comms.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < comms.size(); ++r) {
    threads.emplace_back([&, r] {
      if (!comms[r]) {
        names[r] = comms[r].error().message();
        return;
      }
      const auto made = Sums::create(*comms[r]);
      if (!made) names[r] = made.error().message();
      if (!made) return;
      for (const auto& name : made->compositions()) names[r] += name + " ";
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& name : names) CHECK(name == names[0]);
  return names[0];
}
}  // namespace

TEST_CASE("Auto makes multicast memory if it may, and goes on without where a rank cannot") {
  FakeMulticast& fake = FakeMulticast::install();
  detail::program_has_switch_code = true;
  CHECK(compositions() == "Tree/Simple ");
  CHECK(fake.so_far().empty());
  const Environment setting{"CCL_NVLS_ENABLE", "1"};
  CHECK(compositions() == "NVLS/Simple Tree/Simple ");
  CHECK(fake.times("bind") == ranks);
  fake.failing = GENERATE("create", "add", "bind");
  fake.device = fake.failing == "create" ? 0 : 2;
  CHECK(compositions() == "Tree/Simple ");
  detail::program_has_switch_code = false;
}
