#pragma once

#include <ccl/detail/base/ptx.hpp>
#include <ccl/proto/lane_group.hpp>

namespace ccl::detail {

/// Memory as GPU threads see it, own and peers' alike.
struct DeviceMemory {
  static constexpr bool lines_land_whole = true;  // eight lanes x 16 bytes: one NVLink transaction

  CCL_DEVICE static Word load_relaxed(const Word* at) { return ptx::load_relaxed(at); }
  CCL_DEVICE static Word load_acquire(const Word* at) { return ptx::load_acquire(at); }
  CCL_DEVICE static void store_relaxed(Word* at, Word value) { ptx::store_relaxed(at, value); }
  CCL_DEVICE static void store_release(Word* at, Word value) { ptx::store_release(at, value); }
  // Relaxed is enough for credits: the loads have returned (someone looked at their values), and a
  // GPU does not store on speculation. A release here would wait for the peers' memory, 1 us.
  CCL_DEVICE static Word load_credit(const Word* at) { return ptx::load_relaxed(at); }
  CCL_DEVICE static void store_credit(Word* at, Word value) { ptx::store_relaxed(at, value); }
  CCL_DEVICE static Word fetch_add(Word* at, Word value) { return ptx::fetch_add(at, value); }

  CCL_DEVICE static Packet load_relaxed(const Packet* at) { return ptx::load_relaxed(at); }
  CCL_DEVICE static void store_relaxed(Packet* at, Packet value) { ptx::store_relaxed(at, value); }
  CCL_DEVICE static Packet load_bulk(const Packet* at) { return ptx::load_relaxed(at); }
  CCL_DEVICE static void store_bulk(Packet* at, Packet value) { ptx::store_weak(at, value); }

  static constexpr unsigned check_every = 4096;  // polls: some milliseconds
  CCL_DEVICE static void pause() {}
  CCL_DEVICE static void await_previous() { ptx::wait_for_previous(); }
  CCL_DEVICE static Word now_ns() { return ptx::now_ns(); }
};
static_assert(Memory<DeviceMemory>);

/// The 32 lanes of the calling warp.
struct WarpLanes {
  static constexpr int width = 32;
  using Memory = DeviceMemory;
  CCL_DEVICE int rank() const { return int(threadIdx.x % width); }
  CCL_DEVICE void sync() const { __syncwarp(); }
  CCL_DEVICE bool all(bool vote) const { return __all_sync(0xffff'ffffu, vote); }
  CCL_DEVICE float max(float value) const { return fold<Greater>(value); }
  CCL_DEVICE Word from(Word word, int lane) const { return __shfl_sync(0xffff'ffffu, word, lane); }
  // A block reduces by pairs of lanes in each warp, then by pairs of warps.
  CCL_DEVICE float block_sum(float value) const { return block_fold<Plus>(value, 0); }
  CCL_DEVICE float block_max(float value) const { return block_fold<Greater>(value, -INFINITY); }

 private:
  struct Plus {
    CCL_DEVICE static float of(float a, float b) { return a + b; }
  };
  struct Greater {
    CCL_DEVICE static float of(float a, float b) { return fmaxf(a, b); }
  };
  /// Both lanes of a pair add the same two numbers, so all lanes have the same bits.
  template <class F>
  CCL_DEVICE static float fold(float value) {
    CCL_UNROLL for (int far = width / 2; far > 0; far /= 2) {
      value = F::of(value, __shfl_xor_sync(0xffff'ffffu, value, far));
    }
    return value;
  }
  template <class F>
  CCL_DEVICE float block_fold(float value, float neutral) const {
    __shared__ float of_warp[width];  // a block has at most as many warps as a warp has lanes
    value = fold<F>(value);
    __syncthreads();  // everybody has read what the last call left
    if (rank() == 0) of_warp[threadIdx.x / width] = value;
    __syncthreads();
    return fold<F>(rank() < int(blockDim.x) / width ? of_warp[rank()] : neutral);
  }
};
static_assert(ReducingLanes<WarpLanes>);

/// The calling thread alone.
struct ThreadLane {
  static constexpr int width = 1;
  using Memory = DeviceMemory;
  CCL_DEVICE int rank() const { return 0; }
  CCL_DEVICE void sync() const {}
  CCL_DEVICE bool all(bool vote) const { return vote; }
};
static_assert(LaneGroup<ThreadLane>);

/// `Width` consecutive threads of a block, a multiple of 32. Up to 15 such groups in one block.
template <int Width>
struct BlockLanes {
  static constexpr int width = Width;
  using Memory = DeviceMemory;
  using Half = BlockLanes<Width / 2>;  // either half of the lanes
  using Alone = ThreadLane;            // one of them
  CCL_DEVICE int rank() const { return int(threadIdx.x % width); }
  // The barriers want whole warps: lanes that polled apart meet first.
  CCL_DEVICE void sync() const {
    __syncwarp();
    ptx::barrier(id(), width);
  }
  CCL_DEVICE bool all(bool vote) const {
    __syncwarp();
    return ptx::barrier_all(id(), width, vote);
  }

 private:
  CCL_DEVICE static int id() { return 1 + int(threadIdx.x / width); }
};
static_assert(LaneGroup<BlockLanes<128>>);

}  // namespace ccl::detail

namespace ccl {

/// Parts of a block: its warps.
template <int Width>
struct Parts<detail::BlockLanes<Width>> {
  using Part = detail::WarpLanes;
  static constexpr int count = Width / detail::WarpLanes::width;
  CCL_DEVICE static Part part(detail::BlockLanes<Width>) { return {}; }
  CCL_DEVICE static int index(detail::BlockLanes<Width>) {
    // The same for all of a warp, which the compiler cannot know.
    return __shfl_sync(0xffff'ffffu, int(threadIdx.x % Width) / detail::WarpLanes::width, 0);
  }
  static constexpr bool shares = true;
  template <class T>
  CCL_DEVICE static T& shared(detail::BlockLanes<Width>) {
    __shared__ T of_group[1024 / Width];
    return of_group[threadIdx.x / Width];
  }
};

}  // namespace ccl
