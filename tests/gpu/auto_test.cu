#include <ccl/ccl.cuh>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "catch.hpp"
#include "on_gpus.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {
/// Values whose sum depends on the order of adding.
std::vector<float> values(int rank, Index count) {
  std::mt19937 random{unsigned(rank + 1)};
  std::uniform_real_distribution<float> digits{1, 2};
  std::uniform_int_distribution<int> power{-12, 12};
  std::vector<float> all;
  for (Index i = 0; i < count; ++i) {
    all.push_back(std::ldexp(digits(random), power(random)) * (random() % 2 == 0 ? 1.F : -1.F));
  }
  return all;
}

/// The results of `runs` all-reduces of the first `count` values, which must all be the same.
template <class Call>
Result<std::vector<float>> run(const Call& call, int rank, Index count, int runs) {
  const std::size_t bytes = std::size_t(count) * sizeof(float);
  const auto in = values(rank, count);
  float *send = nullptr, *recv = nullptr;
  CCL_CHECK(good(cudaMalloc(&send, bytes)));
  CCL_CHECK(good(cudaMalloc(&recv, bytes)));
  CCL_CHECK(good(cudaMemcpy(send, in.data(), bytes, cudaMemcpyDefault)));
  cudaStream_t stream = nullptr;
  CCL_CHECK(good(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)));
  std::vector<float> first(in.size()), again(in.size());
  for (int i = 0; i < runs; ++i) {
    CCL_CHECK(good(cudaMemsetAsync(recv, 0xff, bytes, stream)));
    CCL_CHECK(call(send, recv, count, Sum{}, stream));
    auto& out = i == 0 ? first : again;
    CCL_CHECK(good(cudaMemcpyAsync(out.data(), recv, bytes, cudaMemcpyDefault, stream)));
    CCL_CHECK(good(cudaStreamSynchronize(stream)));
    if (i > 0 && std::memcmp(first.data(), again.data(), bytes) != 0) {
      return fail(Errc::internal, "run " + std::to_string(i) + " differs from the first");
    }
  }
  CCL_CHECK(good(cudaStreamDestroy(stream)));
  CCL_CHECK(good(cudaFree(send)));
  CCL_CHECK(good(cudaFree(recv)));
  return first;
}
}  // namespace

TEST_CASE("a deterministic all-reduce on GPUs has the same bits in every run, size and rank") {
  const int ranks = devices();
  if (ranks < 2) {
    std::printf("SKIP: fewer than two GPUs\n");
    return;
  }
  constexpr Index longest = 3'000'001;
  std::vector<std::vector<float>> whole(static_cast<std::size_t>(ranks));
  on_gpus(ranks, [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto call, (Collective<AllReduce, Deterministic>::create(comm)));
    auto& mine = whole[std::size_t(comm.rank())];
    CCL_TRY(mine, run(call, comm.rank(), longest, 5));
    // From one hop to two: every size is the beginning of the longest.
    for (const Index count : {1, 63, 1024, 16384, 65536, 1'000'000}) {
      CCL_TRY(const auto part, run(call, comm.rank(), count, count <= 65536 ? 1000 : 20));
      if (std::memcmp(part.data(), mine.data(), part.size() * sizeof(float)) != 0) {
        return fail(Errc::internal, "a part of " + std::to_string(count) + " differs");
      }
    }
    return comm.finalize();
  });
  for (const auto& of_rank : whole) {
    REQUIRE(of_rank.size() == whole[0].size());
    CHECK(std::memcmp(of_rank.data(), whole[0].data(), of_rank.size() * sizeof(float)) == 0);
  }
  if (ranks != 2 && ranks != 4 && ranks != 8) return;
  std::vector<std::vector<float>> in;
  for (int r = 0; r < ranks; ++r) in.push_back(values(r, longest));
  bool by_rank = true;
  for (std::size_t i = 0; i < in[0].size(); ++i) {
    float sum = in[0][i];
    for (int r = 1; r < ranks; ++r) sum += in[std::size_t(r)][i];
    by_rank = by_rank && sum == whole[0][i];
  }
  CHECK(by_rank);  // as docs/choosing.md has it, where GPUs address each other
}

TEST_CASE("an Auto on GPUs sums at every size that changes its composition") {
  const int ranks = devices();
  if (ranks < 2) {
    std::printf("SKIP: fewer than two GPUs\n");
    return;
  }
  on_gpus(ranks, [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto call, Collective<AllReduce>::create(comm));
    for (Index count = 16; count <= 16 << 20; count *= 4) {
      const Choice choice = call.plan(count * 4);
      if (comm.rank() == 0)
        std::printf("%lld: %s\n", (long long)(count * 4), choice.text().c_str());
      float* data = nullptr;
      const std::vector<float> ones(std::size_t(count), float(comm.rank() + 1));
      CCL_CHECK(good(cudaMalloc(&data, ones.size() * sizeof(float))));
      CCL_CHECK(
          good(cudaMemcpy(data, ones.data(), ones.size() * sizeof(float), cudaMemcpyDefault)));
      CCL_CHECK(call(data, data, count, Sum{}, cudaStream_t{nullptr}));
      std::vector<float> sums(ones.size());
      CCL_CHECK(
          good(cudaMemcpy(sums.data(), data, sums.size() * sizeof(float), cudaMemcpyDefault)));
      CCL_CHECK(good(cudaFree(data)));
      for (const float x : sums) {
        if (x != float(ranks * (ranks + 1) / 2)) return fail(Errc::internal, choice.text());
      }
    }
    return comm.finalize();
  });
}
