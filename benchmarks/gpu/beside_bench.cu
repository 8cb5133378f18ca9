// Delays by a kernel that waits on another stream, like one that waits for a peer. It measures the
// delay of the next launch, and the time of the call. It needs one GPU. Launches are delayed by the
// loading of a kernel, and by waits for the whole context. Such waits hold the driver's lock, which
// launches of other threads need.
#include <chrono>
#include <functional>
#include <thread>

#include "machine.cuh"

using namespace ccl::bench;

namespace {

constexpr double held_s = 0.3;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

__global__ void hold(volatile int* begun, long long ns) {
  *begun = 1;
  __threadfence_system();
  long long begin = 0, now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (now - begin < ns);
}
/// Kernel with a number, and `Locals` bytes of local memory for each thread.
template <int Number, int Locals = 0>
__global__ void sign(volatile int* seen, int n) {
  volatile char own[Locals + 1];
  for (int i = 0; i < n; ++i) own[(i * 31) % (Locals + 1)] = char(i);
  *seen = 1 + (Locals > 0 && own[n % (Locals + 1)] == 77) + 0 * Number;
  __threadfence_system();
}

struct Bench {
  volatile int *begun = nullptr, *seen = nullptr;
  cudaStream_t held, other;
  char* memory = nullptr;
  std::vector<char> plain = std::vector<char>(1 << 22);

  Bench() {
    MUST(cudaHostAlloc(const_cast<int**>(&begun), 4096, 0));
    seen = begun + 512;
    for (auto* stream : {&held, &other}) {
      MUST(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    }
    MUST(cudaMalloc(&memory, plain.size()));
    hold<<<1, 1, 0, held>>>(begun, 1);
    known();
    MUST(cudaDeviceSynchronize());
  }
  void known() { sign<0><<<1, 1, 0, other>>>(seen, 0); }

  /// Runs `first` on a thread of its own, and then `then` on another.
  void row(const char* what, std::function<void()> first, std::function<void()> then) {
    *begun = 0;
    *seen = 0;
    hold<<<32, 512, 0, held>>>(begun, static_cast<long long>(held_s * 1e9));
    MUST(cudaGetLastError());
    while (*begun == 0) std::this_thread::yield();
    const double start = now_s();
    double returned = 0, launched = 0, seen_at = 0;
    std::thread one{[&] {
      first();
      returned = now_s() - start;
    }};
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    std::thread two{[&] {
      const double begin = now_s();
      then();
      launched = now_s() - begin;
    }};
    while (*seen == 0) std::this_thread::yield();
    seen_at = now_s() - start - 0.02;
    one.join();
    two.join();
    MUST(cudaDeviceSynchronize());
    std::printf("{\"meanwhile\":\"%s\",\"call_ms\":%.1f,\"launch_ms\":%.1f,\"begins_ms\":%.1f}\n",
                what, returned * 1e3, launched * 1e3, seen_at * 1e3);
    std::fflush(stdout);
  }
  /// Runs a loaded kernel after `first`.
  void row(const char* what, std::function<void()> first) {
    row(what, std::move(first), [this] { known(); });
  }
};

}  // namespace

int main() {
  Bench b;
  void* given = nullptr;
  MUST(cudaMalloc(&given, 1 << 22));
  void* pinned = nullptr;
  MUST(cudaHostAlloc(&pinned, 1 << 22, 0));
  void* pooled = nullptr;
  MUST(cudaMallocAsync(&pooled, 1 << 22, b.other));
  b.row("nothing", [] {});
  b.row("cudaMalloc", [] {
    void* got = nullptr;
    MUST(cudaMalloc(&got, 1 << 22));
  });
  b.row("cudaHostAlloc", [] {
    void* got = nullptr;
    MUST(cudaHostAlloc(&got, 1 << 22, 0));
  });
  b.row("cudaHostRegister", [&] { MUST(cudaHostRegister(b.plain.data(), b.plain.size(), 0)); });
  b.row("cudaHostUnregister", [&] { MUST(cudaHostUnregister(b.plain.data())); });
  b.row("cudaFree", [&] { MUST(cudaFree(given)); });
  b.row("cudaFreeHost", [&] { MUST(cudaFreeHost(pinned)); });
  b.row("cudaFreeAsync", [&] { MUST(cudaFreeAsync(pooled, b.other)); });
  b.row("cudaDeviceSynchronize", [] { MUST(cudaDeviceSynchronize()); });
  b.row("a stream comes and goes", [] {
    cudaStream_t stream;
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaStreamDestroy(stream));
  });
  const auto behind = [&] {
    MUST(cudaMemcpyAsync(b.plain.data(), b.memory, b.plain.size(), cudaMemcpyDeviceToHost, b.held));
  };
  b.row("a copy to plain memory behind the kernel", behind);
  b.row("the same, and one before the launch", behind, [&] {
    MUST(cudaMemcpyAsync(b.plain.data(), b.memory, 4096, cudaMemcpyDeviceToHost, b.other));
    b.known();
  });
  b.row(
      "a kernel launched for the first time", [] {},
      [&] { sign<1><<<1, 1, 0, b.other>>>(b.seen, 0); });
  cudaFuncAttributes asked{};
  MUST(cudaFuncGetAttributes(&asked, sign<2>));
  b.row(
      "the same, loaded before", [] {}, [&] { sign<2><<<1, 1, 0, b.other>>>(b.seen, 0); });
  b.row("a first launch on a third stream", [&] {
    cudaStream_t stream;
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    sign<3><<<1, 1, 0, stream>>>(b.begun, 0);
  });
  MUST(cudaFuncGetAttributes(&asked, sign<4, 512>));
  b.row(
      "512 bytes of locals, loaded before", [] {},
      [&] { sign<4, 512><<<1, 1, 0, b.other>>>(b.seen, 9); });
  MUST(cudaFuncGetAttributes(&asked, sign<5, 4096>));
  b.row(
      "4096 bytes of locals, loaded before", [] {},
      [&] { sign<5, 4096><<<1, 1, 0, b.other>>>(b.seen, 9); });
  b.row(
      "the same again", [] {}, [&] { sign<5, 4096><<<1, 1, 0, b.other>>>(b.seen, 9); });
  for (const int streams : {6, 12, 40}) {
    std::vector<cudaStream_t> all(static_cast<std::size_t>(streams));
    for (auto& stream : all) MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaEvent_t event;
    MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    b.row((std::to_string(streams) + " streams wait for it").c_str(), [&] {
      MUST(cudaEventRecord(event, b.held));
      for (auto& stream : all) {
        MUST(cudaStreamWaitEvent(stream, event, 0));
        sign<0><<<1, 1, 0, stream>>>(b.begun, 0);
      }
    });
    for (auto& stream : all) MUST(cudaStreamDestroy(stream));
  }
}
