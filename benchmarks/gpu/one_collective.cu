// Smallest program with a collective on GPUs: one all-reduce of floats over LL128. It serves to
// measure code size and compile time.
#include <ccl/ccl.cuh>

#include <cstdio>

namespace {
ccl::Result<void> run() {
  CCL_TRY(const auto comm, ccl::Communicator::from_env());
  using Sums = ccl::Collective<ccl::AllReduce, ccl::Ring, ccl::LL128, ccl::DefaultTransport>;
  CCL_TRY(const auto all_reduce, Sums::create(comm));
  float* data = nullptr;
  constexpr ccl::Index count = 1 << 20;
  if (cudaMalloc(&data, count * sizeof(float)) != cudaSuccess) {
    return ccl::fail(ccl::Errc::out_of_memory, "no memory on the GPU");
  }
  CCL_CHECK(all_reduce(data, data, count));
  if (cudaDeviceSynchronize() != cudaSuccess) return ccl::fail(ccl::Errc::cuda, "it failed");
  return comm.finalize();
}
}  // namespace

int main() {
  const auto done = run();
  if (!done) std::printf("%s\n", done.error().message().c_str());
  return done ? 0 : 1;
}
