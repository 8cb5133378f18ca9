// Calls of one communicator run in order on any streams, even if the streams of earlier calls are
// destroyed, or if the thread is at another device than the default stream's.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>

#include "communicator.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

using Number = std::uint64_t;

/// Running product: each call multiplies every element by the number of ranks, modulo 2^64. The
/// result is correct only if each call begins after the previous one has ended.
template <class Call>
void in_order(const char* name, const Communicator& comm, const Call& call, Index count) {
  constexpr int calls = 60;
  Buffer<Number> data{count, 0};
  cudaStream_t first = new_stream();
  std::vector<Number> host(static_cast<std::size_t>(count), 1);
  MUST_CUDA(
      cudaMemcpyAsync(data.get(), host.data(), host.size() * 8, cudaMemcpyHostToDevice, first));
  MUST_CUDA(cudaStreamSynchronize(first));
  Number want = 1;
  for (int i = 0; i < calls; ++i) {
    // A stream is often given the handle of one that was just destroyed.
    cudaStream_t stream = i % 3 == 2 ? first : new_stream();
    must(call(data.get(), data.get(), count, Sum{}, stream));
    want *= Number(comm.ranks());
    if (stream != first) MUST_CUDA(cudaStreamDestroy(stream));
    if (i != calls / 2) continue;
    // In the middle a graph, captured and replayed on streams that do not live on either.
    cudaStream_t capturing = new_stream(), replaying = new_stream();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    MUST_CUDA(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeThreadLocal));
    must(call(data.get(), data.get(), count, Sum{}, capturing));
    MUST_CUDA(cudaStreamEndCapture(capturing, &graph));
    MUST_CUDA(cudaStreamDestroy(capturing));
    MUST_CUDA(cudaGraphInstantiate(&ready, graph, 0));
    for (int replay = 0; replay < 3; ++replay) {
      MUST_CUDA(cudaGraphLaunch(ready, replaying));
      want *= Number(comm.ranks());
    }
    MUST_CUDA(cudaStreamDestroy(replaying));
    MUST_CUDA(cudaDeviceSynchronize());
    MUST_CUDA(cudaGraphExecDestroy(ready));
    MUST_CUDA(cudaGraphDestroy(graph));
  }
  MUST_CUDA(cudaDeviceSynchronize());
  MUST_CUDA(cudaMemcpy(host.data(), data.get(), host.size() * 8, cudaMemcpyDeviceToHost));
  long wrong = 0;
  for (const Number x : host) wrong += x != want;
  check(wrong == 0, "%s: %ld of %lld elements wrong after %d calls on short-lived streams", name,
        wrong, static_cast<long long>(count), calls);
  MUST_CUDA(cudaStreamDestroy(first));
}

/// The same product on the default stream and another in turn, by a thread at another device.
template <class Call>
void from_another_device(const char* name, const Communicator& comm, const Call& call,
                         Index count) {
  constexpr int calls = 20;
  int gpus = 0;
  MUST_CUDA(cudaGetDeviceCount(&gpus));
  Buffer<Number> data{count, 0};
  cudaStream_t stream = new_stream();
  data.fill([](Index) { return 1; }, stream);
  MUST_CUDA(cudaSetDevice((comm.device() + 1) % gpus));
  Number want = 1;
  for (int i = 0; i < calls; ++i) {
    must(call(data.get(), data.get(), count, Sum{}, i % 2 == 0 ? nullptr : stream));
    want *= Number(comm.ranks());
  }
  MUST_CUDA(cudaSetDevice(comm.device()));
  MUST_CUDA(cudaDeviceSynchronize());
  std::vector<Number> host(static_cast<std::size_t>(count));
  MUST_CUDA(cudaMemcpy(host.data(), data.get(), host.size() * 8, cudaMemcpyDeviceToHost));
  const auto wrong = count - std::count(host.begin(), host.end(), want);
  check(wrong == 0, "%s: %ld of %lld elements wrong after %d calls from a thread at device %d",
        name, long(wrong), static_cast<long long>(count), calls, (comm.device() + 1) % gpus);
  MUST_CUDA(cudaStreamDestroy(stream));
}

/// An event that a graph records is not ready from the launch of the graph on, as ccl assumes when
/// it asks whether its last launch has ended.
void event_of_a_replay() {
  cudaStream_t capturing = new_stream(), stream = new_stream();
  cudaEvent_t event = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  MUST_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  MUST_CUDA(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeThreadLocal));
  MUST_CUDA(cudaEventRecordWithFlags(event, capturing, cudaEventRecordExternal));
  MUST_CUDA(cudaStreamEndCapture(capturing, &graph));
  MUST_CUDA(cudaGraphInstantiate(&ready, graph, 0));
  std::atomic<bool> go{false};
  const auto wait = [](void* until) {
    while (!static_cast<std::atomic<bool>*>(until)->load()) std::this_thread::yield();
  };
  MUST_CUDA(cudaLaunchHostFunc(stream, wait, &go));
  MUST_CUDA(cudaGraphLaunch(ready, stream));
  const cudaError_t before = cudaEventQuery(event);
  go = true;
  MUST_CUDA(cudaStreamSynchronize(stream));
  const cudaError_t after = cudaEventQuery(event);
  check(before == cudaErrorNotReady, "event of a replay that waits: %d", int(before));
  check(after == cudaSuccess, "event of a replay that has ended: %d", int(after));
  MUST_CUDA(cudaGraphExecDestroy(ready));
  MUST_CUDA(cudaGraphDestroy(graph));
  MUST_CUDA(cudaEventDestroy(event));
  MUST_CUDA(cudaStreamDestroy(capturing));
  MUST_CUDA(cudaStreamDestroy(stream));
}

void suite(Communicator comm, bool shares_gpu) {
  event_of_a_replay();
  const auto hops = must(Collective<AllReduce, OneShot, LL128>::create(comm));
  const auto ring = must(Collective<AllReduce, Ring, Simple>::create(comm));
  const auto any = must(Collective<AllReduce>::create(comm));
  for (const Index count : {1, 5000, 1'000'000}) {
    in_order("one-shot", comm, hops, count);
    in_order("ring", comm, ring, count);
    in_order("auto", comm, any, count);
    if (shares_gpu) continue;  // threads of one GPU have one default stream
    from_another_device("one-shot", comm, hops, count);
    from_another_device("ring", comm, ring, count);
  }
}
}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_TIMEOUT", "20", 0);
  const Config config;
  both_ways(
      ranks, config, [&ranks](Communicator comm) { suite(comm, ranks.share()); }, 24);
  return result("Order", ranks.gpus);
}
