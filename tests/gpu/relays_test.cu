// All-to-all between GPUs of two hosts through the rank on the receiver's rail, as Auto chooses it.
#include <vector>

#include "communicator.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

void relayed(const Communicator& comm) {
  const auto chosen = must(Collective<AllToAll>::create(comm));
  const std::string small = chosen.plan(64).composition;
  check(small.starts_with("Hierarchical-Direct"), "rank %d takes %s for small messages",
        comm.rank(), small.c_str());
  const std::string large = chosen.plan(64 << 20).composition;
  check(!large.starts_with("Hierarchical"), "rank %d takes %s for large messages", comm.rank(),
        large.c_str());
  cudaStream_t stream{};
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const int ranks = comm.ranks();
  for (const Index each : {Index{1}, Index{3}, Index{64}, Index{1000}, Index{1} << 16}) {
    Buffer<float> in{each * ranks, 0}, out{each * ranks, 0};
    const auto sent = [&](int from, int to, Index i) { return value(from, i) + 8 * to; };
    in.fill([&](Index i) { return sent(comm.rank(), int(i / each), i % each); }, stream);
    const auto right = [&](Index i) { return sent(int(i / each), comm.rank(), i % each); };
    for (int call = 0; call < 3; ++call) {
      must(chosen(in.get(), out.get(), each, stream));
      check(out.wrong(each * ranks, right, stream) == 0, "%s, %ld for each, rank %d",
            chosen.plan(each * ranks * 4).composition.c_str(), long(each), comm.rank());
    }
  }
  // Whatever the size.
  const auto named = must(
      Collective<AllToAll, Hierarchical<With<Direct, Simple>, Pairwise>, Simple>::create(comm));
  const Index each = 100'000;
  Buffer<int> in{each * ranks, 0}, out{each * ranks, 0};
  in.fill([&](Index i) { return double(comm.rank() * each * ranks + i); }, stream);
  must(named(in.get(), out.get(), each, stream));
  const auto right = [&](Index i) {
    return double(i / each * each * ranks + comm.rank() * each + i % each);
  };
  check(out.wrong(each * ranks, right, stream) == 0, "%s, rank %d", named.name().c_str(),
        comm.rank());
  MUST_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  // Two ranks on each of two hosts share GPUs if there are too few, and wait for each other. No
  // kernel may be loaded while one waits.
  ::setenv("CCL_TIMEOUT", "20", 0);
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  ::setenv("CCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  as_processes(std::max(4, ranks.count), Config{}, relayed, 2);
  return result("Relays", ranks.gpus);
}
