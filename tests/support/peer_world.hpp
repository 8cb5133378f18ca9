#pragma once

// Ranks as threads that address each other's scratch: algorithms over a peer view without a
// communicator.
#include <ccl/algo/one_shot.hpp>
#include <ccl/algo/two_shot.hpp>
#include <ccl/detail/exec/host_executor.hpp>
#include <ccl/detail/peer/body.hpp>
#include <ccl/detail/peer/wide_prims.hpp>
#include <ccl/detail/rows/prims.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>

#include <algorithm>
#include <thread>
#include <vector>

namespace ccl::test {

/// `Kernel`: number of ranks for which the body is compiled; see `RankCounts`.
template <int Ranks, int Kernel = Ranks>
class PeerWorld {
 public:
  static constexpr int max_channels = 4;
  static constexpr Word ticket = 7;
  std::vector<detail::PhaseLog> phases;  // of each rank, for `Traced`; empty: none are kept

  /// `launches` is how many have been before, by the ranks' counts.
  explicit PeerWorld(Index half_packets, Word launches = 0)
      : half_packets_{(half_packets + 7) / 8 * 8}, scratch_(Ranks), epochs_(Ranks) {
    for (int r = 0; r < Ranks; ++r) {
      scratch_[r].resize(2 * half_packets_ + 8 +
                         detail::PeerView::max_ranks * Index{sizeof(detail::Mailbox)} /
                             Index{sizeof(Packet)});
      epochs_[r].assign(max_channels, launches);
      table_.push_back(lines(scratch_[r].data()));
    }
  }
  /// One launch of every rank; `setup(rank, work)` gives buffers and layout.
  template <class Op, class Algo, class Proto, class Group, class R, class F>
  bool run(const R& reduction, int channels, F setup) {
    return each_rank([&](int r, const detail::AbortWatch& watch) {
      detail::PeerWork<R> work{reduction};
      fill(work, r, channels, watch);
      setup(r, work);
      using Body = detail::PeerBody<Op, Algo, Proto, 1, R, Kernel>;
      if (!Body::template fits<Group>(work)) return false;
      detail::HostExecutor::run<Group>(channels, Body{work});
      return true;
    });
  }
  /// The same. Every other rank runs the kernel for any alignment and number of ranks.
  template <class Op, class Algo, class Proto, class Group, class R, class F>
  bool run_mixed(const R& reduction, int channels, F setup) {
    return each_rank([&](int r, const detail::AbortWatch& watch) {
      detail::PeerWork<R> work{reduction};
      fill(work, r, channels, watch);
      work.rows = Kernel;
      setup(r, work);
      using Body = detail::PeerBody<Op, Algo, Proto, 1, R, Kernel>;
      using AnyBody = detail::PeerBody<Op, Algo, Proto, detail::any_align, R, 8, 2>;
      if (!Body::template fits<Group>(work)) return false;
      if (r % 2 == 0) {
        detail::HostExecutor::run<Group>(channels, Body{work});
      } else {
        detail::HostExecutor::run<Group>(channels, AnyBody{work});
      }
      return true;
    });
  }
  /// One rank's part of a launch, however the others' go.
  template <class Op, class Algo, class Proto, class Group, class R, class F>
  void run_rank(int rank, const R& reduction, int channels, const detail::AbortWatch& watch,
                F setup) {
    detail::PeerWork<R> work{reduction};
    fill(work, rank, channels, watch);
    setup(work);
    detail::HostExecutor::run<Group>(channels,
                                     detail::PeerBody<Op, Algo, Proto, 1, R, Kernel>{work});
  }
  /// Two calls of one composition in one launch: `setup(rank, call, work)`, on so many channels
  /// each.
  template <class Op, class Algo, class Proto, class Group, class R, class F>
  bool run_two(const R& reduction, const int (&channels)[2], F setup) {
    if (channels[0] + channels[1] > max_channels) return false;
    return each_rank([&](int r, const detail::AbortWatch& watch) {
      using Body = detail::PeerBody<Op, Algo, Proto, 1, R, Kernel>;
      Index packets = 0;
      for (int call = 0; call < 2; ++call) {
        detail::PeerWork<R> work{reduction};
        fill(work, r, channels[call], watch);
        work.first_packet = packets;
        work.first_block = call == 0 ? 0 : channels[0];
        work.other_blocks = channels[1 - call];
        setup(r, call, work);
        packets += Body::template packets<Group>(work);
        if (packets > half_packets_) return false;
        detail::HostExecutor::run<Group>(channels[call], Body{work});
      }
      return true;
    });
  }
  /// Runs an algorithm over rows with `epilogue(rank)`.
  template <class Algo, class Proto, class Group, int Tiles, class P, class E, class F>
  bool run_rows(const P& prologue, E epilogue, int channels, F setup) {
    return each_rank([&](int r, const detail::AbortWatch& watch) {
      using After = decltype(epilogue(0));
      detail::RowWork<P, After> work{prologue, epilogue(r)};
      fill(work, r, channels, watch);
      setup(r, work);
      using Body = detail::RowBody<AllReduceRows, Algo, Proto, P, After, Kernel, Tiles>;
      using Prims = typename Body::template Prims<Group>;
      if (Prims::row_packets(work.length, Ranks) * work.rows > half_packets_) return false;
      if (Prims::tiles_of(work.length) > Tiles) return false;
      detail::HostExecutor::run<Group>(channels, Body{work});
      return true;
    });
  }

 private:
  template <class F>
  bool each_rank(F body) {
    std::vector<std::thread> threads;
    std::vector<char> ok(Ranks, 0);
    for (int r = 0; r < Ranks; ++r) {
      threads.emplace_back([&, r] {
        detail::LaneFailure lane_failure;
        const Word stop = 0;
        const detail::AbortWatch watch{
            &stop,   &lane_failure, Word{60} * 1'000'000'000,
            nullptr, ticket,        phases.empty() ? nullptr : &phases[std::size_t(r)]};
        const bool ran = body(r, watch);
        ok[r] = ran && lane_failure.peer == 0;
      });
    }
    for (auto& t : threads) t.join();
    return std::all_of(ok.begin(), ok.end(), [](char o) { return o != 0; });
  }
  template <class Work>
  void fill(Work& work, int r, int channels, const detail::AbortWatch& watch) {
    for (int p = 0; p < Ranks; ++p) {
      if (Kernel <= max_unrolled_ranks) work.peers.scratch[p] = table_[p];
    }
    if (Kernel > max_unrolled_ranks) work.peers.set_table(table_.data());
    if constexpr (requires { work.rows; }) work.rows = Ranks;  // as the launch of a wide kernel
    work.peers.half_packets = half_packets_;
    work.peers.rank = r;
    work.peers.ranks = Ranks;
    work.epoch = {epochs_[r].data(), max_channels};
    work.channels = work.blocks = channels;
    work.watch = watch;
  }
  static Packet* lines(Packet* p) {
    return p + (128 - reinterpret_cast<std::uintptr_t>(p) % 128) % 128 / sizeof(Packet);
  }
  Index half_packets_;
  std::vector<std::vector<Packet>> scratch_;
  std::vector<std::vector<Word>> epochs_;
  std::vector<Packet*> table_;
};

}  // namespace ccl::test
