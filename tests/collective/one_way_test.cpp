// Calls in which a rank only sends: it fills long slots past its caches, and the receivers get what
// the latest call has sent.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/shm.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "support/loopback_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Number = std::uint32_t;
constexpr int calls = 30;

/// Element of the data that `root` sends in a call.
Number element(int call, Index i) {
  return Number(i) * 2654435761u + Number(call) * 40503u;
}
Result<void> compare(const Number* got, Index first, Index count, int call) {
  for (Index i = 0; i < count; ++i) {
    if (got[i] == element(call, first + i)) continue;
    return fail(Errc::internal, fmt::format("call {}: element {} is {}", call, i, got[i]));
  }
  return {};
}
void fill(Number* data, Index count, int call) {
  for (Index i = 0; i < count; ++i) data[i] = element(call, i);
}

template <class Algo, class Transport>
void broadcasts(Index count, Index shift) {
  INFO(Algo::name << ", " << count << " elements, " << shift << " behind a page");
  on_all(make(2), [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto broadcast, (Collective<Broadcast, Algo, Simple, Transport>::create(comm)));
    const auto room = std::size_t(count + shift);
    std::vector<Number> mine(room), other(room);
    Number* const data = mine.data() + shift;
    for (int call = 0; call < calls; ++call) {
      const int root = call / 3 % 2;
      if (comm.rank() == root) fill(data, count, call);
      Number* const to = call % 2 == 0 ? data : other.data();
      CCL_CHECK(broadcast(data, to, count, root));
      CCL_CHECK(compare(to, 0, count, call));
    }
    return {};
  });
}

template <class Transport>
void scatters(Index count, Index shift) {
  INFO(count << " elements, " << shift << " behind a page");
  on_all(make(2), [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto scatter, (Collective<Scatter, Pairwise, Simple, Transport>::create(comm)));
    CCL_TRY(const auto gather, (Collective<Gather, Pairwise, Simple, Transport>::create(comm)));
    const auto room = std::size_t(2 * count + shift);
    std::vector<Number> all(room), part(room);
    Number* const data = all.data() + shift;
    for (int call = 0; call < calls; ++call) {
      const int root = call / 3 % 2;
      if (comm.rank() == root) fill(data, 2 * count, call);
      CCL_CHECK(scatter(data, part.data(), count, root));
      CCL_CHECK(compare(part.data(), comm.rank() * count, count, call));
      CCL_CHECK(gather(part.data(), data, count, 1 - root));
      if (comm.rank() != root) CCL_CHECK(compare(data, 0, 2 * count, call));
    }
    return {};
  });
}
}  // namespace

TEST_CASE("a broadcast brings the data of its call, in short and long slices") {
  // The last has a block of one element at its end.
  for (const Index count : {Index{1000}, Index{5000}, Index{80'003}, Index{400'000}, Index{6145}}) {
    for (const Index shift : {0, 1}) {
      broadcasts<Ring, ShmTransport>(count, shift);
      broadcasts<Ring, LoopbackTransport>(count, shift);
      broadcasts<Tree, ShmTransport>(count, shift);
    }
  }
}

TEST_CASE("scatter and gather bring the data of their calls, in short and long slices") {
  for (const Index count : {Index{1000}, Index{5000}, Index{80'003}, Index{400'000}}) {
    for (const Index shift : {0, 1}) {
      scatters<ShmTransport>(count, shift);
      scatters<LoopbackTransport>(count, shift);
    }
  }
}
