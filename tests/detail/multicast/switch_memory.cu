// Every load of NVLink multicast that reduces. Compiled, never run.
#include <ccl/detail/multicast/switch_memory.cuh>

#include <cstdint>

using namespace ccl;
using detail::SwitchMulticast;
using std::int32_t, std::int64_t, std::uint32_t, std::uint64_t;

template <class F, class... T>
__device__ void load_each(const SwitchMulticast& memory, Packet* to) {
  int i = 0;
  ((to[i++] = memory.load_reduced<F, T>(i)), ...);
}
__global__ void floats(SwitchMulticast memory, Packet* to) {
  load_each<Sum, float, double, float16, bfloat16>(memory, to);
  load_each<Min, float16, bfloat16>(memory, to + 4);
  load_each<Max, float16, bfloat16>(memory, to + 6);
}
__global__ void integers(SwitchMulticast memory, Packet* to) {
  load_each<Sum, int32_t, uint64_t, int64_t>(memory, to);
  load_each<Min, uint32_t, int32_t, uint64_t, int64_t>(memory, to + 3);
  load_each<Max, uint32_t, int32_t, uint64_t, int64_t>(memory, to + 7);
}
__global__ void stores(SwitchMulticast memory, Packet value) {
  memory.store(1, value);
  memory.fence();
  memory.store_release(7, value.word[0]);
}
