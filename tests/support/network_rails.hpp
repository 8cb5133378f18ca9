#pragma once

// A network that reduces between hosts, in plain memory, for `World`.
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/numeric/bulk.hpp>
#include <ccl/detail/numeric/network_step.hpp>
#include <ccl/types/position.hpp>
#include <ccl/types/wire.hpp>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "host_sizes.hpp"

namespace ccl::test {

/// Wires between the heads of hosts and the network, and the positions of all ranks. `heads` of
/// each host use the network on one channel; with one, the channels have different heads.
class NetworkRails {
 public:
  NetworkRails(const HostSizes& hosts, int heads, int channels, int slots, Index slot_bytes)
      : hosts_{hosts.members()}, heads_{heads}, channels_{channels}, host_of_(100) {
    for (int c = 0; c < channels; ++c) {
      for (std::size_t h = 0; h < hosts_.size(); ++h) {
        std::vector<int> order;
        for (std::size_t i = 0; i < hosts_[h].size(); ++i) {
          const std::size_t turn = heads == 1 ? std::size_t(c) : 0;
          order.push_back(hosts_[h][(i + turn) % hosts_[h].size()]);
          host_of_[std::size_t(hosts_[h][i])] = int(h);
        }
        orders_.push_back(std::move(order));
      }
    }
    for (std::size_t h = 0; h < hosts_.size(); ++h) {
      all_heads_.insert(all_heads_.end(), orders_[h].begin(), orders_[h].begin() + heads);
    }
    ends_.resize(std::size_t(channels * heads) * hosts_.size());
    for (End& end : ends_) {
      for (Half* half : {&end.up, &end.down}) half->make(slots, slot_bytes);
    }
  }
  HostPosition position(int rank, int channel) const {
    const std::size_t host = std::size_t(host_of_[std::size_t(rank)]);
    const auto& order = orders_[std::size_t(channel) * hosts_.size() + host];
    int place = 0;
    while (order[std::size_t(place)] != rank) ++place;
    return {place,     int(order.size()),  heads_,           order.data(),
            int(host), int(hosts_.size()), all_heads_.data()};
  }
  /// Returns the wire of a rank to the network, or from it; without slots if it is no head.
  Wire wire(int rank, int channel, bool up) const {
    const HostPosition at = position(rank, channel);
    if (!at.is_head()) return {};
    const End& end = ends_[index(channel, at.place, std::size_t(host_of_[std::size_t(rank)]))];
    return (up ? end.up : end.down).wire;
  }
  /// Adds up steps until `done`. `R` is the reduction of the lanes. Counts steps that are not its.
  template <class R>
  void run(const std::atomic<bool>& done) {
    while (!done) {
      bool moved = false;
      for (int c = 0; c < channels_; ++c) {
        for (int head = 0; head < heads_; ++head) moved = step<R>(c, head) || moved;
      }
      if (!moved) std::this_thread::sleep_for(std::chrono::microseconds{20});
    }
  }
  int steps() const { return steps_; }
  int wrong() const { return wrong_; }

 private:
  struct Half {
    std::vector<Packet> slots;
    std::vector<Word> words;
    Wire wire;
    void make(int count, Index bytes) {
      slots.resize(std::size_t(count * bytes) / sizeof(Packet) + 8);
      words.resize(4 * words_per_line + std::size_t(count));
      auto* const base =
          slots.data() + (128 - reinterpret_cast<std::uintptr_t>(slots.data()) % 128) % 128 / 16;
      wire = {base,
              &words[0],
              &words[words_per_line],
              &words[2 * words_per_line],
              &words[3 * words_per_line],
              &words[4 * words_per_line],
              count,
              int(bytes / Index{sizeof(Packet)}),
              true};
    }
    Word size(Word step) const { return wire.sizes[step % Word(wire.slot_count)]; }
  };
  struct End {
    Half up, down;
    Word step = 0, results = 0;
  };
  std::size_t index(int channel, int head, std::size_t host) const {
    return std::size_t(channel * heads_ + head) * hosts_.size() + host;
  }
  template <class R>
  bool step(int channel, int head) {
    using Memory = detail::HostMemory;
    using detail::NetworkMove;
    End* const first = &ends_[index(channel, head, 0)];
    for (std::size_t h = 0; h < hosts_.size(); ++h) {
      if (Memory::load_acquire(first[h].up.wire.posted) <= first[h].step) return false;
    }
    const auto what = detail::NetworkStep::of(first->up.size(first->step));
    const auto gets = [&](std::size_t h) {
      return what.move != NetworkMove::reduce_scatter || int(h) == what.host;
    };
    for (std::size_t h = 0; h < hosts_.size(); ++h) {
      End& end = first[h];
      const Word drained = Memory::load_credit(end.down.wire.drained);
      if (gets(h) && end.results - drained >= Word(end.down.wire.slot_count)) return false;
    }
    const Word size = first->up.size(first->step);
    for (std::size_t h = 0; h < hosts_.size(); ++h)
      wrong_ += first[h].up.size(first[h].step) != size;
    std::vector<std::byte> result(std::size_t(what.bytes));
    if constexpr (detail::reduces<R>) {
      wrong_ += what.move == NetworkMove::all_gather;
      wrong_ += detail::NetworkStep::tag(what.type, what.op) != detail::network_tag<R>;
      add_up<R>(first, result);
    } else {
      wrong_ += what.move != NetworkMove::all_gather;
      const End& from = first[what.host];
      std::memcpy(result.data(), from.up.wire.slot(from.step), result.size());
    }
    for (std::size_t h = 0; h < hosts_.size(); ++h) {
      End& end = first[h];
      const Word now = end.step++;
      if (gets(h)) {
        std::memcpy(static_cast<void*>(end.down.wire.slot(end.results)), result.data(),
                    result.size());
        end.down.wire.sizes[end.results % Word(end.down.wire.slot_count)] = Word(what.bytes);
        Memory::store_release(end.down.wire.posted, ++end.results);
      }
      Memory::store_credit(end.up.wire.drained, now + 1);
    }
    ++steps_;
    return true;
  }
  /// Adds up the slots of all hosts.
  template <class R>
  void add_up(const End* first, std::vector<std::byte>& sum) const {
    using T = typename R::Type;
    using Op =
        std::conditional_t<detail::network_op<typename R::Functor>() == detail::NetworkOp::sum, Sum,
                           typename R::Functor>;
    const detail::Reduction<Op, T> reduction{Op{}, 1};
    for (std::size_t h = 0; h < hosts_.size(); ++h) {
      const void* const from = first[h].up.wire.slot(first[h].step);
      if (h == 0) {
        std::memcpy(sum.data(), from, sum.size());
      } else {
        detail::reduce_bulk<decltype(reduction), 1, false>(reduction, sum.data(), sum.data(), &from,
                                                           Index(sum.size() / sizeof(T)));
      }
    }
  }

  std::vector<std::vector<int>> hosts_;
  int heads_, channels_;
  std::vector<int> host_of_;
  std::vector<std::vector<int>> orders_;  // by channel, then host
  std::vector<int> all_heads_;
  std::vector<End> ends_;  // by channel, head and host
  std::atomic<int> steps_{0}, wrong_{0};
};

}  // namespace ccl::test
