#pragma once

#include <ccl/host_lanes.hpp>
#include <ccl/proto/wire_context.hpp>

#include <thread>
#include <vector>

namespace ccl {
namespace detail {
/// The lanes of one group, made of CPU threads.
template <class Group>
struct HostCrew;
template <>
struct HostCrew<SoloLane> {
  SoloLane lane(int) { return {}; }
};
template <int Width>
struct HostCrew<ThreadLanes<Width>> {
  typename ThreadLanes<Width>::Team team;
  ThreadLanes<Width> lane(int rank) { return {team, rank}; }
};
}  // namespace detail

/// Runs a rank's part of one collective on CPU lanes: a group for each channel. Channel 0 of
/// `SoloLane` runs on the calling thread, everything else on threads of its own. Returns when all
/// lanes are done or have given up.
struct HostExecutor {
  template <class Op, class Algo, class Proto, class Group, int Align, class R>
  static void run(const WireWork<R>& work) {
    if constexpr (Group::width == 1) {
      std::vector<std::thread> others;
      for (int c = 1; c < work.channels; ++c) {
        others.emplace_back(
            [&work, c] { channel<Op, Algo, Proto, Group, Align>(Group{}, work, c); });
      }
      channel<Op, Algo, Proto, Group, Align>(Group{}, work, 0);
      for (auto& thread : others) thread.join();
    } else {
      std::vector<detail::HostCrew<Group>> crews(work.channels);
      std::vector<std::thread> threads;
      for (int c = 0; c < work.channels; ++c) {
        for (int l = 0; l < Group::width; ++l) {
          threads.emplace_back([&work, &crews, c, l] {
            channel<Op, Algo, Proto, Group, Align>(crews[c].lane(l), work, c);
          });
        }
      }
      for (auto& thread : threads) thread.join();
    }
  }

 private:
  template <class Op, class Algo, class Proto, class Group, int Align, class R>
  static void channel(Group group, const WireWork<R>& work, int c) {
    WireContext<Group, Proto, R, Align> context{group, work, c};
    Algo::run(Op{}, context);
  }
};

}  // namespace ccl
