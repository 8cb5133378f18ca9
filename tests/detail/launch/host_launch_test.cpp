#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/group.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/shm.hpp>

#include <memory>
#include <thread>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;

namespace {
/// An element of a user, of 4 KiB.
struct Block {
  float value[1024];
};
struct AddBlocks {
  CCL_HD Block operator()(const Block& a, const Block& b) const {
    Block sum;
    for (int i = 0; i < 1024; ++i) sum.value[i] = a.value[i] + b.value[i];
    return sum;
  }
};

template <class F>
void on_two_ranks(Index budget, F body) {
  Config config;
  config.memory_budget_bytes = budget;
  auto comms = Communicator::create_all(2, config);
  REQUIRE(comms.has_value());
  std::vector<Result<void>> results(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] { results[std::size_t(r)] = body((*comms)[std::size_t(r)]); });
  }
  for (auto& t : threads) t.join();
  for (const auto& result : results) {
    INFO((result ? "" : result.error().message()));
    CHECK(result.has_value());
  }
}
Result<void> refused(const Result<void>& result, const char* bytes) {
  if (!result && result.error().code == Errc::over_budget &&
      result.error().what.find(bytes) != std::string::npos) {
    return {};
  }
  return fail(Errc::internal, result ? "not refused" : result.error().message());
}
}  // namespace

TEST_CASE("elements larger than a slice are refused, and smaller ones go on") {
  on_two_ranks(16 << 10, [](const Communicator& comm) -> Result<void> {
    using Sums = Collective<AllReduce, Tree, Simple, ShmTransport>;
    CCL_TRY(auto sums, Sums::create(comm));
    std::vector<Block> in(3), out(3);
    CCL_CHECK(refused(sums(in.data(), out.data(), 3, AddBlocks{}), "4096 bytes"));
    CCL_CHECK(refused(group({}, sums.bind(in.data(), out.data(), 3, AddBlocks{})), "4096 bytes"));
    std::vector<float> x(1000, 1.f), y(x.size());
    CCL_CHECK(sums(x.data(), y.data(), Index(x.size())));
    return y[999] == 2 ? Result<void>{} : fail(Errc::internal, "wrong sum");
  });
}

TEST_CASE("elements that just fit into a slice are reduced") {
  on_two_ranks(Index{64} << 20, [](const Communicator& comm) -> Result<void> {
    using Sums = Collective<AllReduce, Tree, Simple, ShmTransport>;
    Plan plan;
    plan.slot_bytes = 4096;
    plan.slice_steps = plan.chunk_steps = 1;
    CCL_TRY(auto sums, Sums::create(comm, plan));
    std::vector<Block> in(3), out(3);
    for (int b = 0; b < 3; ++b) in[b].value[1023] = float(b + 1);
    CCL_CHECK(sums(in.data(), out.data(), 3, AddBlocks{}));
    return out[2].value[1023] == 6 ? Result<void>{} : fail(Errc::internal, "wrong sum");
  });
}
