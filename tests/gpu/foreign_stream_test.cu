// A call on a stream of another device is refused before anything is launched: CUDA would run the
// kernel on that device. The communicator stays well, so the rank can make the call again.
#include "late.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr Index count = 1 << 16;

template <class Algo, class Proto>
void refuses_foreign_stream(const Communicator& whole) {
  const Communicator comm = with_timeout(whole, 60);
  const auto sum = must(Collective<AllReduce, Algo, Proto, DefaultTransport>::create(comm));
  cudaStream_t stream, elsewhere;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  MUST_CUDA(cudaSetDevice(comm.device() == 0 ? 1 : 0));
  MUST_CUDA(cudaStreamCreateWithFlags(&elsewhere, cudaStreamNonBlocking));
  MUST_CUDA(cudaSetDevice(comm.device()));
  Buffer<float> in{count, 0}, out{count, 0};
  in.fill([](Index) { return 1.0; }, stream);
  for (int round = 0; round < 3; ++round) {
    if (comm.rank() == comm.ranks() - 1) {
      const auto done = sum(in.get(), out.get(), count, Sum{}, elsewhere);
      check(!done && done.error().code == Errc::invalid_argument,
            "%s: a stream of another device: %s", sum.name().c_str(),
            done ? "well" : done.error().message().c_str());
    }
    must(sum(in.get(), out.get(), count, Sum{}, stream));
    drain(stream, 20);
    const Index wrong = out.wrong(
        count, [&](Index) { return double(comm.ranks()); }, stream);
    check(wrong == 0, "%s: %lld wrong elements after a refused call", sum.name().c_str(),
          static_cast<long long>(wrong));
  }
  MUST_CUDA(cudaStreamDestroy(stream));
  MUST_CUDA(cudaStreamDestroy(elsewhere));
  must(whole.barrier());
}

void suite(Communicator comm) {
  refuses_foreign_stream<OneShot, LL128>(comm);
  refuses_foreign_stream<Ring, LL128>(comm);
  refuses_foreign_stream<Ring, Simple>(comm);
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  if (ranks.gpus < 2) {
    std::printf("SKIP: fewer than two GPUs\n");
    return 77;
  }
  ::setenv("CCL_DEBUG", "NONE", 0);
  both_ways(ranks, {}, suite);
  return result("Foreign streams", ranks.gpus);
}
