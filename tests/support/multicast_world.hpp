#pragma once

// Ranks as threads that share multicast memory by its emulation: `Nvls` without a communicator.
#include <ccl/algo/nvls.hpp>
#include <ccl/detail/exec/host_executor.hpp>
#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/detail/multicast/body.hpp>

#include <algorithm>
#include <thread>
#include <vector>

namespace ccl::test {

class MulticastWorld {
 public:
  static constexpr int max_channels = 4;

  /// `launches` is how many have been before, by the ranks' counts.
  explicit MulticastWorld(int ranks, Index half_packets, Word launches = 0)
      : ranks_{ranks}, half_packets_{(half_packets + 7) / 8 * 8}, scratch_(ranks), epochs_(ranks) {
    const Index mailboxes = ranks * Index{sizeof(detail::Mailbox)} / Index{sizeof(Packet)};
    for (int r = 0; r < ranks; ++r) {
      scratch_[r].resize(2 * half_packets_ + 8 + mailboxes);
      epochs_[r].assign(max_channels, launches);
      table_.push_back(lines(scratch_[r].data()));
    }
    for (int r = 0; r < ranks; ++r) heads_.push_back(r);
  }
  int ranks() const { return ranks_; }
  void set_heads(std::vector<int> heads) { heads_ = std::move(heads); }

  /// One launch of every rank; `setup(rank, work)` gives buffers and layout.
  template <class Op, class Group, class Algo = Nvls, class Buffers = detail::CopiedBuffers,
            class R, class F>
  bool run(const R& reduction, int channels, F setup) {
    std::vector<std::thread> threads;
    std::vector<char> ok(size_t(ranks_), 0);
    for (int r = 0; r < ranks_; ++r) {
      threads.emplace_back([&, r] {
        detail::LaneFailure lane_failure;
        const Word stop = 0;
        const detail::AbortWatch watch{&stop, &lane_failure, Word{60} * 1'000'000'000};
        const bool ran = run_rank<Op, Group, Algo, Buffers>(r, reduction, channels, watch,
                                                            [&](auto& work) { setup(r, work); });
        ok[size_t(r)] = ran && lane_failure.peer == 0;
      });
    }
    for (auto& t : threads) t.join();
    return std::all_of(ok.begin(), ok.end(), [](char o) { return o != 0; });
  }
  /// One rank's part of a launch, however the others' go.
  template <class Op, class Group, class Algo = Nvls, class Buffers = detail::CopiedBuffers,
            class R, class F>
  bool run_rank(int rank, const R& reduction, int channels, const detail::AbortWatch& watch,
                F setup) {
    detail::MulticastWork<R> work{reduction};
    work.peers.set_table(table_.data());
    work.peers.half_packets = half_packets_;
    work.peers.rank = rank;
    work.peers.ranks = ranks_;
    work.epoch = {epochs_[size_t(rank)].data(), max_channels};
    work.channels = work.blocks = channels;
    work.watch = watch;
    for (const int head : heads_) work.add_head(head);
    setup(work);
    using Multicast = detail::UnicastMulticast<typename Group::Memory>;
    using Body = detail::MulticastBody<Op, Algo, Simple, Multicast, 1, R, Buffers>;
    if constexpr (Buffers::in_windows) {
      if (!Body::template divide<Group>(work)) return false;
    } else {
      if (!Body::template fits<Group>(work)) return false;
    }
    detail::HostExecutor::run<Group>(channels, Body{work});
    return true;
  }

 private:
  static Packet* lines(Packet* p) {
    return p + (128 - reinterpret_cast<std::uintptr_t>(p) % 128) % 128 / sizeof(Packet);
  }
  int ranks_;
  Index half_packets_;
  std::vector<std::vector<Packet>> scratch_;
  std::vector<std::vector<Word>> epochs_;
  std::vector<Packet*> table_;
  std::vector<int> heads_;
};

}  // namespace ccl::test
