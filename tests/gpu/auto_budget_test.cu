// An Auto of each collective. It takes minutes to compile.
#include <ccl/ccl.cuh>

#include <cstdio>
#include <string>
#include <vector>

#include "on_gpus.cuh"
#include "support/catch.hpp"
#include "support/skip.hpp"

using namespace ccl;
using namespace ccl::test;

TEST_CASE("a communicator has memory for an Auto of every collective") {
  const int ranks = devices();
  if (ranks < 2) return skip("fewer than two GPUs");
  on_gpus(ranks, [&](const Communicator& comm) -> Result<void> {
    constexpr Index most = 1 << 18;
    const int me = comm.rank(), next = (me + 1) % ranks, previous = (me + ranks - 1) % ranks;
    const float mine = float(me + 1), sum = float(ranks * (ranks + 1) / 2);
    std::size_t before = 0, after = 0, total = 0;
    float *send = nullptr, *recv = nullptr;
    const std::size_t bytes = std::size_t(ranks * most) * sizeof(float);
    CCL_CHECK(good(cudaMalloc(&send, bytes)));
    CCL_CHECK(good(cudaMalloc(&recv, bytes)));
    const std::vector<float> input(std::size_t(ranks * most), mine);
    CCL_CHECK(good(cudaMemcpy(send, input.data(), bytes, cudaMemcpyDefault)));
    CCL_CHECK(comm.barrier());
    CCL_CHECK(good(cudaMemGetInfo(&before, &total)));
    CCL_TRY(const auto all_reduce, Collective<AllReduce>::create(comm));
    CCL_TRY(const auto all_gather, Collective<AllGather>::create(comm));
    CCL_TRY(const auto reduce_scatter, Collective<ReduceScatter>::create(comm));
    CCL_TRY(const auto all_to_all, Collective<AllToAll>::create(comm));
    CCL_TRY(const auto broadcast, Collective<Broadcast>::create(comm));
    CCL_TRY(const auto reduce, Collective<Reduce>::create(comm));
    CCL_TRY(const auto send_recv, Collective<SendRecv>::create(comm));
    // Elements r * count and on are to be `expected(r)`, for `blocks` ranks r.
    const auto check = [&](const char* what, Index count, int blocks,
                           auto expected) -> Result<void> {
      std::vector<float> got(std::size_t(blocks * count));
      CCL_CHECK(good(cudaMemcpy(got.data(), recv, got.size() * sizeof(float), cudaMemcpyDefault)));
      for (Index i = 0; i < Index(got.size()); ++i) {
        if (got[std::size_t(i)] != expected(int(i / count))) return fail(Errc::internal, what);
      }
      return good(cudaMemset(recv, 0xff, bytes));
    };
    const auto theirs = [](int r) { return float(r + 1); };
    const auto total_sum = [sum](int) { return sum; };
    const cudaStream_t stream{nullptr};
    for (const Index count : {Index{100}, most}) {
      CCL_CHECK(all_reduce(send, recv, count, Sum{}, stream));
      CCL_CHECK(check("all_reduce", count, 1, total_sum));
      CCL_CHECK(all_gather(send, recv, count, stream));
      CCL_CHECK(check("all_gather", count, ranks, theirs));
      CCL_CHECK(reduce_scatter(send, recv, count, Sum{}, stream));
      CCL_CHECK(check("reduce_scatter", count, 1, total_sum));
      CCL_CHECK(all_to_all(send, recv, count, stream));
      CCL_CHECK(check("all_to_all", count, ranks, theirs));
      CCL_CHECK(broadcast(send, recv, count, 1, stream));
      CCL_CHECK(check("broadcast", count, 1, [](int) { return 2.F; }));
      CCL_CHECK(reduce(send, recv, count, Sum{}, 0, stream));
      if (me == 0) CCL_CHECK(check("reduce", count, 1, total_sum));
      CCL_CHECK(send_recv(send, count, next, recv, count, previous, stream));
      CCL_CHECK(check("send_recv", count, 1, [&](int) { return float(previous + 1); }));
    }
    CCL_CHECK(good(cudaMemGetInfo(&after, &total)));
    std::printf("rank %d: the driver gave %zu KiB; the communicator counts %lld\n", me,
                (before - after) / 1024, (long long)(comm.memory_used() / 1024));
    CCL_CHECK(good(cudaFree(send)));
    CCL_CHECK(good(cudaFree(recv)));
    return comm.finalize();
  });
}
