// Sums of packed bf16 pairs have the same bits as sums through float. Every value is tested with
// each of some hundreds, which cover all exponents, both signs, ties, infinities and NaNs.
#include <ccl/element/element.hpp>

#include <vector>

#include "world.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {
__device__ bool is_nan(unsigned code) {
  return (code & 0x7fffu) > 0x7f80u;
}
__global__ void compare(const unsigned short* others, int count, unsigned long long* wrong) {
  const auto a = static_cast<unsigned short>(blockIdx.x * blockDim.x + threadIdx.x);
  for (int i = 0; i + 3 < count; i += 4) {
    Word left = 0, right = 0;
    for (int k = 0; k < 4; ++k) {
      left |= Word{a} << 16 * k;
      right |= Word{others[i + k]} << 16 * k;
    }
    float x[4], y[4];
    Element<bfloat16>::unpack(&left, x);
    Element<bfloat16>::unpack(&right, y);
    for (int k = 0; k < 4; ++k) x[k] += y[k];
    Word want = 0;
    Element<bfloat16>::pack(&want, x);
    const Word got = Element<bfloat16>::add_packed(left, right);
    for (int k = 0; k < 4; ++k) {
      const unsigned g = got >> 16 * k & 0xffffu, w = want >> 16 * k & 0xffffu;
      if (g != w && !(is_nan(g) && is_nan(w))) atomicAdd(wrong, 1ull);
    }
  }
}
}  // namespace

int main() {
  gpus();
  std::vector<unsigned short> others;
  for (unsigned exponent = 0; exponent < 256; ++exponent) {
    for (const unsigned mantissa : {0u, 1u, 0x40u, 0x7fu}) {
      for (const unsigned sign : {0u, 0x8000u}) {
        others.push_back(static_cast<unsigned short>(sign | exponent << 7 | mantissa));
      }
    }
  }
  unsigned short* device = nullptr;
  unsigned long long* wrong = nullptr;
  unsigned long long found = ~0ull;
  cudaMalloc(&device, others.size() * sizeof(unsigned short));
  cudaMalloc(&wrong, sizeof(*wrong));
  cudaMemset(wrong, 0, sizeof(*wrong));
  cudaMemcpy(device, others.data(), others.size() * sizeof(unsigned short), cudaMemcpyHostToDevice);
  compare<<<256, 256>>>(device, int(others.size()), wrong);
  cudaMemcpy(&found, wrong, sizeof(found), cudaMemcpyDeviceToHost);
  cudaFree(device);
  cudaFree(wrong);
  Tally tally;
  tally.check(found == 0, "%llu of %zu sums have other bits", found, 65536 * others.size());
  return tally.result("Sums of bf16");
}
