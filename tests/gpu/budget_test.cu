// Compositions with the minimum of memory, and slots that are too small for a tile.
#include "communicator.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

/// Element of 24 bytes: its cells are wider than those of numbers.
struct Wide {
  double a = 0, b = 0, c = 0;
  bool operator==(const Wide&) const = default;
};
struct AddWide {
  static constexpr bool commutes = true;
  CCL_HD Wide operator()(const Wide& x, const Wide& y) const {
    return {x.a + y.a, x.b + y.b, x.c + y.c};
  }
};

template <class Call>
void sums(const char* name, const Communicator& comm, const Call& call, cudaStream_t stream) {
  for (const Index count : {1, 1000, 100'000}) {
    Buffer<float> data{count, 0};
    data.fill([&](Index i) { return value(comm.rank(), i); }, stream);
    must(call(data.get(), data.get(), count, Sum{}, stream));
    const long wrong = data.wrong(
        count,
        [&](Index i) {
          double sum = 0;
          for (int r = 0; r < comm.ranks(); ++r) sum += value(r, i);
          return sum;
        },
        stream);
    check(wrong == 0, "%s: %ld of %lld wrong", name, wrong, static_cast<long long>(count));
  }
}

template <class Algo, class Proto>
void shrunk(const char* name, const Communicator& comm, cudaStream_t stream) {
  const auto call = must(Collective<AllReduce, Algo, Proto>::create(comm));
  check(call.plan().slot_bytes < 64 << 10, "%s: slots did not shrink", name);
  sums(name, comm, call, stream);
}

void suite(Communicator comm) {
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  shrunk<Ring, Simple>("Ring, Simple", comm, stream);
  // The 128 lanes of a group move 2048 bytes at once, 4096 of wide elements.
  Plan plan = must(Collective<AllReduce, Ring, Simple>::create(comm)).plan();
  plan.channels = 2;
  plan.slot_bytes = 1024;
  const auto small = must(Collective<AllReduce, Ring, Simple>::create(comm, plan));
  Buffer<float> data{64, 0};
  const auto refused = small(data.get(), data.get(), 64, Sum{}, stream);
  check(!refused && refused.error().code == Errc::over_budget, "slots without a tile were used");
  plan.slot_bytes = 2048;
  const auto least = must(Collective<AllReduce, Ring, Simple>::create(comm, plan));
  sums("the least plan", comm, least, stream);
  Wide* wide = nullptr;
  MUST_CUDA(cudaMalloc(&wide, 64 * sizeof(Wide)));
  MUST_CUDA(cudaMemsetAsync(wide, 0, 64 * sizeof(Wide), stream));
  const auto too_wide = least(wide, wide, 64, AddWide{}, stream);
  check(!too_wide && too_wide.error().code == Errc::over_budget, "half a tile was used");
  plan.slot_bytes = 16384;
  const auto enough = must(Collective<AllReduce, Ring, Simple>::create(comm, plan));
  must(enough(wide, wide, 64, AddWide{}, stream));
  MUST_CUDA(cudaStreamSynchronize(stream));
  MUST_CUDA(cudaFree(wide));
  MUST_CUDA(cudaStreamDestroy(stream));
}

void by_warps(Communicator comm) {
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  shrunk<Ring, LL>("Ring, LL", comm, stream);
  MUST_CUDA(cudaStreamDestroy(stream));
}
void by_lines(Communicator comm) {
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  shrunk<Ring, LL128>("Ring, LL128", comm, stream);
  MUST_CUDA(cudaStreamDestroy(stream));
}
}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_TIMEOUT", "20", 0);
  Config config;
  config.memory_budget_bytes = Index{20} << 20;
  as_threads(ranks.count, config, suite);
  as_processes(ranks.count, config, suite);
  config.memory_budget_bytes = Index{18} << 20;
  as_processes(ranks.count, config, by_warps);
  as_processes(ranks.count, config, by_lines);
  return result("Budget", ranks.gpus);
}
