// Collectives over wires, whose kernels run on GPUs that are played on the CPU.
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/collective.cuh>
#include <ccl/transport/p2p.hpp>

#include <fmt/format.h>

#include <string>
#include <vector>

#include "support/played/ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr int multiprocessors = 4;
using Ranks = std::vector<Result<Communicator>>;

/// The element `i` of rank r's input: whole numbers, whose sums are exact.
float element(int rank, Index i) {
  return float((rank + 1) * (1 + i % 7));
}
float sum(int ranks, Index i) {
  return float(ranks * (ranks + 1) / 2) * float(1 + i % 7);
}

template <class Algo, class Proto>
void all_reduces(Ranks& comms, Index count, int calls = 3) {
  INFO(comms.size() << " ranks, " << count << " elements, " << Proto::name);
  played::on_each(comms, [&](const played::Rank& rank) -> std::string {
    const auto made = Collective<AllReduce, Algo, Proto, P2pTransport>::create(rank.comm);
    if (!made) return made.error().message();
    std::vector<float> in(std::size_t(count), 0), out(std::size_t(count), -1);
    for (Index i = 0; i < count; ++i) in[std::size_t(i)] = element(rank.rank, i);
    for (int call = 0; call < calls; ++call) {
      const auto done = (*made)(in.data(), out.data(), count, Sum{}, rank.stream);
      if (!done) return done.error().message();
    }
    rank.synchronize();
    for (Index i = 0; i < count; ++i) {
      const float is = out[std::size_t(i)], wanted = sum(rank.ranks, i);
      if (is != wanted) return fmt::format("element {} is {} and not {}", i, is, wanted);
    }
    return {};
  });
}

}  // namespace

TEST_CASE("an all-reduce by a ring runs on played GPUs with each protocol") {
  played::install(8, multiprocessors);
  for (const int ranks : {2, 3, 8}) {
    auto comms = played::create_ranks(ranks);
    for (const Index count : {Index{1}, Index{5000}}) {
      all_reduces<Ring, Simple>(comms, count);
      all_reduces<Ring, LL>(comms, count);
      all_reduces<Ring, LL128>(comms, count);
    }
  }
}

TEST_CASE("an all-reduce by two trees runs on played GPUs") {
  played::install(8, multiprocessors);
  auto comms = played::create_ranks(5);
  all_reduces<Tree, LL>(comms, 3000);
}
