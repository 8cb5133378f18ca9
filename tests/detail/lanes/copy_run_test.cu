// Long runs that the bulk copy engine moves, alone or in turns, arrive whole, whatever their
// alignment and length.
#include <ccl/detail/lanes/copy_turns.hpp>

#include <vector>

#include "gpu/world.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {
constexpr int lanes = 512;
constexpr unsigned char marker = 0x5a;

__global__ void __launch_bounds__(lanes, 1)
    copy_long(char* to, const char* from, Index bytes, int times) {
  const detail::BlockLanes<lanes> group;
  for (int n = 0; n < times; ++n) {  // the barriers of the engine are opened again each time
    // Half of the lanes copies the first bytes again, beside the engine.
    const auto use = detail::BulkUse(n % 3);
    detail::copy_long_run(group, to + n * bytes, from + n * bytes, bytes, use, [&](auto half) {
      detail::copy_run(half, to + n * bytes, from + n * bytes, 4099);
    });
    group.sync();
  }
}

/// Copies `times` runs in turns.
__global__ void __launch_bounds__(lanes, 1)
    copy_turns(char* to, const char* from, Index bytes, int times) {
  const detail::BlockLanes<lanes> group;
  for (int half = 0; half < 2; ++half) {  // the barriers of the engine are opened again
    detail::TurnRuns runs;
    for (int n = half; n < times; n += 2) runs.add(to + n * bytes, from + n * bytes, bytes);
    detail::copy_long_in_turns(group, runs, times / 4, true);
    group.sync();
  }
}

/// Copies between runs that begin `to` and `from` bytes after an aligned address.
template <class Kernel>
void copies(Tally& tally, Kernel kernel, Index to, Index from, Index bytes, int times) {
  const Index all = bytes * times, edge = 64;
  const DeviceArray target{gpus() - 1, std::size_t(all + 3 * edge)};  // a peer's, if there is one
  const DeviceArray source{0, std::size_t(all + edge)};
  std::vector<unsigned char> in(std::size_t(all + edge)), out(std::size_t(all + 3 * edge), marker);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = (unsigned char)(i * 7 + i / 251 + 1);
  source.put(in.data(), in.size());
  target.put(out.data(), out.size());
  char* const at = target.data() + edge + to;
  kernel<<<1, lanes, sizeof(detail::BulkCopyMemory)>>>(at, source.data() + from, bytes, times);
  MUST(cudaGetLastError());
  MUST(cudaDeviceSynchronize());
  target.get(out.data(), out.size());
  Index wrong = 0;
  for (Index i = 0; i < Index(out.size()); ++i) {
    const Index n = i - edge - to;
    const bool inside = n >= 0 && n < all;
    wrong += out[std::size_t(i)] != (inside ? in[std::size_t(n + from)] : marker);
  }
  tally.check(wrong == 0, "%lld bytes from %lld to %lld, %d times: %lld are wrong",
              (long long)bytes, (long long)from, (long long)to, times, (long long)wrong);
}
}  // namespace

int main() {
  for (int device = 0; device < gpus(); ++device) {
    MUST(cudaSetDevice(device));
    for (const auto kernel : {&copy_long, &copy_turns}) {
      MUST(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                sizeof(detail::BulkCopyMemory)));
    }
  }
  Tally tally;
  for (const Index piece : {Index{sizeof(detail::BusyBulkCopy::Shared::piece[0])},
                            Index{sizeof(detail::IdleBulkCopy::Shared::piece[0])},
                            Index{sizeof(detail::TurnsBulkCopies::Shared::piece[0])}}) {
    for (const Index bytes : {Index{1000}, (Index{128} << 10) - 1, Index{128} << 10, piece * 24,
                              piece * 24 + 16, piece * 25 - 16, Index{1000003}}) {
      for (const Index to : {0, 1, 8, 15, 16}) {
        for (const Index from : {to, Index{0}, Index{5}}) {
          copies(tally, copy_long, to, from, bytes, 6);
          copies(tally, copy_turns, to, from, bytes, 6);
        }
      }
    }
  }
  return tally.result("long runs");
}
