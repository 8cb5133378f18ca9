#pragma once

// Ranks as threads over wires in plain memory: algorithms and protocols without a communicator.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/host_executor.hpp>
#include <ccl/proto/wire_context.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

namespace ccl::test {

/// Wires from every rank to every other; counts live on from one launch to the next.
class World {
 public:
  World(int ranks, int channels, int slots, Index slot_bytes)
      : ranks_{ranks}, channels_{channels}, order_(ranks), all_(ranks * ranks * channels) {
    std::iota(order_.begin(), order_.end(), 0);
    for (Lines& l : all_) {
      l.slots.resize(slots * slot_bytes / sizeof(Packet) + 8);
      l.words.resize(4 * words_per_line);
      auto* const base = l.slots.data() +
                         (128 - reinterpret_cast<std::uintptr_t>(l.slots.data()) % 128) % 128 / 16;
      l.wire = {base,
                &l.words[0],
                &l.words[words_per_line],
                &l.words[2 * words_per_line],
                &l.words[3 * words_per_line],
                nullptr,
                slots,
                int(slot_bytes / Index{sizeof(Packet)}),
                false};
    }
  }
  int ranks() const { return ranks_; }
  /// Runs one launch of every rank; `setup(rank, work)` gives buffers, layout and root.
  /// `order`: the ring's; by default 0, 1, 2, ...
  template <class Op, class Algo, class Proto, class Group, class R, class F>
  bool run(const R& reduction, int slice_steps, int chunk_steps, int root, F setup) {
    std::vector<std::thread> threads;
    std::vector<char> ok(ranks_, 0);
    for (int r = 0; r < ranks_; ++r) {
      threads.emplace_back([&, r] {
        std::vector<Wire> in(ranks_ * channels_), out(ranks_ * channels_);
        std::vector<RingSeat> rings(channels_);
        std::vector<TreeSeat> trees(channels_);
        for (int c = 0; c < channels_; ++c) {
          for (int p = 0; p < ranks_; ++p) {
            if (p == r) continue;
            in[c * ranks_ + p] = wire(p, r, c);
            out[c * ranks_ + p] = wire(r, p, c);
          }
          rings[c] = {int(std::find(order_.begin(), order_.end(), r) - order_.begin()), ranks_,
                      order_.data()};
          trees[c] = double_binary_tree(r, ranks_, root, Op::rooted ? 0 : c % 2);
        }
        std::vector<Cursor> cursors(2 * ranks_ * channels_);
        GaveUp gave_up;
        const Word stop = 0;
        WireWork<R> work{reduction};
        work.in = in.data();
        work.out = out.data();
        work.rings = rings.data();
        work.trees = trees.data();
        work.rank = r;
        work.ranks = ranks_;
        work.root = root;
        work.channels = channels_;
        work.slice_steps = slice_steps;
        work.chunk_steps = chunk_steps;
        work.watch = {&stop, &gave_up, Word{60} * 1'000'000'000};
        work.sends.cursor = cursors.data();
        work.recvs.cursor = cursors.data() + ranks_ * channels_;
        setup(r, work);
        HostExecutor::run<Group>(work.channels, WireBody<Op, Algo, Proto, 1, R>{work});
        ok[r] = gave_up.peer == 0;
      });
    }
    for (auto& t : threads) t.join();
    return std::all_of(ok.begin(), ok.end(), [](char o) { return o != 0; });
  }
  std::vector<int>& order() { return order_; }

 private:
  struct Lines {
    std::vector<Packet> slots;
    std::vector<Word> words;
    Wire wire;
  };
  Wire wire(int from, int to, int channel) {
    return all_[(from * ranks_ + to) * channels_ + channel].wire;
  }

  int ranks_, channels_;
  std::vector<int> order_;
  std::vector<Lines> all_;
};

}  // namespace ccl::test
