// Copies into peers' memory by the lanes of a block, and by the bulk copy engine of its
// multiprocessor (cp.async.bulk through shared memory), alone or while other lanes copy the same
// data to memory of this GPU. The GPUs of one process copy to the next GPU, or one share to each.
// In turns, each block copies a piece for every other GPU and for its own, again and again. As a
// fan, each warp loads a piece once and stores it to all other GPUs. Prints one line of JSON per
// case. Times are from CUDA graphs, and results are checked.
//   bulk_bench [min bytes] [max bytes] [blocks of a thread block cluster, 1: none]
#include <ccl/detail/lanes/copy_run.hpp>
#include <ccl/detail/lanes/copy_turns.hpp>
#include <ccl/detail/lanes/device_lanes.cuh>

#include <cstring>

#include "machine.cuh"

using namespace ccl;
using namespace ccl::bench;

namespace {

struct Copies {
  const char* from;
  char* to[8];
  int targets;
  int copies;  // targets, and this GPU where it gets a share by the same loop
  char* own;   // place of a copy on this GPU
  Index each;  // bytes for each target, adjacent in `from`
  Word* done;  // in the memory of the first target: written by the release
};

/// Returns block b's part: whole lines of one target.
__device__ bool part(const Copies& work, int b, int blocks, const char*& from, char*& to,
                     Index& bytes) {
  const int per = blocks / work.targets;
  const int target = b / per, i = b % per;
  if (target >= work.targets) return false;
  const Index lines = div_up<Index>(work.each, Index{128} * per);
  const Index begin = lines * 128 * i;
  bytes = work.each - begin < lines * 128 ? work.each - begin : lines * 128;
  from = work.from + target * work.each + begin;
  to = work.to[target] + begin;
  return bytes > 0;
}

__global__ void __launch_bounds__(512, 1) by_lanes(const __grid_constant__ Copies work) {
  ptx::launch_dependents();
  ptx::wait_for_previous();
  const char* from;
  char* to;
  Index bytes;
  const detail::BlockLanes<512> group;
  if (part(work, int(blockIdx.x), int(gridDim.x), from, to, bytes)) {
    detail::copy_run(group, to, from, bytes);
  }
  group.sync();
  if (group.rank() == 0) ptx::store_release(work.done + blockIdx.x * 16, 1);
}

/// The first thread of a block drives the copy engine. `Own`: other lanes copy the data, too.
template <bool Own>
__global__ void __launch_bounds__(512, 1) by_bulk(const __grid_constant__ Copies work) {
  ptx::launch_dependents();
  ptx::wait_for_previous();
  const char* from;
  char* to;
  Index bytes;
  const detail::BlockLanes<512> group;
  constexpr auto use = Own ? detail::BulkUse::busy : detail::BulkUse::idle;
  if (part(work, int(blockIdx.x), int(gridDim.x), from, to, bytes)) {
    detail::copy_long_run(group, to, from, bytes, use, [&](auto half) {
      if (Own) detail::copy_run(half, work.own + (from - work.from), from, bytes);
    });
  }
  group.sync();
  if (group.rank() == 0) ptx::store_release(work.done + blockIdx.x * 16, 1);
}

/// Each block copies its part of all shares, this GPU's own included, a piece of each in turn.
/// `Mixed`: blocks have different orders of targets, as in `Direct`. Otherwise all have one order,
/// and begin at different places of it.
template <bool Engine, bool Mixed>
__global__ void __launch_bounds__(512, 1) in_turns(const __grid_constant__ Copies work) {
  ptx::launch_dependents();
  ptx::wait_for_previous();
  const detail::BlockLanes<512> group;
  const int b = int(blockIdx.x), blocks = int(gridDim.x), targets = work.targets;
  const Index lines = div_up<Index>(work.each, Index{128} * blocks);
  const Index begin = min(lines * 128 * b, work.each);
  const Index bytes = min(lines * 128, work.each - begin);
  detail::TurnRuns runs;
  for (int k = 0; k < targets; ++k) {
    const int t = Mixed ? (k + b) % targets : k;
    runs.add(work.to[t] + begin, work.from + t * work.each + begin, bytes);
  }
  runs.add(work.own + begin, work.from + targets * work.each + begin, bytes);
  const int first = Mixed ? b / targets : b;
  detail::copy_long_in_turns(group, runs, first % runs.count, Engine);
  group.sync();
  if (group.rank() == 0) ptx::store_release(work.done + blockIdx.x * 16, 1);
}

/// Which warps' pieces lie side by side: those of a block, in a part of the block's own; those of
/// all blocks, a piece of each block in turn; or so that a block's pieces adjoin each time.
enum class Layout { parts, warps, blocks };

/// By warps. A warp's piece has `Packets` packets of each lane. `Same`: all GPUs get the same
/// bytes, which a warp loads once. This GPU gets a share, too, if `work.copies` counts one more.
template <int Packets, bool Same, Layout layout>
__global__ void __launch_bounds__(512, 1) by_warps(const __grid_constant__ Copies work) {
  ptx::launch_dependents();
  ptx::wait_for_previous();
  constexpr bool parts = layout == Layout::parts;
  constexpr Index piece = Packets * 32;
  const Index packets = work.each / Index{sizeof(uint4)}, own_warps = blockDim.x / 32;
  const Index part = parts ? div_up(div_up(packets, Index{gridDim.x}), piece) * piece : packets;
  const Index first = parts ? part * blockIdx.x : 0, end = min(first + part, packets);
  const Index warps = parts ? own_warps : own_warps * gridDim.x, own = threadIdx.x / 32;
  const Index warp = parts                     ? own
                     : layout == Layout::warps ? own * gridDim.x + blockIdx.x
                                               : blockIdx.x * own_warps + own;
  const int lane = int(threadIdx.x % 32), first_target = int(blockIdx.x) % work.copies;
  const auto* const from = reinterpret_cast<const uint4*>(work.from);
  for (Index begin = first + warp * piece; begin < end; begin += warps * piece) {
    uint4 held[Packets];
    const auto load = [&](Index share) {
#pragma unroll
      for (int i = 0; i < Packets; ++i) {
        const Index at = begin + i * 32 + lane;
        if (at < end) held[i] = __ldcs(from + share * packets + at);
      }
    };
    if (Same) load(0);
#pragma unroll 1
    for (int k = 0; k < work.copies; ++k) {
      const int t = (first_target + k) % work.copies;
      if (!Same) load(t);
      auto* const to = reinterpret_cast<uint4*>(work.to[t]);
#pragma unroll
      for (int i = 0; i < Packets; ++i) {
        const Index at = begin + i * 32 + lane;
        if (at < end) to[at] = held[i];
      }
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) ptx::store_release(work.done + blockIdx.x * 16, 1);
}

__global__ void mark(unsigned* to, Index words, unsigned seed) {
  for (Index i = blockIdx.x * Index{blockDim.x} + threadIdx.x; i < words;
       i += Index{gridDim.x} * blockDim.x) {
    to[i] = unsigned(i) * 2654435761u + seed;
  }
}
__global__ void compare(const unsigned* got, Index words, Index first, unsigned seed,
                        unsigned* wrong) {
  unsigned bad = 0;
  for (Index i = blockIdx.x * Index{blockDim.x} + threadIdx.x; i < words;
       i += Index{gridDim.x} * blockDim.x) {
    bad += got[i] != unsigned(first + i) * 2654435761u + seed;
  }
  if (bad != 0) atomicAdd(wrong, bad);
}

/// Order of the copies of a block. As a fan, all GPUs get the same bytes, with this GPU or without.
enum class Pattern { parts, turns, fan, fan_and_own };

class Bench {
 public:
  Bench(int gpus, Index most) : machine_{gpus, most}, gpus_{gpus} {
    for (int g = 0; g < gpus; ++g) {
      done_.push_back(static_cast<Word*>(Machine::zeroed(g, 128 * 128)));
      own_.push_back(static_cast<char*>(Machine::zeroed(g, most)));
    }
    machine_.sync();
  }

  template <class Launch>
  bool run(const char* how, bool to_all, Pattern pattern, Index bytes, int blocks, Launch launch) {
    const bool same = pattern == Pattern::fan || pattern == Pattern::fan_and_own;
    const bool own_too = pattern == Pattern::turns || pattern == Pattern::fan_and_own;
    std::vector<Copies> works;
    for (int g = 0; g < gpus_; ++g) {
      Copies work{};
      work.from = reinterpret_cast<const char*>(machine_[g].in);
      work.own = own_[g];
      work.targets = to_all ? gpus_ - 1 : 1;
      work.each = to_all ? bytes / gpus_ / 128 * 128 : bytes;
      for (int k = 0; k < work.targets; ++k) {
        const int p = (g + 1 + k) % gpus_;
        work.to[k] = reinterpret_cast<char*>(machine_[p].out) + (to_all ? g * work.each : 0);
      }
      work.copies = work.targets + (own_too ? 1 : 0);
      work.to[work.targets] = work.own;
      work.done = done_[(g + 1) % gpus_];
      works.push_back(work);
    }
    ++seed_;
    for (int g = 0; g < gpus_; ++g) {
      MUST(cudaSetDevice(g));
      mark<<<512, 512, 0, machine_[g].stream>>>(reinterpret_cast<unsigned*>(machine_[g].in),
                                                bytes / 4, seed_ + unsigned(g) * 77);
      MUST(cudaMemsetAsync(machine_[g].out, 0, size_t(bytes), machine_[g].stream));
    }
    machine_.sync();
    const auto all = [&] {
      for (int g = 0; g < gpus_; ++g) {
        MUST(cudaSetDevice(g));
        launch(works[g], machine_[g].stream);
      }
    };
    const Index mib = Index{1} << 20;
    const double us = machine_.time(20, bytes < 64 * mib ? 7 : 3, all);
    unsigned wrong = 0;
    for (int g = 0; g < gpus_; ++g) {
      MUST(cudaSetDevice(g));
      for (int k = 0; k < works[0].targets; ++k) {
        const int from = (g + gpus_ - 1 - k) % gpus_;
        const Index each = works[0].each;
        compare<<<512, 512, 0, machine_[g].stream>>>(
            reinterpret_cast<unsigned*>(machine_[g].out) + (to_all ? from * each / 4 : 0), each / 4,
            same ? 0 : k * each / 4, seed_ + unsigned(from) * 77, machine_[g].wrong);
      }
      if (own_too) {
        const Index each = works[0].each;
        compare<<<512, 512, 0, machine_[g].stream>>>(reinterpret_cast<unsigned*>(own_[g]), each / 4,
                                                     same ? 0 : works[0].targets * each / 4,
                                                     seed_ + unsigned(g) * 77, machine_[g].wrong);
      }
      unsigned w;
      MUST(cudaStreamSynchronize(machine_[g].stream));
      MUST(cudaMemcpy(&w, machine_[g].wrong, sizeof w, cudaMemcpyDeviceToHost));
      MUST(cudaMemset(machine_[g].wrong, 0, sizeof w));
      wrong += w;
    }
    const double moved = double(works[0].each) * works[0].targets;
    std::printf(
        "{\"bench\":\"bulk\",\"gpus\":%d,\"how\":\"%s\",\"to\":\"%s\",\"bytes\":%lld,"
        "\"blocks\":%d,\"us\":%.2f,\"gbs\":%.1f,\"wrong\":%u}\n",
        gpus_, how, to_all ? "all" : "next", static_cast<long long>(bytes), blocks, us,
        moved / us / 1e3, wrong);
    std::fflush(stdout);
    return wrong == 0;
  }

 private:
  Machine machine_;
  int gpus_;
  unsigned seed_ = 0;
  std::vector<Word*> done_;
  std::vector<char*> own_;
};

cudaError_t launch_early(void (*kernel)(Copies), int blocks, int cluster, const Copies& work,
                         cudaStream_t stream) {
  cudaLaunchAttribute attributes[3] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {unsigned(cluster), 1, 1};
  attributes[2].id = cudaLaunchAttributeClusterSchedulingPolicyPreference;
  attributes[2].val.clusterSchedulingPolicyPreference = cudaClusterSchedulingPolicySpread;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(unsigned(blocks));
  config.blockDim = dim3(512);
  config.dynamicSmemBytes = sizeof(detail::BulkCopyMemory);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = cluster > 1 ? 3 : 1;
  return cudaLaunchKernelEx(&config, kernel, work);
}

}  // namespace

int main(int argc, char** argv) {
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  int gpus = 0;
  (void)cudaGetDeviceCount(&gpus);
  if (gpus < 2) {
    std::printf("SKIP: needs two GPUs, has %d\n", gpus);
    return 77;
  }
  const Index min = argc > 1 ? std::atoll(argv[1]) : Index{1} << 20;
  const Index max = argc > 2 ? std::atoll(argv[2]) : Index{256} << 20;
  const int cluster = argc > 3 ? std::atoi(argv[3]) : 1;
  for (int g = 0; g < gpus; ++g) {
    MUST(cudaSetDevice(g));
    for (const auto kernel :
         {by_lanes, by_bulk<false>, by_bulk<true>, in_turns<true, true>, in_turns<true, false>,
          in_turns<false, false>, by_warps<4, true, Layout::warps>,
          by_warps<8, true, Layout::warps>, by_warps<8, true, Layout::blocks>,
          by_warps<8, true, Layout::parts>, by_warps<4, false, Layout::warps>,
          by_warps<8, false, Layout::warps>, by_warps<8, false, Layout::blocks>,
          by_warps<8, false, Layout::parts>}) {
      MUST(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                sizeof(detail::BulkCopyMemory)));
    }
  }
  Bench bench{gpus, max};
  bool right = true;
  for (Index bytes = min; bytes <= max; bytes *= 4) {
    for (const bool to_all : {false, true}) {
      for (const int blocks : {8, 16, 24, 32, 48, 64, 128}) {
        const auto run = [&](const char* how, void (*kernel)(Copies),
                             Pattern pattern = Pattern::parts) {
          right &= bench.run(how, to_all, pattern, bytes, blocks,
                             [&](const Copies& work, cudaStream_t stream) {
                               MUST(launch_early(kernel, blocks, cluster, work, stream));
                             });
        };
        run("lanes", by_lanes);
        run("bulk", by_bulk<false>);
        run("bulk+own", by_bulk<true>);
        if (!to_all) continue;
        for (const auto [pattern, own] :
             {std::pair{Pattern::fan, false}, std::pair{Pattern::fan_and_own, true}}) {
          const auto fan = [&, pattern = pattern, own = own](const char* how, const char* with_own,
                                                             void (*kernel)(Copies)) {
            run(own ? with_own : how, kernel, pattern);
          };
          fan("fan of 4", "fan of 4, own", by_warps<4, true, Layout::warps>);
          fan("fan of 8", "fan of 8, own", by_warps<8, true, Layout::warps>);
          fan("fan of 8, blocks", "fan of 8, blocks, own", by_warps<8, true, Layout::blocks>);
          fan("fan of 8, parts", "fan of 8, parts, own", by_warps<8, true, Layout::parts>);
        }
        run("warps of 4, own", by_warps<4, false, Layout::warps>, Pattern::turns);
        run("warps of 8, own", by_warps<8, false, Layout::warps>, Pattern::turns);
        run("warps of 8, blocks, own", by_warps<8, false, Layout::blocks>, Pattern::turns);
        run("warps of 8, parts, own", by_warps<8, false, Layout::parts>, Pattern::turns);
        run("turns of lanes", in_turns<false, false>, Pattern::turns);
        run("turns of bulk", in_turns<true, false>, Pattern::turns);
        run("turns of bulk, mixed", in_turns<true, true>, Pattern::turns);
      }
    }
  }
  return right ? 0 : 1;
}
