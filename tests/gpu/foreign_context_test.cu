// A thread may have a context of its own (cuCtxCreate). Compositions then load their kernels into
// the GPU's primary context and launch there. A call on a stream of the other context is refused
// before anything is launched, and leaves no error behind.
#include <cuda.h>

#include "late.cuh"
#include <dlfcn.h>

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr Index count = 1 << 16;

/// Makes a context current for a time.
class OtherContext {
 public:
  explicit OtherContext(int device) {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
    using Create = CUresult (*)(CUcontext*, unsigned, CUdevice);
    const auto create = reinterpret_cast<Create>(::dlsym(driver, "cuCtxCreate_v2"));
    destroy_ = reinterpret_cast<Change>(::dlsym(driver, "cuCtxDestroy_v2"));
    push_ = reinterpret_cast<Change>(::dlsym(driver, "cuCtxPushCurrent_v2"));
    pop_ = reinterpret_cast<Pop>(::dlsym(driver, "cuCtxPopCurrent_v2"));
    check(create(&context_, 0, device) == CUDA_SUCCESS, "no context on device %d", device);
    MUST_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    leave();
  }
  ~OtherContext() {
    enter();
    MUST_CUDA(cudaStreamDestroy(stream_));
    leave();
    check(destroy_(context_) == CUDA_SUCCESS, "the context stays");
  }
  OtherContext(const OtherContext&) = delete;
  OtherContext& operator=(const OtherContext&) = delete;
  void enter() const { check(push_(context_) == CUDA_SUCCESS, "the context is not entered"); }
  void leave() const {
    CUcontext left = nullptr;
    check(pop_(&left) == CUDA_SUCCESS && left == context_, "another context was current");
  }
  cudaStream_t stream() const { return stream_; }

 private:
  using Change = CUresult (*)(CUcontext);
  using Pop = CUresult (*)(CUcontext*);
  Change destroy_ = nullptr, push_ = nullptr;
  Pop pop_ = nullptr;
  CUcontext context_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

template <class Algo, class Proto>
void calls(const Communicator& comm, const OtherContext& other) {
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Buffer<float> in{count, 0}, out{count, 0};
  in.fill([](Index) { return 1.0; }, stream);
  {
    other.enter();
    const auto sum = must(Collective<AllReduce, Algo, Proto, DefaultTransport>::create(comm));
    const auto refused = sum(in.get(), out.get(), count, Sum{}, other.stream());
    check(!refused && refused.error().code == Errc::invalid_argument,
          "%s: a stream of another context: %s", sum.name().c_str(),
          refused ? "well" : refused.error().message().c_str());
    check(cudaGetLastError() == cudaSuccess, "%s leaves an error", sum.name().c_str());
    must(sum(in.get(), out.get(), count, Sum{}, stream));
    other.leave();
    drain(stream, 20);
    const Index wrong = out.wrong(
        count, [&](Index) { return double(comm.ranks()); }, stream);
    check(wrong == 0, "%s: %lld wrong elements", sum.name().c_str(), static_cast<long long>(wrong));
  }
  MUST_CUDA(cudaStreamDestroy(stream));
}

void suite(Communicator whole) {
  const Communicator comm = with_timeout(whole, 60);
  const OtherContext other{comm.device()};
  must(comm.barrier());
  calls<OneShot, LL128>(comm, other);
  calls<Ring, Simple>(comm, other);
  must(whole.barrier());  // contexts end when no kernel waits
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_DEBUG", "NONE", 0);
  both_ways(ranks, {}, suite);
  return result("Foreign contexts", ranks.gpus);
}
