// End of an attention or MLP layer under tensor parallelism in one kernel. It adds up the ranks'
// partial results, adds the residual and normalizes each row (RMSNorm).
#include <ccl/ccl.cuh>

#include <cstdio>
#include <vector>

using bf16 = ccl::bfloat16;
using Sum = ccl::Collective<ccl::AllReduce, ccl::OneShot, ccl::LL128, ccl::DefaultTransport>;
using Norm = ccl::Fused<ccl::AsIs<bf16>, Sum, ccl::AddRmsNorm<bf16>>;

constexpr ccl::Index rows = 4, hidden = 7168, count = rows * hidden;

bf16* filled(float value, ccl::Index n) {
  std::vector<bf16> host(size_t(n), __float2bfloat16(value));
  bf16* data = nullptr;
  cudaMalloc(&data, host.size() * sizeof(bf16));
  cudaMemcpy(data, host.data(), host.size() * sizeof(bf16), cudaMemcpyHostToDevice);
  return data;
}

ccl::Result<void> run(cudaStream_t stream) {
  CCL_TRY(const auto comm, ccl::Communicator::from_env());
  if (comm.device() < 0) return ccl::fail(ccl::Errc::not_supported, "this machine has no GPU");
  cudaSetDevice(comm.device());
  CCL_TRY(const auto norm, Norm::create(comm));
  bf16* const partial = filled(float(comm.rank() + 1), count);
  bf16* const residual = filled(2, count);
  bf16* const out = filled(0, count);
  bf16* const weight = filled(0.5f, hidden);
  // On all ranks, `residual` becomes residual + sum of all partial results. `out` becomes its rows,
  // divided by their root mean square and multiplied by `weight`.
  CCL_CHECK(norm(partial, rows, hidden, {residual, residual, out, weight, 1e-6f}, stream));
  cudaStreamSynchronize(stream);
  bf16 first[2];
  cudaMemcpy(&first[0], residual + count - 1, sizeof(bf16), cudaMemcpyDeviceToHost);
  cudaMemcpy(&first[1], out + count - 1, sizeof(bf16), cudaMemcpyDeviceToHost);
  std::printf("rank %d of %d: the residual is %g, normalized %g\n", comm.rank(), comm.ranks(),
              __bfloat162float(first[0]), __bfloat162float(first[1]));
  for (bf16* data : {partial, residual, out, weight}) cudaFree(data);
  return comm.finalize();
}

int main() {
  const auto done = run(nullptr);
  if (!done) std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return done ? 0 : 1;
}
