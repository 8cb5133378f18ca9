// A launch that fails on one rank ends the communicator on all ranks, and the kernels of its peers
// with it. The rank gives a stream of another device.
#include "late.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr Index count = 1 << 16;

template <class Algo, class Proto>
void fails_on_one(const Communicator& whole) {
  const Communicator comm = with_timeout(whole, 60);
  const auto sum = must(Collective<AllReduce, Algo, Proto, DefaultTransport>::create(comm));
  cudaStream_t stream, elsewhere;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  MUST_CUDA(cudaSetDevice(comm.device() == 0 ? 1 : 0));
  MUST_CUDA(cudaStreamCreateWithFlags(&elsewhere, cudaStreamNonBlocking));
  MUST_CUDA(cudaSetDevice(comm.device()));
  Buffer<float> in{count, 0}, out{count, 0};
  in.fill([](Index) { return 1.0; }, stream);
  must(sum(in.get(), out.get(), count, Sum{}, stream));
  drain(stream, 20);
  must(whole.barrier());
  const int last = comm.ranks() - 1;
  const double begin = now_s();
  const auto done =
      sum(in.get(), out.get(), count, Sum{}, comm.rank() == last ? elsewhere : stream);
  if (comm.rank() == last) {
    check(!done && done.error().code == Errc::cuda && done.error().rank == last,
          "%s: a stream of another device: %s", sum.name().c_str(),
          done ? "well" : done.error().message().c_str());
    if (!done) std::printf("%s\n", done.error().message().c_str());
  }
  drain(stream, 20);
  const auto status = failure(comm, 20);
  const int blamed = status ? -1 : comm.rank() == last ? status.error().rank : status.error().peer;
  check(blamed == last, "%s: rank %d has %s", sum.name().c_str(), comm.rank(),
        status ? "no error" : status.error().message().c_str());
  check(now_s() - begin < 20, "%s: it took %.1f s", sum.name().c_str(), now_s() - begin);
  check(!sum(in.get(), out.get(), count, Sum{}, stream), "%s: it launches after a failure",
        sum.name().c_str());
  MUST_CUDA(cudaStreamDestroy(stream));
  MUST_CUDA(cudaStreamDestroy(elsewhere));
  must(whole.barrier());
}

void suite(Communicator comm) {
  fails_on_one<OneShot, LL128>(comm);
  fails_on_one<Ring, LL128>(comm);
  fails_on_one<Ring, Simple>(comm);
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
  return result("Failed launch", ranks.gpus);
}
