#pragma once

#include <ccl/detail/lanes/block_epilogue.hpp>
#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/detail/lanes/host_memory.hpp>

#include <thread>
#include <vector>

namespace ccl::detail {
/// Starts a thread that runs `lane(context, channel)` and takes no signals. Returns false, and logs
/// the first time, if the system has no thread left. In the library, because a program may be
/// compiled without exceptions.
bool start_lane(std::vector<std::thread>& threads, void (*lane)(const void* context, int channel),
                const void* context, int channel);

/// Lanes of one group of several CPU threads: `lane(rank)` returns the handle of one. Specialized
/// for each such group.
template <class Group>
struct HostBlock;

/// Runs one lane of one channel. An exception of the user's functor ends the program, as in a
/// thread, because the peers would wait for the missing steps.
template <class Body, class Group>
void run_lane(const Body& body, Group group, int channel) noexcept {
  if constexpr (HasBlockEpilogue<Body>) {
    const auto left = body(group, channel);
    group.sync();  // every lane has read the data that end() overwrites
    body.end(left, channel, group.rank(), Group::width);
  } else {
    body(group, channel);
  }
}

/// Runs one launch on CPU lanes: `body(group, channel)` for each channel, on one group per channel.
/// Returns when all lanes have completed or failed. All threads help the proxy of the caller.
///
/// Channel 0 of `SoloLane` runs on the calling thread, every other lane on a new thread. If the
/// system creates no thread, the remaining channels follow channel 0 on the calling thread, in
/// order. They complete: every rank works on the first channel that some rank has not done.
struct HostExecutor {
  template <LaneGroup Group, class Body>
  static void run(int channels, const Body& body) {
    const detail::IdleHook hook = detail::idle_hook;
    if constexpr (Group::width == 1) {
      std::vector<std::thread> others;
      int begun = 1;
      struct Context {
        const Body& body;
        detail::IdleHook hook;
      };
      const Context context{body, hook};
      const auto start = [&](int n) {
        constexpr auto lane = [](const void* given, int channel) {
          const auto& of = *static_cast<const Context*>(given);
          detail::idle_hook = of.hook;
          detail::run_lane(of.body, Group{}, channel);
        };
        return detail::start_lane(others, lane, &context, n);
      };
      while (begun < channels && start(begun)) ++begun;
      detail::run_lane(body, Group{}, 0);
      for (int c = begun; c < channels; ++c) detail::run_lane(body, Group{}, c);
      for (auto& thread : others) thread.join();
    } else {
      std::vector<detail::HostBlock<Group>> blocks(channels);
      std::vector<std::thread> threads;
      for (int c = 0; c < channels; ++c) {
        for (int l = 0; l < Group::width; ++l) {
          threads.emplace_back([&body, &blocks, hook, c, l] {
            detail::idle_hook = hook;
            detail::run_lane(body, blocks[c].lane(l), c);
          });
        }
      }
      for (auto& thread : threads) thread.join();
    }
  }
};

}  // namespace ccl::detail
