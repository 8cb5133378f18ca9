// The project's first example, by ranks on CPUs over emulated devices.

#include <vector>

#include "support/calls/rings.hpp"
#include "support/fake_verbs.hpp"
#include "support/on_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

TEST_CASE("a ring of 2 and of 4 ranks sums lines of 128 bytes over RDMA") {
  FakeVerbs devices{1};
  const int ranks = GENERATE(2, 4);
  const Index count = 100'000;
  check_well(on_ranks(ranks, {}, [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto sums, RingSums::create(comm, Via::ib, {}, By::ll128));
    std::vector<float> in(count), out(count, -1);
    for (Index i = 0; i < count; ++i) in[std::size_t(i)] = float(comm.rank() + i % 100);
    CCL_CHECK(sums(in.data(), out.data(), count));
    for (Index i = 0; i < count; ++i) {
      const float wanted = float(ranks * (ranks - 1) / 2) + float(ranks) * float(i % 100);
      if (out[std::size_t(i)] != wanted) return fail(Errc::internal, "a wrong sum");
    }
    return {};
  }));
  // Each rank sends 2 (R - 1) shares, in lines of which 120 of 128 bytes are data.
  const std::uint64_t data = std::uint64_t(2 * (ranks - 1)) * count * sizeof(float);
  const std::uint64_t sent = devices.traffic().at(0).sent;
  CHECK(sent >= data * 128 / 120);
  CHECK(sent < data * 120 / 100);
}
