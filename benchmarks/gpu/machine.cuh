#pragma once

// GPUs of one process, with functions to check and time one launch on all of them.
#include <ccl/types/word.hpp>

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

#include "must.cuh"

namespace ccl::bench {

/// Kind of collective, as far as a check depends on it.
enum class Shape { all_reduce, all_gather, reduce_scatter };

/// Returns a whole number that is small enough for equal bits in any order of summation.
__device__ inline unsigned input(int rank, Index i, unsigned seed) {
  unsigned h = unsigned(i) * 2654435761u ^ (unsigned(rank) * 0x9E3779B9u + seed * 0x85EBCA6Bu);
  h ^= h >> 16, h *= 0x7feb352du, h ^= h >> 15, h *= 0x846ca68bu, h ^= h >> 16;
  return h & 0xfffffu;
}
static __global__ void fill(float* in, Index in_count, float* out, Index out_count, int rank,
                            unsigned seed) {
  const Index most = in_count > out_count + 16 ? in_count : out_count + 16;
  for (Index i = blockIdx.x * Index{blockDim.x} + threadIdx.x; i < most;
       i += Index{gridDim.x} * blockDim.x) {
    if (i < in_count) in[i] = float(input(rank, i, seed));
    if (i < out_count + 16) out[i] = i < out_count ? -1.f : -2.f;
  }
}
/// Verifies the output, and the 16 elements after its end, which must be as `fill` left them.
static __global__ void verify(const float* out, Index out_count, Index share, Shape shape, int rank,
                              int ranks, unsigned seed, unsigned* wrong) {
  unsigned bad = 0;
  for (Index i = blockIdx.x * Index{blockDim.x} + threadIdx.x; i < out_count + 16;
       i += Index{gridDim.x} * blockDim.x) {
    float want = -2.f;
    if (i < out_count && shape == Shape::all_gather) {
      want = float(input(int(i / share), i % share, seed));
    } else if (i < out_count) {
      const Index at = shape == Shape::all_reduce ? i : rank * share + i;
      unsigned sum = 0;
      for (int r = 0; r < ranks; ++r) sum += input(r, at, seed);
      want = float(sum);
    }
    bad += out[i] != want;
  }
  if (bad != 0) atomicAdd(wrong, bad);
}
/// Blocks a stream until the host has queued all work on all streams. Gives up after seconds.
static __global__ void gate(const volatile unsigned* opened, unsigned number) {
  for (unsigned n = 0; int(*opened - number) < 0 && n < (1u << 21); ++n) {
  }
}

struct Gpu {
  float *in, *out;
  unsigned* wrong;
  cudaStream_t stream;
  cudaEvent_t begin, end;
  unsigned* gate;
};

/// Function that queues one launch on all GPUs' streams.
using Launch = std::function<void()>;

class Machine {
 public:
  /// Creates the ranks. With fewer GPUs than `ranks`, several share one.
  Machine(int ranks, Index bytes) : gpu_(ranks) {
    MUST(cudaHostAlloc(&opened_, 4096, cudaHostAllocPortable | cudaHostAllocMapped));
    *opened_ = 0;
    for (int g = 0; g < std::min(ranks, devices()); ++g) {
      use(g);
      for (int p = 0; p < std::min(ranks, devices()); ++p) {
        if (p != g) MUST(cudaDeviceEnablePeerAccess(p, 0));
      }
    }
    for (int g = 0; g < ranks; ++g) {
      Gpu& gpu = gpu_[g];
      gpu.in = static_cast<float*>(zeroed(g, bytes + 4096));
      gpu.out = static_cast<float*>(zeroed(g, bytes + 4096));
      gpu.wrong = static_cast<unsigned*>(zeroed(g, 64));
      MUST(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking));
      MUST(cudaEventCreate(&gpu.begin));
      MUST(cudaEventCreate(&gpu.end));
      MUST(cudaHostGetDevicePointer(&gpu.gate, opened_, 0));
    }
    sync();
  }
  static int devices() {
    int count = 0;
    MUST(cudaGetDeviceCount(&count));
    return count;
  }
  static void use(int g) { MUST(cudaSetDevice(g % devices())); }
  static void* zeroed(int g, Index bytes) {
    void* p;
    use(g);
    MUST(cudaMalloc(&p, size_t(bytes)));
    MUST(cudaMemset(p, 0, size_t(bytes)));
    return p;
  }
  void sync() const {
    for (int g = 0; g < gpus(); ++g) {
      use(g);
      MUST(cudaDeviceSynchronize());
    }
  }
  int gpus() const { return int(gpu_.size()); }
  Gpu& operator[](int g) { return gpu_[g]; }

  /// Runs several launches in a row on random inputs and poisoned outputs. Returns true if every
  /// element of every GPU is correct every time. `bytes` is the size of the whole message.
  bool check(Shape shape, Index bytes, int rounds, const Launch& run) {
    const Index count = bytes / Index{sizeof(float)}, share = count / gpus();
    const Index in = shape == Shape::all_gather ? share : count;
    const Index out = shape == Shape::reduce_scatter ? share : count;
    const int blocks = int(std::min<Index>(1056, count / 512 + 1));
    for (int r = 0; r < rounds; ++r) {
      ++seed_;
      for (int g = 0; g < gpus(); ++g) {
        use(g);
        fill<<<blocks, 512, 0, gpu_[g].stream>>>(gpu_[g].in, in, gpu_[g].out, out, g, seed_);
      }
      run();
      for (int g = 0; g < gpus(); ++g) {
        use(g);
        verify<<<blocks, 512, 0, gpu_[g].stream>>>(gpu_[g].out, out, share, shape, g, gpus(), seed_,
                                                   gpu_[g].wrong);
      }
    }
    sync();
    MUST(cudaGetLastError());
    unsigned wrong = 0;
    for (int g = 0; g < gpus(); ++g) {
      unsigned w;
      use(g);
      MUST(cudaMemcpy(&w, gpu_[g].wrong, sizeof w, cudaMemcpyDeviceToHost));
      MUST(cudaMemset(gpu_[g].wrong, 0, sizeof w));
      wrong += w;
    }
    return wrong == 0;
  }

  /// Returns the microseconds of one launch among `launches` of a graph: slowest GPU, median of
  /// `replays`.
  double time(int launches, int replays, const Launch& run) {
    std::vector<cudaGraphExec_t> graph(gpus());
    for (int g = 0; g < gpus(); ++g) {
      use(g);
      MUST(cudaStreamBeginCapture(gpu_[g].stream, cudaStreamCaptureModeThreadLocal));
    }
    for (int k = 0; k < launches; ++k) run();
    std::vector<cudaGraph_t> captured(gpus());
    for (int g = 0; g < gpus(); ++g) {
      use(g);
      MUST(cudaStreamEndCapture(gpu_[g].stream, &captured[g]));
    }
    for (int g = 0; g < gpus(); ++g) {
      use(g);
      MUST(cudaGraphInstantiate(&graph[g], captured[g], 0));
      MUST(cudaGraphDestroy(captured[g]));
      MUST(cudaGraphUpload(graph[g], gpu_[g].stream));
      MUST(cudaStreamSynchronize(gpu_[g].stream));
    }
    std::vector<float> times;
    for (int r = 0; r <= replays; ++r) {
      ++number_;
      for (int g = 0; g < gpus(); ++g) {
        use(g);
        gate<<<1, 1, 0, gpu_[g].stream>>>(gpu_[g].gate, number_);
        MUST(cudaEventRecord(gpu_[g].begin, gpu_[g].stream));
        MUST(cudaGraphLaunch(graph[g], gpu_[g].stream));
        MUST(cudaEventRecord(gpu_[g].end, gpu_[g].stream));
      }
      __sync_synchronize();
      *const_cast<volatile unsigned*>(opened_) = number_;
      float slowest = 0;
      for (int g = 0; g < gpus(); ++g) {
        use(g);
        MUST(cudaStreamSynchronize(gpu_[g].stream));
        float ms;
        MUST(cudaEventElapsedTime(&ms, gpu_[g].begin, gpu_[g].end));
        slowest = std::max(slowest, ms);
      }
      if (r > 0) times.push_back(slowest);
    }
    for (cudaGraphExec_t g : graph) MUST(cudaGraphExecDestroy(g));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2] * 1e3 / launches;
  }

 private:
  std::vector<Gpu> gpu_;
  unsigned* opened_;
  unsigned number_ = 0, seed_ = 0;
};

inline const char* name(Shape shape) {
  return shape == Shape::all_reduce   ? "all_reduce"
         : shape == Shape::all_gather ? "all_gather"
                                      : "reduce_scatter";
}

/// Checks, times and checks again; prints one line of JSON. `plan` holds more fields, each with a
/// leading comma. Returns true if all results were correct.
inline bool report(Machine& machine, const char* lib, Shape shape, Index bytes, const char* plan,
                   const Launch& run) {
  bool ok = machine.check(shape, bytes, bytes < (Index{64} << 20) ? 3 : 2, run);
  double us = 0;
  const Index mib = Index{1} << 20;
  const int launches = bytes < 16 * mib ? 50 : bytes < 512 * mib ? 20 : 10;
  if (ok) {
    us = machine.time(launches, bytes < mib ? 9 : bytes < 64 * mib ? 5 : 3, run);
    ok = machine.check(shape, bytes, 1, run);
  }
  const int g = machine.gpus();
  const double steps = double(g - 1) / g * (shape == Shape::all_reduce ? 2 : 1);
  std::printf(
      "{\"lib\":\"%s\",\"op\":\"%s\",\"gpus\":%d,\"bytes\":%lld%s,\"launches\":%d,"
      "\"us\":%.3f,\"busbw_gbs\":%.2f,\"ok\":%s}\n",
      lib, name(shape), g, static_cast<long long>(bytes), plan, launches, us,
      us > 0 ? double(bytes) * steps / us / 1e3 : 0., ok ? "true" : "false");
  std::fflush(stdout);
  return ok;
}

}  // namespace ccl::bench
