// All-reduce, residual and RMSNorm of bf16 rows on the GPUs of one process. `Fused` in one kernel
// is compared with NCCL's all-reduce and a kernel that adds and normalizes, both in one CUDA graph.
// Prints one line of JSON for each case and repetition. Sides take turns, and results are checked
// before and after.
//   fused_bench [path of libnccl.so.2] [elements of a row] [repetitions] [max rows]
#include <ccl/ccl.cuh>

#include <functional>
#include <string>
#include <thread>

#include "machine.cuh"
#include "nccl_at_run_time.hpp"

using namespace ccl;
using namespace ccl::bench;

namespace {
using bf16 = bfloat16;

/// Returns a whole number: sums of 8 ranks and a residual are exact in bf16 in any order.
__device__ float summand(int rank, Index i, unsigned seed) {
  return float(int(input(rank, i, seed) % 17) - 8);
}
__device__ float residual_of(Index i, unsigned seed) {
  return float(int(input(99, i, seed) % 33) - 16);
}
__device__ float weight_of(Index column) {
  return 0.5f + float(column % 5) * 0.25f;
}

struct Rows {
  bf16 *in, *residual, *sum, *out, *weight, *reduced;
};

__global__ void fill_rows(Rows at, Index count, Index length, int rank, unsigned seed) {
  for (Index i = blockIdx.x * Index{blockDim.x} + threadIdx.x; i < count;
       i += Index{gridDim.x} * blockDim.x) {
    at.in[i] = __float2bfloat16(summand(rank, i, seed));
    at.residual[i] = __float2bfloat16(residual_of(i, seed));
    at.sum[i] = at.out[i] = at.reduced[i] = __float2bfloat16(-1000.f);
    if (i < length) at.weight[i] = __float2bfloat16(weight_of(i));
  }
}
/// Verifies rows, one block for each. `slack` is the largest error of a sum; the output must match
/// the stored sum.
__global__ void verify_rows(Rows at, int length, int ranks, unsigned seed, float slack,
                            unsigned* wrong) {
  __shared__ float squares;
  if (threadIdx.x == 0) squares = 0;
  __syncthreads();
  float mine = 0;
  unsigned bad = 0;
  const Index begin = Index{blockIdx.x} * length;
  for (int c = int(threadIdx.x); c < length; c += int(blockDim.x)) {
    float want = residual_of(begin + c, seed);
    for (int r = 0; r < ranks; ++r) want += summand(r, begin + c, seed);
    const float h = __bfloat162float(at.sum[begin + c]);
    bad += !(fabsf(h - want) <= slack);
    mine += h * h;
  }
  atomicAdd(&squares, mine);
  __syncthreads();
  const float scale = rsqrtf(squares / float(length) + 1e-6f);
  for (int c = int(threadIdx.x); c < length; c += int(blockDim.x)) {
    const float want = __bfloat162float(at.sum[begin + c]) * scale * weight_of(c);
    bad += !(fabsf(__bfloat162float(at.out[begin + c]) - want) <= fabsf(want) * 0x1.1p-8f + 1e-20f);
  }
  if (bad != 0) atomicAdd(wrong, bad);
}

/// Kernel after NCCL's all-reduce: one block for each row, 16 bytes for each thread, the row in
/// registers.
__global__ void __launch_bounds__(1024)
    add_rms_norm(const uint4* reduced, const uint4* residual, uint4* sum, uint4* out,
                 const uint4* weight, int packets, float length) {
  __shared__ float of_warp[32];
  constexpr int most = 4;
  float h[most][8], squares = 0;
  const Index begin = Index{blockIdx.x} * packets;
#pragma unroll
  for (int k = 0; k < most; ++k) {
    const int p = int(threadIdx.x) + k * int(blockDim.x);
    if (p >= packets) break;
    const uint4 a = reduced[begin + p], b = residual[begin + p];
    uint4 s;
    const auto* x = reinterpret_cast<const __nv_bfloat162*>(&a);
    const auto* y = reinterpret_cast<const __nv_bfloat162*>(&b);
    auto* z = reinterpret_cast<__nv_bfloat162*>(&s);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 u = __bfloat1622float2(x[i]), v = __bfloat1622float2(y[i]);
      z[i] = __floats2bfloat162_rn(u.x + v.x, u.y + v.y);
      const float2 w = __bfloat1622float2(z[i]);
      h[k][2 * i] = w.x, h[k][2 * i + 1] = w.y;
      squares += w.x * w.x + w.y * w.y;
    }
    sum[begin + p] = s;
  }
  for (int far = 16; far > 0; far /= 2) squares += __shfl_xor_sync(~0u, squares, far);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = squares;
  __syncthreads();
  squares = threadIdx.x % 32 < blockDim.x / 32 ? of_warp[threadIdx.x % 32] : 0;
  for (int far = 16; far > 0; far /= 2) squares += __shfl_xor_sync(~0u, squares, far);
  const float scale = rsqrtf(squares / length + 1e-6f);
#pragma unroll
  for (int k = 0; k < most; ++k) {
    const int p = int(threadIdx.x) + k * int(blockDim.x);
    if (p >= packets) break;
    const uint4 b = weight[p];
    uint4 o;
    const auto* w = reinterpret_cast<const __nv_bfloat162*>(&b);
    auto* z = reinterpret_cast<__nv_bfloat162*>(&o);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 v = __bfloat1622float2(w[i]);
      z[i] = __floats2bfloat162_rn(h[k][2 * i] * scale * v.x, h[k][2 * i + 1] * scale * v.y);
    }
    out[begin + p] = o;
  }
}

struct EdgeSide {
  std::string name;
  float slack;  // largest error of a sum
  std::vector<Rows> at;
  std::function<void(int rows)> run;
};

class Bench {
 public:
  Bench(int gpus, int length, Index max_rows)
      : machine_{gpus, 4096}, length_{length}, bytes_{max_rows * length * 2 + 4096} {
    auto comms = must(Communicator::create_all(gpus));
    comms_.assign(comms.begin(), comms.end());
    for (int g = 0; g < gpus; ++g) plain_.push_back(buffers(g));
  }
  int gpus() const { return machine_.gpus(); }

  template <class Before, class Algo>
  void add_ccl(const char* label, float slack) {
    using All = Collective<AllReduce, Algo, LL128, DefaultTransport>;
    using Op = Fused<Before, All, AddRmsNorm<bf16>>;
    std::vector<std::optional<Op>> made(comms_.size());
    std::vector<std::thread> threads;
    for (int g = 0; g < gpus(); ++g) {
      threads.emplace_back([&, g] {
        MUST(cudaSetDevice(g));
        made[g] = must(Op::create(comms_[g]));
      });
    }
    for (auto& t : threads) t.join();
    sides_.push_back({label, slack, plain_, [this, made](int rows) {
                        for (int g = 0; g < gpus(); ++g) {
                          MUST(cudaSetDevice(g));
                          const Rows& at = plain_[g];
                          must((*made[g])(at.in, rows, length_,
                                          {at.residual, at.sum, at.out, at.weight},
                                          machine_[g].stream));
                        }
                      }});
  }
  void add_nccl(const char* path) {
    nccl_.emplace(path);
    nccl_comms_.resize(comms_.size());
    MUST_NCCL(nccl_->init_all(nccl_comms_.data(), gpus(), nullptr));
    add_nccl("nccl", plain_);
    if (nccl_->alloc == nullptr || nccl_->register_window == nullptr) return;
    auto windows = plain_;
    std::vector<struct ncclWindow*> made(2 * comms_.size());
    for (int g = 0; g < gpus(); ++g) {
      MUST(cudaSetDevice(g));
      MUST_NCCL(nccl_->alloc(reinterpret_cast<void**>(&windows[g].in), size_t(bytes_)));
      MUST_NCCL(nccl_->alloc(reinterpret_cast<void**>(&windows[g].reduced), size_t(bytes_)));
    }
    for (const bool first : {true, false}) {
      MUST_NCCL(nccl_->group_start());
      for (int g = 0; g < gpus(); ++g) {
        MUST(cudaSetDevice(g));
        MUST_NCCL(nccl_->register_window(nccl_comms_[g], first ? windows[g].in : windows[g].reduced,
                                         size_t(bytes_), &made[2 * g + first], Nccl::symmetric));
      }
      MUST_NCCL(nccl_->group_end());
    }
    add_nccl("nccl windows", windows);
  }

  bool measure(int rows, int repetitions) {
    bool all = true;
    for (int n = 0; n < repetitions; ++n) {
      for (EdgeSide& side : sides_) {
        bool ok = check(side, rows);
        const double us = ok ? machine_.time(50, 9, [&] { side.run(rows); }) : 0;
        ok = ok && check(side, rows);
        std::printf(
            "{\"side\":\"%s\",\"gpus\":%d,\"rows\":%d,\"length\":%d,\"bytes\":%lld,"
            "\"repetition\":%d,\"us\":%.3f,\"ok\":%s}\n",
            side.name.c_str(), gpus(), rows, length_, 2LL * rows * length_, n, us,
            ok ? "true" : "false");
        std::fflush(stdout);
        all &= ok;
      }
    }
    return all;
  }

 private:
  Rows buffers(int g) {
    const auto get = [&] { return static_cast<bf16*>(Machine::zeroed(g, bytes_)); };
    return {get(), get(), get(), get(), get(), get()};
  }
  void add_nccl(const char* label, const std::vector<Rows>& at) {
    sides_.push_back({label, 0, at, [this, at](int rows) {
                        MUST_NCCL(nccl_->group_start());
                        for (int g = 0; g < gpus(); ++g) {
                          MUST(cudaSetDevice(g));
                          MUST_NCCL(nccl_->all_reduce(
                              at[g].in, at[g].reduced, size_t(rows) * size_t(length_),
                              Nccl::bfloat16, Nccl::sum, nccl_comms_[g], machine_[g].stream));
                        }
                        MUST_NCCL(nccl_->group_end());
                        for (int g = 0; g < gpus(); ++g) {
                          MUST(cudaSetDevice(g));
                          const auto packets = [](bf16* p) { return reinterpret_cast<uint4*>(p); };
                          const Rows& r = at[g];
                          const int n = length_ / 8, lanes = n < 1024 ? (n + 31) / 32 * 32 : 1024;
                          add_rms_norm<<<rows, lanes, 0, machine_[g].stream>>>(
                              packets(r.reduced), packets(r.residual), packets(r.sum),
                              packets(r.out), packets(r.weight), n, float(length_));
                        }
                      }});
  }
  bool check(EdgeSide& side, int rows) {
    const Index count = Index{rows} * length_;
    for (int round = 0; round < 3; ++round) {
      ++seed_;
      for (int g = 0; g < gpus(); ++g) {
        MUST(cudaSetDevice(g));
        fill_rows<<<264, 512, 0, machine_[g].stream>>>(side.at[g], count, length_, g, seed_);
      }
      side.run(rows);
      for (int g = 0; g < gpus(); ++g) {
        MUST(cudaSetDevice(g));
        verify_rows<<<rows, 512, 0, machine_[g].stream>>>(side.at[g], length_, gpus(), seed_,
                                                          side.slack, machine_[g].wrong);
      }
    }
    machine_.sync();
    MUST(cudaGetLastError());
    unsigned wrong = 0;
    for (int g = 0; g < gpus(); ++g) {
      unsigned w;
      MUST(cudaSetDevice(g));
      MUST(cudaMemcpy(&w, machine_[g].wrong, sizeof w, cudaMemcpyDeviceToHost));
      MUST(cudaMemset(machine_[g].wrong, 0, sizeof w));
      wrong += w;
    }
    return wrong == 0;
  }

  Machine machine_;
  int length_;
  Index bytes_;
  unsigned seed_ = 0;
  std::vector<Communicator> comms_;
  std::vector<Rows> plain_;
  std::optional<Nccl> nccl_;
  std::vector<Nccl::Comm> nccl_comms_;
  std::vector<EdgeSide> sides_;
};

}  // namespace

int main(int argc, char** argv) {
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  setenv("CCL_TIMEOUT", "5", 0);
  int gpus = 0;
  (void)cudaGetDeviceCount(&gpus);
  gpus = gpus >= 8 ? 8 : gpus >= 4 ? 4 : gpus;
  if (gpus < 2) {
    std::printf("SKIP: needs two GPUs, has %d\n", gpus);
    return 77;
  }
  const char* const path = argc > 1 ? argv[1] : "";
  const int length = argc > 2 ? std::atoi(argv[2]) : 7168;
  const int repetitions = argc > 3 ? std::atoi(argv[3]) : 3;
  const int max_rows = argc > 4 ? std::atoi(argv[4]) : 512;
  Bench bench{gpus, length, max_rows};
  bench.add_ccl<AsIs<bf16>, OneShot>("ccl OneShot", 0);
  bench.add_ccl<AsIs<bf16>, TwoShot>("ccl TwoShot", 0);
  // |v| <= 8 in each summand; then the sum, quantized again, and two roundings to bf16.
  const float once = float(gpus) * 0.5f + 1.f;
  bench.add_ccl<QuantizeFp8<bf16>, OneShot>("ccl OneShot fp8", once);
  bench.add_ccl<QuantizeFp8<bf16>, TwoShot>("ccl TwoShot fp8", once + float(gpus) * 8.5f / 16);
  if (*path != 0) bench.add_nccl(path);
  bool ok = true;
  for (int rows = 1; rows <= max_rows; rows *= 2) ok &= bench.measure(rows, repetitions);
  return ok ? 0 : 1;
}
