// Nvls in kernels whose buffers lie in windows, by loads and stores to each peer in the place of
// NVLink multicast, on GPUs that are played on the CPU.
#define CCL_PLAYED_WARP 8  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/nvls.hpp>
#include <ccl/collective.cuh>
#include <ccl/comm/window.hpp>
#include <ccl/transport/nvls.hpp>

#include <algorithm>
#include <string>

#include "support/played/wide.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
template <class Op>
using Over = Collective<Op, Nvls, Simple, EmulatedNvlsTransport>;
constexpr Index room = 96 << 10;  // bytes of a buffer, longer than a part that is copied
/// A message that is copied takes several parts.
constexpr Plan small{.channels = 1, .slot_count = 2, .slot_bytes = 64 << 10};

/// Fills, calls and checks. Returns what is wrong.
struct Sums {
  const played::Rank& rank;
  const Over<AllReduce>& sums;

  std::string run(float* send, float* recv, Index n, const std::string& way) const {
    for (Index i = 0; i < n; ++i) send[i] = float(i % 100 + rank.rank);
    const auto done = sums(send, recv, n, Sum{}, rank.stream);
    rank.synchronize();
    if (!done) return done.error().message();
    const float ranks = float(rank.ranks);
    for (Index i = 0; i < n; ++i) {
      if (recv[i] != ranks * float(i % 100) + ranks * (ranks - 1) / 2) return "a wrong sum";
    }
    const auto took = sums.latest_way();
    if (!took) return took.error().message();
    return *took == way ? std::string{} : "it was " + *took + ", not " + way;
  }
};
}  // namespace

TEST_CASE("kernels load from windows and store to windows, or copy what lies elsewhere") {
  for (const int ranks : {2, 3}) {
    auto comms = played::wide_ranks(ranks);
    played::on_each(comms, [](const played::Rank& rank) -> std::string {
      const auto made = Over<AllReduce>::create(rank.comm, small);
      if (!made) return made.error().message();
      const auto shared = SharedMemory::allocate(rank.comm, 2 * room);
      const auto apart = SharedMemory::allocate(rank.comm, room);
      if (!shared || !apart) return "no memory";
      const auto window = Window::create(rank.comm, *shared);
      if (!window) return window.error().message();
      float* const send = shared->as<float>();
      float* const recv = send + room / 4;
      float* const other = apart->as<float>();
      const std::string loaded = "loaded from windows", stored = "stored to windows";
      const Sums call{rank, *made};
      std::string wrong;
      const auto sum = [&](float* from, float* to, Index n, const std::string& way) {
        if (wrong.empty()) wrong = call.run(from, to, n, way);
      };
      for (const Index n : {Index{4}, Index{1024}, room / 4}) {
        sum(send, recv, n, loaded + ", " + stored);
        sum(send, send, n, loaded + ", " + stored);
        sum(send, other, n, loaded);
        sum(other, recv, n, stored);
        sum(other, other, n, "copied");
        // One rank elsewhere.
        sum(rank.rank == 1 ? other : send, recv, n, stored);
        sum(send, rank.rank == 0 ? other : recv, n, loaded);
      }
      sum(send, recv, 1023, "copied");
      if (!wrong.empty()) return wrong;
      const auto closed = window->close();
      return closed ? std::string{} : closed.error().message();
    });
  }
}

TEST_CASE("kernels gather into windows and scatter sums from windows") {
  auto comms = played::wide_ranks(3);
  played::on_each(comms, [](const played::Rank& rank) -> std::string {
    const auto gather = Over<AllGather>::create(rank.comm, small);
    const auto scatter = Over<ReduceScatter>::create(rank.comm, small);
    if (!gather || !scatter) return "not created";
    const auto shared = SharedMemory::allocate(rank.comm, 3 * room);
    const auto apart = SharedMemory::allocate(rank.comm, room);
    if (!shared || !apart) return "no memory";
    const auto window = Window::create(rank.comm, *shared);
    if (!window) return window.error().message();
    int* const all = shared->as<int>();
    int* const own = apart->as<int>();
    for (const Index n : {Index{4}, room / 4}) {
      std::fill_n(own, n, 7 + rank.rank);
      auto done = (*gather)(own, all, n, rank.stream);
      rank.synchronize();
      if (!done) return done.error().message();
      for (Index i = 0; i < 3 * n; ++i) {
        if (all[i] != 7 + int(i / n)) return "a wrong gather";
      }
      if (*gather->latest_way() != "stored to windows") return "not stored to windows";
      for (Index i = 0; i < 3 * n; ++i) all[i] = int(i) + rank.rank;
      done = (*scatter)(all, own, n, Sum{}, rank.stream);
      rank.synchronize();
      if (!done) return done.error().message();
      for (Index i = 0; i < n; ++i) {
        if (own[i] != 3 * int(rank.rank * n + i) + 3) return "a wrong share";
      }
      if (*scatter->latest_way() != "loaded from windows") return "not loaded from windows";
    }
    return {};
  });
}
