#pragma once

// Ranks as threads whose kernels address each other's memory by the device-side interface, without
// a communicator.
#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/device/tiles.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "support/thread_lanes.hpp"

namespace ccl::test {

/// Lanes of one block on CPU threads.
template <class Group>
struct DeviceBlock {
  typename Group::Team team;
  Group lane(int rank) { return {team, rank}; }
};
template <>
struct DeviceBlock<detail::SoloLane> {
  detail::SoloLane lane(int) { return {}; }
};

/// Memory of the ranks of a team.
class DeviceWorld {
 public:
  DeviceWorld(int ranks, const DeviceRequirements& needs, Index window_bytes,
              double deadline_s = 60)
      : ranks_{ranks}, failures_(std::size_t(ranks)), window_(std::size_t(ranks)) {
    detail::TeamData data;
    data.ranks = ranks;
    data.blocks = needs.blocks;
    data.signals = needs.signals;
    data.counters = needs.counters;
    data.layout = detail::TeamLayout::of(needs, ranks);
    data.window_bytes = window_bytes;
    for (int r = 0; r < ranks; ++r) {
      data.window[r] = reinterpret_cast<char*>(lines(window_[std::size_t(r)], window_bytes));
      data.scratch[r] = reinterpret_cast<char*>(lines(scratch_.emplace_back(), data.layout.bytes));
    }
    for (int r = 0; r < ranks; ++r) {
      data.rank = r;
      data.watch = {&stop_, &failures_[std::size_t(r)], Word(deadline_s * 1e9), nullptr, 0};
      teams_.emplace_back(data);
    }
  }
  DeviceWorld(const DeviceWorld&) = delete;
  DeviceWorld& operator=(const DeviceWorld&) = delete;

  int ranks() const { return ranks_; }
  const Team& team(int rank) const { return teams_[std::size_t(rank)]; }
  const detail::LaneFailure& failure(int rank) const { return failures_[std::size_t(rank)]; }
  bool failed() const {
    return std::any_of(failures_.begin(), failures_.end(), [](auto& f) { return f.peer != 0; });
  }
  /// Ends all waits.
  void stop() { detail::HostMemory::store_release(&stop_, 1); }

  /// Runs `kernel(group, team, block)` as one launch of every rank.
  template <class Group, class Kernel>
  void launch(int blocks, Kernel kernel) {
    std::vector<std::thread> threads;
    std::vector<std::unique_ptr<DeviceBlock<Group>>> all;
    for (int r = 0; r < ranks_; ++r) {
      for (int b = 0; b < blocks; ++b) {
        auto& block = *all.emplace_back(std::make_unique<DeviceBlock<Group>>());
        for (int l = 0; l < Group::width; ++l) {
          threads.emplace_back(
              [this, &kernel, &block, r, b, l] { kernel(block.lane(l), team(r), b); });
        }
      }
    }
    for (auto& thread : threads) thread.join();
  }

 private:
  static Packet* lines(std::vector<Packet>& memory, Index bytes) {
    memory.resize(std::size_t(bytes / Index{sizeof(Packet)}) + 9);
    const auto skew = reinterpret_cast<std::uintptr_t>(memory.data()) % 128;
    return memory.data() + (128 - skew) % 128 / sizeof(Packet);
  }

  int ranks_;
  Word stop_ = 0;
  std::vector<detail::LaneFailure> failures_;
  std::vector<std::vector<Packet>> window_;
  std::vector<std::vector<Packet>> scratch_{};
  std::vector<Team> teams_{};
};

}  // namespace ccl::test
