// Exchanges of CPU ranks over wires that allocate nothing once they have run.
#include <ccl/algo/pairwise.hpp>
#include <ccl/collective/all_to_all.hpp>
#include <ccl/collective/gather.hpp>
#include <ccl/collective/send_recv.hpp>
#include <ccl/detail/exchange/over_wires.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/shm.hpp>

#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/counted_allocations.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

struct Buffers {
  std::vector<int> in = std::vector<int>(4000, 1), out = std::vector<int>(4000);
};

/// Runs a call three times on each of two ranks. Returns the allocations of the third on rank 0, or
/// -1 if a call failed. `call(operation, rank, buffers)`.
template <class Op, class Call>
int allocations_of(const Call& call) {
  Config config;
  config.device = Config::cpu;
  auto comms = Communicator::create_all(2, config);
  REQUIRE(comms);
  int of_rank[2] = {-1, -1};
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      const auto operation =
          Collective<Op, Pairwise, Simple, ShmTransport>::create((*comms)[std::size_t(r)]);
      if (!operation) return;
      Buffers buffers;
      for (int n = 0; n < 3; ++n) {
        const Result<void> done = count_allocations([&] { return call(*operation, r, buffers); });
        if (!done) return;
      }
      of_rank[r] = allocations;
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(of_rank[1] >= 0);
  return of_rank[0];
}

}  // namespace

TEST_CASE("an exchange of CPU ranks allocates nothing once it has run") {
  for (const Index count : {2, 2000}) {
    INFO(count << " elements");
    CHECK(allocations_of<AllToAll>([&](const auto& operation, int, Buffers& data) {
            return operation(data.in.data(), data.out.data(), count);
          }) == 0);
    CHECK(allocations_of<Gather>([&](const auto& operation, int, Buffers& data) {
            return operation(data.in.data(), data.out.data(), count, 0);
          }) == 0);
    CHECK(allocations_of<SendRecv>([&](const auto& operation, int rank, Buffers& data) {
            return operation(data.in.data(), count, 1 - rank, data.out.data(), count, 1 - rank);
          }) == 0);
  }
}
