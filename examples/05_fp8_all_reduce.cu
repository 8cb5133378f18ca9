// All-reduce whose data is sent as fp8 with one scale for each block of 472 values: half the bytes
// of bf16. Sums are in float. docs/guide/fused.md states the error bound, and this program checks
// it.
#include <ccl/ccl.cuh>

#include <cmath>
#include <cstdio>
#include <vector>

using bf16 = ccl::bfloat16;
using Sum = ccl::Collective<ccl::AllReduce, ccl::TwoShot, ccl::LL128, ccl::DefaultTransport>;
using Fp8Sum = ccl::Fused<ccl::QuantizeFp8<bf16>, Sum, ccl::StoreRows<float>>;

constexpr ccl::Index rows = 64, length = 4096, count = rows * length;

float value(int rank, ccl::Index i) {
  return std::sin(float(i % 1000) * 0.01f + float(rank));
}

ccl::Result<void> run(cudaStream_t stream) {
  CCL_TRY(const auto comm, ccl::Communicator::from_env());
  if (comm.device() < 0) return ccl::fail(ccl::Errc::not_supported, "this machine has no GPU");
  cudaSetDevice(comm.device());
  CCL_TRY(const auto all_reduce, Fp8Sum::create(comm));
  std::vector<bf16> host(count);
  for (ccl::Index i = 0; i < count; ++i) host[i] = __float2bfloat16(value(comm.rank(), i));
  bf16* in = nullptr;
  float* out = nullptr;
  cudaMalloc(&in, count * sizeof(bf16));
  cudaMalloc(&out, count * sizeof(float));
  cudaMemcpy(in, host.data(), count * sizeof(bf16), cudaMemcpyHostToDevice);
  CCL_CHECK(all_reduce(in, rows, length, {out}, stream));
  std::vector<float> sums(count);
  cudaStreamSynchronize(stream);
  cudaMemcpy(sums.data(), out, count * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(in);
  cudaFree(out);
  // largest error relative to its bound: 1/16 of each summand, then 1/16 of their sum
  double worst = 0;
  for (ccl::Index i = 0; i < count; ++i) {
    double exact = 0, slack = 1e-4;  // small values: 1 / 458752 of the largest in their block
    for (int r = 0; r < comm.ranks(); ++r) {
      const double v = __bfloat162float(__float2bfloat16(value(r, i)));
      exact += v;
      slack += std::abs(v) / 16;
    }
    if (comm.ranks() > 1) slack += (std::abs(exact) + slack) / 16;
    worst = std::max(worst, std::abs(sums[i] - exact) / slack);
  }
  std::printf("rank %d of %d: the largest error is %.2f of its bound\n", comm.rank(), comm.ranks(),
              worst);
  if (!(worst <= 1)) return ccl::fail(ccl::Errc::internal, "a sum is beyond its bound");
  return comm.finalize();
}

int main() {
  const auto done = run(nullptr);
  if (!done) std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return done ? 0 : 1;
}
