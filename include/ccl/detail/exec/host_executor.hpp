#pragma once

#include <ccl/detail/lanes/block_epilogue.hpp>
#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/detail/lanes/host_memory.hpp>

namespace ccl::detail {

/// Threads of the lanes of one launch. The destructor waits for their ends. In the library, because
/// a program may be compiled without exceptions.
class LaneThreads {
 public:
  LaneThreads() = default;
  ~LaneThreads() {
    if (threads_ != nullptr) join();
  }
  LaneThreads(const LaneThreads&) = delete;
  LaneThreads& operator=(const LaneThreads&) = delete;
  /// Starts a thread that runs `lane(context, channel)` and takes no signals. Returns false, and
  /// logs the first time, if the system has no thread left.
  bool start(void (*lane)(const void* context, int channel), const void* context, int channel);

 private:
  struct Threads;
  void join();
  Threads* threads_ = nullptr;  // null: none has been started
};

/// Launch of groups of several CPU threads, `run(channels, body)`. Specialized for each such group.
template <class Group>
struct GroupLanes;

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
    if constexpr (Group::width == 1) {
      struct Context {
        const Body& body;
        detail::IdleHook hook;
      };
      const Context context{body, detail::idle_hook};
      constexpr auto lane = [](const void* given, int channel) {
        const auto& of = *static_cast<const Context*>(given);
        detail::idle_hook = of.hook;
        detail::run_lane(of.body, Group{}, channel);
      };
      detail::LaneThreads others;
      int begun = 1;
      while (begun < channels && others.start(lane, &context, begun)) ++begun;
      detail::run_lane(body, Group{}, 0);
      for (int c = begun; c < channels; ++c) detail::run_lane(body, Group{}, c);
    } else {
      detail::GroupLanes<Group>::run(channels, body);
    }
  }
};

}  // namespace ccl::detail
