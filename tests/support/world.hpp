#pragma once

// Ranks as threads over wires in plain memory: algorithms and protocols without a communicator.
#include <ccl/algo/traits.hpp>
#include <ccl/detail/exchange/batches.hpp>
#include <ccl/detail/exec/host_executor.hpp>
#include <ccl/detail/wire/context.hpp>
#include <ccl/types/operations.hpp>
#include <ccl/types/position.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "network_rails.hpp"
#include "tree_over_hosts.hpp"

namespace ccl::test {

/// Wires from every rank to every other; counts live on from one launch to the next.
class World {
 public:
  World(int ranks, int channels, int slots, Index slot_bytes)
      : ranks_{ranks},
        channels_{channels},
        order_(ranks),
        all_(ranks * ranks * channels),
        launches_(ranks) {
    std::iota(order_.begin(), order_.end(), 0);
    for (Lines& l : all_) {
      l.slots.resize(slots * slot_bytes / sizeof(Packet) + 8);
      l.words.resize(6 * words_per_line);
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
  /// Returns the launches of a rank whose messages were arguments, as on a GPU.
  int launches(int rank) const { return launches_[rank]; }
  /// Sets the counts of all wires, as after so many steps.
  void count_from(Word steps) {
    for (Lines& l : all_) {
      for (Word* const count : {l.wire.posted, l.wire.drained, l.wire.sent, l.wire.received}) {
        *count = steps;
      }
    }
  }
  /// Delays counts from one end of a wire to the other from now on, as over a network. It has no
  /// effect if packets carry flags. `of_host` ranks share a host, which trees take into account.
  void delay(std::chrono::microseconds by, int of_host = 1) {
    delay_ = by;
    of_host_ = of_host;
  }
  /// Adds a network that reduces between these hosts.
  NetworkRails& add_network(const HostSizes& hosts, int heads) {
    const Wire& shape = all_[0].wire;
    rails_ = std::make_unique<NetworkRails>(hosts, heads, channels_, shape.slot_count,
                                            shape.slot_packets * Index{sizeof(Packet)});
    return *rails_;
  }
  /// Runs one launch of every rank; `setup(rank, work)` gives buffers, layout and root.
  /// `order`: the ring's; by default 0, 1, 2, ... `Align`: that of every other rank's kernel.
  template <class Op, class Algo, class Proto, class Group, int Align = 1, class R, class F>
  bool run(const R& reduction, int slice_steps, int chunk_steps, int root, F setup) {
    std::vector<std::thread> threads;
    std::vector<char> ok(ranks_, 0);
    std::atomic<bool> done{false};
    std::thread network{[&] {
      if constexpr (ReducesInNetwork<Algo>) {
        rails_->template run<R>(done);
      } else {
        carry_counts(done);
      }
    }};
    for (int r = 0; r < ranks_; ++r) {
      threads.emplace_back([&, r] {
        std::vector<Wire> in(ranks_ * channels_), out(ranks_ * channels_);
        std::vector<RingPosition> rings(channels_);
        std::vector<TreePosition> trees(channels_);
        std::vector<HostPosition> hosts(channels_);
        for (int c = 0; c < channels_; ++c) {
          for (int p = 0; p < ranks_; ++p) {
            if (p == r) continue;
            in[c * ranks_ + p] = far_end(p, r, c);
            out[c * ranks_ + p] = wire(r, p, c);
          }
          rings[c] = {int(std::find(order_.begin(), order_.end(), r) - order_.begin()), ranks_,
                      order_.data()};
          if (rails_ != nullptr) {
            in[c * ranks_ + r] = rails_->wire(r, c, false);
            out[c * ranks_ + r] = rails_->wire(r, c, true);
            hosts[c] = rails_->position(r, c);
          }
          trees[c] = tree_over_hosts(r, ranks_, root, Op::rooted ? 0 : c % 2, of_host_);
        }
        std::vector<detail::Cursor> cursors(2 * ranks_ * channels_);
        detail::LaneFailure lane_failure;
        const Word stop = 0;
        detail::WireWork<R> work{reduction};
        work.in = in.data();
        work.out = out.data();
        work.rings = rings.data();
        work.trees = trees.data();
        work.hosts = hosts.data();
        work.rank = r;
        work.ranks = ranks_;
        work.root = root;
        work.channels = channels_;
        work.slot_count = all_[0].wire.slot_count;
        work.slot_packets = all_[0].wire.slot_packets;
        work.slice_steps = slice_steps;
        work.chunk_steps = chunk_steps;
        work.watch = {&stop, &lane_failure, Word{60} * 1'000'000'000};
        work.sends.cursor = cursors.data();
        work.recvs.cursor = cursors.data() + ranks_ * channels_;
        setup(r, work);
        if constexpr (std::is_same_v<R, detail::Bytes>) {
          if (work.servers > 1) {
            const detail::MessageTable table = table_of(work);
            detail::ExchangeWork whole{work};
            detail::ExchangeBatches batches{table, rings[0]};
            do {
              batches.next(whole);
              detail::HostExecutor::run<Group>(whole.channels * whole.servers,
                                               detail::ExchangeBody<Op, Algo, Proto, 1>{whole});
              ++launches_[r];
            } while (batches.left());
            ok[r] = lane_failure.peer == 0;
            return;
          }
        }
        if (Align != 1 && r % 2 == 1) {
          detail::HostExecutor::run<Group>(work.channels,
                                           detail::WireBody<Op, Algo, Proto, Align, R>{work});
        } else {
          detail::HostExecutor::run<Group>(work.channels,
                                           detail::WireBody<Op, Algo, Proto, 1, R>{work});
        }
        ok[r] = lane_failure.peer == 0;
      });
    }
    for (auto& t : threads) t.join();
    done = true;
    network.join();
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

  /// Returns the messages of a work, peer by peer.
  static detail::MessageTable table_of(const detail::WireWork<detail::Bytes>& work) {
    detail::MessageTable table{work.ranks};
    for (int p = 0; p < work.ranks; ++p) {
      const auto out = work.run(true, p), in = work.run(false, p);
      for (int i = 0; i < out.count; ++i) table.sends.add(p, out.message[i]);
      for (int i = 0; i < in.count; ++i) table.recvs.add(p, in.message[i]);
    }
    return table;
  }

  /// Returns the wire as the receiver holds it.
  Wire far_end(int from, int to, int channel) {
    Wire far = wire(from, to, channel);
    if (delay_.count() == 0) return far;
    Lines& l = all_[(from * ranks_ + to) * channels_ + channel];
    far.posted = &l.words[4 * words_per_line];
    far.drained = &l.words[5 * words_per_line];
    return far;
  }
  void carry_counts(const std::atomic<bool>& done) {
    using Clock = std::chrono::steady_clock;
    struct Count {
      Word *from, *to;
      Word seen = 0;
      std::deque<std::pair<Clock::time_point, Word>> under_way{};
    };
    std::vector<Count> counts;
    for (Lines& l : all_) {
      if (delay_.count() == 0) return;
      Word* const w = l.words.data();
      counts.push_back({l.wire.posted, w + 4 * words_per_line});
      counts.push_back({w + 5 * words_per_line, l.wire.drained});
    }
    while (!done) {
      const auto now = Clock::now();
      for (Count& c : counts) {
        const Word is = detail::HostMemory::load_acquire(c.from);
        if (is != c.seen) c.under_way.emplace_back(now + delay_, c.seen = is);
        while (!c.under_way.empty() && c.under_way.front().first <= now) {
          detail::HostMemory::store_release(c.to, c.under_way.front().second);
          c.under_way.pop_front();
        }
      }
      std::this_thread::sleep_for(delay_ / 32);
    }
  }

  int ranks_, channels_, of_host_ = 1 << 20;
  std::chrono::microseconds delay_{0};
  std::vector<int> order_;
  std::vector<Lines> all_;
  std::unique_ptr<NetworkRails> rails_;
  std::vector<int> launches_;  // see `launches`
};

}  // namespace ccl::test
