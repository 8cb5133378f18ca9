// One-shot and two-shot over the scratch of peers, for the GPUs of one process (2, 4 or 8). Prints
// one line of JSON per case. Times are from a CUDA graph, and results are checked before and after.
// More ranks than GPUs share them, which measures the cost on a GPU, but not NVLink.
//   peers_bench [min bytes] [max bytes] [ranks]
#include <ccl/algo/one_shot.hpp>
#include <ccl/algo/two_shot.hpp>
#include <ccl/detail/exec/cuda_executor.cuh>
#include <ccl/detail/peer/body.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/sentinel.hpp>

#include "machine.cuh"

using namespace ccl;
using namespace ccl::bench;

namespace {
constexpr int max_blocks = 132;

/// Protocol that `TwoShot` uses for large shares, in rows of its own.
struct InPairs : LL128Pairs {
  static constexpr const char* name = "LL128 in pairs";
};

template <int Ranks>
class Bench {
 public:
  explicit Bench(Index bytes) : machine_{Ranks, bytes} {
    MUST(cudaHostAlloc(&watched_, sizeof *watched_, cudaHostAllocPortable));
    *watched_ = {};
    for (int g = 0; g < Ranks; ++g) {
      for (auto& region : scratch_) {
        region[g] = static_cast<Packet*>(Machine::zeroed(g, 2 * half_bytes));
      }
      epochs_[g] = static_cast<Word*>(Machine::zeroed(g, 3 * max_blocks * Index{sizeof(Word)}));
    }
    machine_.sync();
  }
  template <class Op, class Algo, class Proto, class R>
  void run(const R& how, Shape shape, Index bytes, int blocks, int groups) {
    using Body = detail::PeerBody<Op, Algo, Proto, 16, R, Ranks>;
    constexpr int region = cuda::std::is_same_v<Proto, LL>         ? 0
                           : cuda::std::is_same_v<Proto, Sentinel> ? 1
                                                                   : 2;
    const Index size = sizeof(typename R::Type);
    const Index count = bytes / size;
    std::vector<detail::PeerWork<R>> works(Ranks, detail::PeerWork<R>{how});
    for (int g = 0; g < Ranks; ++g) {
      Machine::use(g);
      MUST((detail::CudaExecutor::load<detail::WarpLanes, Body>()));
      detail::PeerWork<R>& w = works[g];
      for (int p = 0; p < Ranks; ++p) w.peers.scratch[p] = scratch_[region][p];
      w.peers.half_packets = half_bytes / Index{sizeof(Packet)};
      w.peers.rank = g;
      w.peers.ranks = Ranks;
      w.epoch = {epochs_[g] + region * max_blocks, max_blocks};
      w.channels = blocks * groups;
      w.blocks = blocks;
      w.input = machine_[g].in;
      w.output = machine_[g].out;
      w.watch = {&watched_->stop, &watched_->lane_failure, Word{2'000'000'000}};
      w.layout = lay_out_message(shape, count, count / Ranks, Algo::boxes == 2);
    }
    if (!Body::template fits<detail::WarpLanes>(works[0])) return;
    char plan[200];
    std::snprintf(plan, sizeof plan,
                  ",\"algo\":\"%s\",\"proto\":\"%s\",\"channels\":%d,\"blocks\":%d,\"group\":32,"
                  "\"slot_kib\":0,\"chunk_steps\":1",
                  Algo::name, Proto::name, blocks * groups, blocks);
    report(machine_, "ccl", shape, bytes, plan, [&] {
      for (int g = 0; g < Ranks; ++g) {
        Machine::use(g);
        MUST((detail::CudaExecutor::launch<detail::WarpLanes, Body>(
            works[g], {blocks * groups, blocks, Ranks <= Machine::devices() ? &share_ : nullptr},
            machine_[g].stream)));
      }
    });
    if (watched_->lane_failure.peer != 0) {
      std::printf("# a lane gave up waiting for rank %d\n", int(watched_->lane_failure.peer) - 1);
      std::exit(1);
    }
  }

 private:
  static Layout lay_out_message(Shape shape, Index count, Index share, bool split) {
    if (shape == Shape::all_reduce) return {count, 0, 0, split};
    if (shape == Shape::all_gather) return {share, 0, share, false};
    return {share, share, 0, false};
  }
  static constexpr Index half_bytes = Index{64} << 20;
  struct Watched {
    Word stop = 0;
    detail::LaneFailure lane_failure;
  };
  Machine machine_;
  Packet* scratch_[3][Ranks];
  Word* epochs_[Ranks];
  Watched* watched_;
  detail::LaunchShare share_ = detail::LaunchShare::whole_gpu();
};

constexpr Index kib = 1024, mib = 1024 * kib;

template <int Ranks>
int run(Index min, Index max) {
  Bench<Ranks> bench{max};
  const detail::Reduction<Sum, float> sum{Sum{}, Ranks};
  const int max_blocks = 128 / div_up(Ranks, Machine::devices());
  for (Index bytes = 256; bytes <= max; bytes *= 4) {
    if (bytes < min) continue;
    for (int blocks = 1; blocks <= max_blocks; blocks *= 2) {
      for (const int groups : {2, 4, 8, 16}) {
        const Index tiles = bytes / 480 + 1;
        if (blocks * groups > 4 * tiles && blocks * groups > 2) continue;
        if (tiles > Index{64} * blocks * groups && blocks < max_blocks) continue;
        if (bytes <= 64 * kib) {
          bench.template run<AllReduce, OneShot, LL>(sum, Shape::all_reduce, bytes, blocks, groups);
        }
        if (bytes <= 512 * kib) {
          bench.template run<AllReduce, OneShot, LL128>(sum, Shape::all_reduce, bytes, blocks,
                                                        groups);
        }
        if (bytes >= 16 * kib) {
          bench.template run<AllReduce, TwoShot, LL128>(sum, Shape::all_reduce, bytes, blocks,
                                                        groups);
          bench.template run<AllReduce, TwoShot, InPairs>(sum, Shape::all_reduce, bytes, blocks,
                                                          groups);
          bench.template run<AllReduce, TwoShot, Sentinel>(sum, Shape::all_reduce, bytes, blocks,
                                                           groups);
        }
        bench.template run<AllGather, OneShot, LL128>(detail::Bytes{}, Shape::all_gather, bytes,
                                                      blocks, groups);
        bench.template run<ReduceScatter, OneShot, LL128>(sum, Shape::reduce_scatter, bytes, blocks,
                                                          groups);
      }
    }
  }
  return 0;
}
}  // namespace

int main(int argc, char** argv) {
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  int gpus = 0;
  (void)cudaGetDeviceCount(&gpus);
  const Index min = argc > 1 ? std::atoll(argv[1]) : 256;
  const Index max = argc > 2 ? std::atoll(argv[2]) : 16 * mib;
  const int ranks = argc > 3 ? std::atoi(argv[3]) : gpus;
  if (gpus > 0 && ranks >= 8) return run<8>(min, max);
  if (gpus > 0 && ranks >= 4) return run<4>(min, max);
  if (gpus > 0 && ranks >= 2) return run<2>(min, max);
  std::printf("SKIP: needs two GPUs, or ranks that share them, has %d\n", gpus);
  return 77;
}
