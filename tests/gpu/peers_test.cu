// One-shot and two-shot collectives over the scratch of peers, on GPU lanes.
#include <ccl/algo/one_shot.hpp>
#include <ccl/algo/two_shot.hpp>
#include <ccl/detail/peer/body.hpp>
#include <ccl/proto/sentinel.hpp>

#include "wires.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {
constexpr int max_blocks = 16;
constexpr Index half_packets = Index{16} << 20 >> 4;

/// Ranks that address each other's scratch: as `World`, without wires. `Kernel`: number of ranks
/// for which the kernels are compiled.
template <int Ranks, class Proto, int Kernel>
class Peers {
 public:
  Peers() : world_{Ranks, 1, 2, 128} {
    MUST(cudaHostAlloc(&watch_, sizeof *watch_, cudaHostAllocPortable));
    *watch_ = {};
    for (int r = 0; r < Ranks; ++r) {
      scratch_.emplace_back(world_.gpu(r), size_t(2 * half_packets) * sizeof(Packet));
      epochs_.emplace_back(world_.gpu(r), max_blocks * sizeof(Word));
      MUST(cudaSetDevice(world_.gpu(r)));
      MUST(cudaStreamCreateWithFlags(&streams_[r], cudaStreamNonBlocking));
    }
  }
  const World& world() const { return world_; }

  /// `aligned`: every other rank runs the kernel for aligned buffers. All others run the kernel
  /// for any alignment and number of ranks.
  template <class Op, class Algo, class R, class F>
  bool run(const R& how, bool aligned, F setup) {
    using Body = detail::PeerBody<Op, Algo, Proto, 16, R, Kernel>;
    using AnyBody = detail::PeerBody<Op, Algo, Proto, detail::any_align, R, 8, 2>;
    for (int r = 0; r < Ranks; ++r) {
      MUST(cudaSetDevice(world_.gpu(r)));
      MUST((detail::CudaExecutor::load<detail::WarpLanes, Body>()));
      MUST((detail::CudaExecutor::load<detail::WarpLanes, AnyBody>()));
      MUST(cudaDeviceSynchronize());
    }
    const int blocks = 1 + turn_ % 3, groups = 1 + turn_ % 4;
    ++turn_;
    for (int r = 0; r < Ranks; ++r) {
      detail::PeerWork<R> work{how};
      for (int p = 0; p < Ranks; ++p) work.peers.scratch[p] = scratch_[p].template as<Packet>();
      work.peers.half_packets = half_packets;
      work.peers.rank = r;
      work.peers.ranks = Ranks;
      work.epoch = {epochs_[r].template as<Word>(), max_blocks};
      work.channels = blocks * groups;
      work.blocks = blocks;
      work.rows = Kernel;
      work.watch = {&watch_->stop, &watch_->lane_failure, Word{2'000'000'000}};
      setup(r, work);
      if (!Body::template fits<detail::WarpLanes>(work)) {
        std::printf("the scratch is too small for this test\n");
        std::exit(1);
      }
      MUST(cudaSetDevice(world_.gpu(r)));
      const detail::CudaShape shape{blocks * groups, blocks, Ranks <= gpus() ? &share_ : nullptr};
      MUST(aligned && (r + turn_) % 2 == 0
               ? (detail::CudaExecutor::launch<detail::WarpLanes, Body>(work, shape, streams_[r]))
               : (detail::CudaExecutor::launch<detail::WarpLanes, AnyBody>(work, shape,
                                                                           streams_[r])));
    }
    for (int r = 0; r < Ranks; ++r) MUST(cudaStreamSynchronize(streams_[r]));
    if (watch_->lane_failure.peer != 0) {
      std::printf("a lane gave up: peer %d, launch %d\n", int(watch_->lane_failure.peer) - 1,
                  int(watch_->lane_failure.step));
      std::exit(1);
    }
    return true;
  }

 private:
  struct Watched {
    Word stop = 0;
    detail::LaneFailure lane_failure;
  };
  World world_;
  std::vector<DeviceArray> scratch_, epochs_;
  cudaStream_t streams_[Ranks];
  Watched* watch_;
  detail::LaunchShare share_ = detail::LaunchShare::whole_gpu();
  int turn_ = 0;
};

template <class Op, class Algo, class T, int Ranks, class Proto, int Kernel, class R>
void check(Tally& tally, Peers<Ranks, Proto, Kernel>& peers, const R& how, Index count,
           Index offset, unsigned seed) {
  constexpr bool moves = !Op::reduces;
  constexpr bool shares_in =
      cuda::std::is_same_v<Op, ReduceScatter> || cuda::std::is_same_v<Op, AllToAll>;
  constexpr bool shares_out = moves;
  const Index unit = moves ? Index{sizeof(T)} : 1;
  Buffers<T> b{peers.world(), count * (shares_in ? Ranks : 1), count * (shares_out ? Ranks : 1),
               offset, seed};
  const auto setup = [&](int r, auto& w) {
    w.input = b.in(r), w.output = b.out(r);
    w.layout = {count * unit, shares_in ? count * unit : 0, shares_out ? count * unit : 0,
                Algo::boxes == 2};
  };
  detail::PeerWork<R> work{how};
  setup(0, work);
  const bool ok = peers.template run<Op, Algo>(how, alignment(work) == 16, setup);
  for (int r = 0; r < Ranks; ++r) {
    const bool right = b.holds(r, count * (shares_out ? Ranks : 1), [&](Index i) {
      if (cuda::std::is_same_v<Op, AllReduce>) return b.reduced(Ranks, i);
      if (cuda::std::is_same_v<Op, ReduceScatter>) return b.reduced(Ranks, r * count + i);
      if (cuda::std::is_same_v<Op, AllGather>) return b.input(int(i / count), i % count);
      return b.input(int(i / count), r * count + i % count);
    });
    tally.check(ok && right, "%s %s %s %s count %ld offset %ld ranks %d", Algo::name, Proto::name,
                Op::name, type_name<T>(), long(count), long(offset), Ranks);
  }
}

template <int Ranks, class Proto, int Kernel = Ranks>
void run(Tally& tally) {
  Peers<Ranks, Proto, Kernel> peers;
  unsigned seed = 0;
  for (const Index count : {1, 64, 121, 4096, 30001}) {
    for (const Index offset : {0, 1}) {
      const auto reductions = [&](auto tag) {
        using T = typename decltype(tag)::type;
        const detail::Reduction<typename Values<T>::Reduce, T> how{{}, Ranks};
        check<AllReduce, OneShot, T>(tally, peers, how, count, offset, ++seed);
        check<AllReduce, TwoShot, T>(tally, peers, how, count, offset, ++seed);
        check<ReduceScatter, OneShot, T>(tally, peers, how, count, offset, ++seed);
      };
      reductions(TypeTag<float>{});
      reductions(TypeTag<bfloat16>{});
#if defined(CCL_TEST_ALL_TYPES)
      reductions(TypeTag<float8_e4m3>{});
      reductions(TypeTag<double>{});
#endif
      if constexpr (!cuda::std::is_same_v<Proto, Sentinel>) {
        reductions(TypeTag<Wide>{});
        check<AllGather, OneShot, float>(tally, peers, detail::Bytes{}, count, offset, ++seed);
        check<AllToAll, OneShot, float>(tally, peers, detail::Bytes{}, count, offset, ++seed);
      }
    }
  }
}
}  // namespace

int main() {
  gpus();
  Tally tally;
  run<2, LL>(tally);
  run<2, LL128>(tally);
  run<2, Sentinel>(tally);
  // Three ranks in the kernels of four.
  run<3, LL, 4>(tally);
  run<3, LL128, 4>(tally);
  run<3, Sentinel, 4>(tally);
  run<4, LL>(tally);
  run<4, LL128>(tally);
  run<4, Sentinel>(tally);
  return tally.result("OneShot and TwoShot");
}
