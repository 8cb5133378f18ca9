// Rings and exchanges of GPUs over a network plug-in, which moves host memory, and a function of
// the plug-in that never returns. Ranks are threads, because one library notes the faults of both.
#include <ccl/transport/plugin.hpp>

#include "late.cuh"
#include "support/net_plug_in.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr Index big = 300'000;

template <class Proto>
void sums(const Communicator& comm, cudaStream_t stream) {
  const auto call = must(Collective<AllReduce, Ring, Proto, PluginTransport>::create(comm));
  for (const Index count : {Index{1}, Index{1000}, big}) {
    Buffer<float> in{count, 0}, out{count, 0};
    in.fill([&](Index i) { return value(comm.rank(), i); }, stream);
    for (int n = 0; n < 3; ++n) must(call(in.get(), out.get(), count, Sum{}, stream));
    drain(stream, 30);
    check(out.wrong(
              count, [&](Index i) { return sum_of(comm.ranks(), i); }, stream) == 0,
          "%s: %ld elements, rank %d", call.name().c_str(), long(count), comm.rank());
  }
}

void swaps(const Communicator& comm, cudaStream_t stream) {
  const auto call = must(Collective<AllToAll, Pairwise, Simple, PluginTransport>::create(comm));
  const Index each = 10'000;
  Buffer<float> in{each * comm.ranks(), 0}, out{each * comm.ranks(), 0};
  in.fill([&](Index i) { return value(comm.rank(), i); }, stream);
  must(call(in.get(), out.get(), each, stream));
  drain(stream, 30);
  const auto sent = [&](Index i) { return value(int(i / each), comm.rank() * each + i % each); };
  check(out.wrong(each * comm.ranks(), sent, stream) == 0, "AllToAll, rank %d", comm.rank());
}

void carried(const Communicator& comm) {
  cudaStream_t stream{};
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  sums<Simple>(comm, stream);
  sums<LL128>(comm, stream);
  swaps(comm, stream);
  MUST_CUDA(cudaStreamDestroy(stream));
}

/// Calls until one fails: `function` of the plug-in is held from some call on.
void held(const Communicator& comm, const TestNet& net, const char* function) {
  cudaStream_t stream{};
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  {
    const auto call = must(Collective<AllReduce, Ring, Simple, PluginTransport>::create(comm));
    Buffer<float> in{big, 0}, out{big, 0};
    must(call(in.get(), out.get(), big, Sum{}, stream));
    drain(stream, 30);
    must(comm.barrier());
    if (comm.rank() == 0) net.fail(function, 100, TestNet::held);
    must(comm.barrier());
    const double begin = now_s();
    while (now_s() - begin < 30 && call(in.get(), out.get(), big, Sum{}, stream)) {
      drain(stream, 30);
    }
    const auto status = failure(comm, 5);
    const std::string text = status ? "no failure" : status.error().message();
    check(!status && now_s() - begin < 20, "%s held, rank %d: %s", function, comm.rank(),
          text.c_str());
    check(text.find(std::string{function} + " of the network plug-in") != std::string::npos,
          "%s held: %s", function, text.c_str());
    if (comm.rank() == 0) std::printf("held: %.1f s: %s\n", now_s() - begin, text.c_str());
    drain(stream, 10);
  }
  MUST_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_DEBUG", "NONE", 0);
  for (const int version : {12, 9}) {
    const std::string path = std::string{CCL_TEST_NET} + std::to_string(version) + ".so";
    ::setenv("CCL_NET_PLUGIN", path.c_str(), 1);
    as_threads(ranks.count, {}, carried);
  }
  const std::string path = std::string{CCL_TEST_NET} + "12.so";
  ::setenv("CCL_NET_PLUGIN", path.c_str(), 1);
  Config config;
  config.timeout_s = 6;
  for (const char* const function : {"isend", "irecv", "test"}) {
    as_threads(ranks.count, config, [&](const Communicator& comm) {
      static const TestNet net{12};
      held(comm, net, function);
    });
  }
  return result("Network plug-in", ranks.gpus);
}
