#pragma once

// In the place of ccl's header of this name, where tests play GPUs on the CPU: the same groups of
// lanes, of threads that are fibers.
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/proto/lane_group.hpp>

#include <cmath>
#include <cstring>

#include "support/played/cuda_language.hpp"

namespace ccl::ptx {
inline void launch_dependents() {
  test::played::launch_dependents();
}
inline void wait_for_previous() {
  test::played::await_previous();
}
}  // namespace ccl::ptx

namespace ccl::detail {

/// Memory as played lanes see it. A line does not land whole, because its lanes store in turn.
struct DeviceMemory {
  static constexpr bool lines_land_whole = false;

  static Word load_relaxed(const Word* at) { return HostMemory::load_relaxed(at); }
  static Word load_acquire(const Word* at) { return HostMemory::load_acquire(at); }
  static Word load_credit(const Word* at) { return HostMemory::load_credit(at); }
  // Not counted as progress: waiting lanes keep a record.
  static void store_relaxed(Word* at, Word value) { HostMemory::store_relaxed(at, value); }
  static void store_release(Word* at, Word value) {
    ++test::played::stores_here;
    HostMemory::store_release(at, value);
  }
  static void store_credit(Word* at, Word value) { store_release(at, value); }
  static Word fetch_add(Word* at, Word value) {
    ++test::played::stores_here;
    return HostMemory::fetch_add(at, value);
  }

  static Packet load_relaxed(const Packet* at) { return HostMemory::load_relaxed(at); }
  static void store_relaxed(Packet* at, Packet value) {
    ++test::played::stores_here;
    HostMemory::store_relaxed(at, value);
  }
  static Packet load_bulk(const Packet* at) { return *at; }
  static void store_bulk(Packet* at, Packet value) {
    ++test::played::stores_here;
    *at = value;
  }

  static constexpr unsigned check_every = 256;  // polls, between which all other lanes poll
  static void pause() { test::played::pause(); }
  static void await_previous() { test::played::await_previous(); }
  static Word now_ns() { return HostMemory::now_ns(); }
};
static_assert(Memory<DeviceMemory>);

/// The lanes of the calling warp.
struct WarpLanes {
  static constexpr int width = int(test::played::warp_width);
  using Memory = DeviceMemory;
  int rank() const { return int(threadIdx.x) % width; }
  void sync() const { test::played::warp().sync(); }
  bool all(bool vote) const { return test::played::warp().all(vote); }
  float max(float value) const {
    return fold(test::played::warp(), value, rank(), [](float a, float b) { return fmaxf(a, b); });
  }
  Word from(Word word, int lane) const { return test::played::shuffle(word, lane); }
  float block_sum(float value) const {
    return block_fold(value, [](float a, float b) { return a + b; });
  }
  float block_max(float value) const {
    return block_fold(value, [](float a, float b) { return fmaxf(a, b); });
  }

 private:
  template <class F>
  static float fold(test::played::Team& team, float value, int rank, F f) {
    float result = 0;
    bool first = true;
    Word word = 0;
    std::memcpy(&word, &value, sizeof value);
    team.each(word, unsigned(rank), [&](Word of) {
      float other;
      std::memcpy(&other, &of, sizeof other);
      result = first ? other : f(result, other);
      first = false;
    });
    return result;
  }
  template <class F>
  static float block_fold(float value, F f) {
    return fold(test::played::block_team(), value, int(threadIdx.x), f);
  }
};
static_assert(ReducingLanes<WarpLanes>);

/// As many warps as `Width` threads of a GPU.
template <int Width>
struct BlockLanes {
  static constexpr int width = Width / 32 * WarpLanes::width;
  using Memory = DeviceMemory;
  int rank() const { return int(threadIdx.x) % width; }
  void sync() const { test::played::team(width).sync(); }
  bool all(bool vote) const { return test::played::team(width).all(vote); }
};
static_assert(LaneGroup<BlockLanes<128>>);

}  // namespace ccl::detail

namespace ccl {

/// Parts of a block: its warps.
template <int Width>
struct Parts<detail::BlockLanes<Width>> {
  using Group = detail::BlockLanes<Width>;
  using Part = detail::WarpLanes;
  static constexpr int count = Group::width / Part::width;
  static Part part(Group) { return {}; }
  static int index(Group) { return int(threadIdx.x) % Group::width / Part::width; }
  static constexpr bool shares = true;
  template <class T>
  static T& shared(Group) {
    return test::played::this_lane->block.shared<T>(int(threadIdx.x) / Group::width);
  }
};

}  // namespace ccl
