#pragma once

// Product of matrices of bfloat16 with sums in float, by the tensor cores of sm_90a. A launch has
// one block on each multiprocessor:
// - A loader copies both factors to shared memory, some steps ahead (TMA, 128-byte swizzle).
// - Two warpgroups compute tiles alternately (wgmma). While one multiplies, the other copies or
//   sends the sums of its tile.
#include <ccl/detail/base/ptx_bulk.hpp>
#include <ccl/detail/lanes/device_lanes.cuh>

#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>
#include <cstdlib>

namespace ccl::bench {

/// Barrier in shared memory, whose phases have the parities 0, 1, 0, ... A lane that waits for a
/// phase must have waited for the phase before, or know that it has ended.
struct Barrier {
  Word state;

  CCL_DEVICE unsigned address() const { return ptx::shared_address(&state); }
  CCL_DEVICE void open(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(address()), "r"(arrivals));
  }
  /// Arrives once for a warp. All its lanes call it, and their earlier accesses are released.
  CCL_DEVICE void arrive() {
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(address()) : "memory");
  }
  /// Arrives. The phase then ends when copies have stored `bytes` bytes. One lane calls it.
  CCL_DEVICE void expect(unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(address()), "r"(bytes)
                 : "memory");
  }
  /// Waits for the end of a phase. Its arrivals and copies end the wait, and are then visible.
  CCL_DEVICE void wait(unsigned parity) { ptx::bulk_await_load(&state, parity); }
};

/// Sums of a warpgroup, 128 rows of 128 columns. A lane has two adjacent columns of every eight, in
/// a row and the eighth row below it, of either half of the rows.
struct Sums {
  float of[2][64];

  /// Starts to add a product of 64 x 16 by 16 x 128 to a half of the rows, or to replace them.
  CCL_DEVICE void add(int half, std::uint64_t a, std::uint64_t b, bool replace) {
    float* const to = of[half];
#define CCL_SUM(i) "+f"(to[i]), "+f"(to[i + 1]), "+f"(to[i + 2]), "+f"(to[i + 3])
#define CCL_SUMS(i) CCL_SUM(i), CCL_SUM(i + 4), CCL_SUM(i + 8), CCL_SUM(i + 12)
    asm volatile(
        "{.reg .pred add; setp.eq.u32 add, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
        "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "
        "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "
        "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, add, 1, 1, 0, 1;}"  // signs; the second factor has its rows in memory
        : CCL_SUMS(0), CCL_SUMS(16), CCL_SUMS(32), CCL_SUMS(48)
        : "l"(a), "l"(b), "r"(unsigned(replace)));
#undef CCL_SUMS
#undef CCL_SUM
  }
  /// Precedes the first product after an access to the sums.
  CCL_DEVICE static void begin() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
  CCL_DEVICE static void commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
  }
  /// Waits until all committed products but the last `Left` commits have read the factors.
  template <int Left>
  CCL_DEVICE static void await() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(Left) : "memory");
  }
  /// Waits for all products. No access to the sums moves before it.
  CCL_DEVICE void finish() {
    await<0>();
    CCL_UNROLL for (int i = 0; i < 128; ++i) {
      asm volatile("" : "+f"(of[i / 64][i % 64]) : : "memory");
    }
  }
};

/// Order in which the blocks of a rank compute tiles: first a tile of another rank on each block,
/// then the rank's own tiles among those of the others.
///
/// Tile i of a rank has a later place in the rank's own order than in the order of any other rank.
/// So a block waits only for blocks at earlier places, and some block can always continue.
class TileOrder {
 public:
  struct Tile {
    int owner, number;  // among the tiles of the owner
  };

  CCL_HD TileOrder(int tiles, int rank, int ranks, int blocks)
      : rank_{rank}, ranks_{ranks}, tiles_{tiles}, own_{tiles / ranks} {
    first_ = blocks < tiles - own_ ? blocks : tiles - own_;
  }
  CCL_HD Tile at(int place) const {
    const int own = own_before(place), other = place - own;
    if (own_before(place + 1) > own) return {rank_, own};
    return {(rank_ + 1 + other % (ranks_ - 1)) % ranks_, other / (ranks_ - 1)};
  }

 private:
  CCL_HD int own_before(int place) const {
    return place < first_ ? 0 : int(Index{place - first_} * own_ / (tiles_ - first_));
  }
  int rank_, ranks_;
  int tiles_, own_;  // of all ranks; of one rank
  int first_;        // tiles before the first own one
};

/// Factors of a product, m x k and k x n, as TMA reads them.
struct Factors {
  CUtensorMap a, b;
  int m, n, k;
};

/// Part of one block in a product. Rank r owns the r-th part of the rows.
class Product {
  static constexpr int rows = 128, columns = 128, depth = 64;  // of a tile; of a step
  static constexpr int run = 64;                               // elements in 128 bytes, swizzled
  static constexpr int warp = 32, warpgroup = 128;
  static constexpr int stages = 6;  // 32 KiB each

 public:
  static constexpr int groups = 2;  // that multiply
  using Group = detail::BlockLanes<warpgroup>;
  static constexpr int lanes = groups * warpgroup + warpgroup;  // and the loader's
  static constexpr int side = 64, square_elements = side * side;
  static constexpr int squares = rows / side * (columns / side);  // of a tile

  /// Square of sums that a group has at once.
  struct Square {
    int owner, number;  // among the squares of the owner
    int row, column;    // of its first element in the product
  };

  /// Returns the factors, whose rows are adjacent in memory.
  static Factors factors(const __nv_bfloat16* a, const __nv_bfloat16* b, int m, int n, int k) {
    return {describe(a, m, k, rows, depth), describe(b, k, n, depth, columns), m, n, k};
  }
  /// True if the matrices have whole tiles, and the same number for each rank.
  static constexpr bool divides(int m, int n, int k, int ranks) {
    return m % (rows * ranks) == 0 && n % columns == 0 && k % depth == 0;
  }
  CCL_HD static constexpr int tiles(int m, int n) { return m / rows * (n / columns); }
  /// Returns the bytes of dynamic shared memory.
  static constexpr int shared_bytes() { return sizeof(Shared); }

  /// All lanes of the block construct it. `factors` is the kernel's argument, for which `divides`
  /// is true.
  CCL_DEVICE Product(const Factors& factors, int rank, int ranks)
      : factors_{factors}, rank_{rank}, ranks_{ranks} {
    extern __shared__ __align__(1024) char product_memory[];
    shared_ = reinterpret_cast<Shared*>(product_memory);
    if (threadIdx.x == 0) {
      for (int i = 0; i < stages; ++i) {
        shared_->loaded[i].open(1);
        shared_->multiplied[i].open(warpgroup / warp);
      }
      for (Barrier& turn : shared_->turn) turn.open(warpgroup / warp);
      ptx::bulk_begin();
    }
    __syncthreads();
  }

  /// Returns the number of this lane's group; that after the last one for the loader.
  CCL_DEVICE static int group() { return int(threadIdx.x) / warpgroup; }
  /// Loads the factors. The lanes of the loader call it.
  CCL_DEVICE void load() const;
  /// Multiplies, and calls `f(square, sums)` for each square of this group. `sums`, in shared
  /// memory, has elements in the order of `place`, and `f` may change them. All lanes of the groups
  /// call it.
  template <class F>
  CCL_DEVICE void multiply(F f) const;

  /// Copies a square to rows of a matrix that has `width` columns. All lanes of a group call it.
  CCL_DEVICE static void copy(const float* sums, float* to, int width) {
    constexpr int each = 4, across = side / each;  // elements of a load; loads of a row
    constexpr int step = warpgroup / across;       // rows at once
    const int lane = Group{}.rank(), column = lane % across * each;
    to += Index{lane / across} * width + column;
    _Pragma("unroll 4") for (int row = lane / across; row < side; row += step) {
      *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(sums + place(row, column));
      to += Index{step} * width;
    }
  }
  /// Returns the place of an element in a square. Rows have different orders of their eighths, so
  /// that a warp's stores to eight rows reach different banks.
  CCL_DEVICE static int place(int row, int column) { return row * side + (column ^ row % 8 * 8); }

 private:
  struct Stage {
    __nv_bfloat16 a[rows * depth];     // rows of 64
    __nv_bfloat16 b[depth * columns];  // rows of 64; two such blocks side by side
  };
  struct Shared {
    Stage stage[stages];
    float sums[groups][square_elements];
    Barrier loaded[stages], multiplied[stages];
    Barrier turn[groups];  // of a group: the other one has started its products
  };

  /// StageIndex in the ring of stages. A stage is filled and emptied by turns.
  struct StageIndex {
    int at = 0;
    unsigned filled = 0;                                        // parity of the phase that fills it
    CCL_DEVICE unsigned emptied() const { return filled ^ 1; }  // and of the phase before
    CCL_DEVICE void advance() {
      if (++at < stages) return;
      at = 0;
      filled ^= 1;
    }
    CCL_DEVICE void advance(int steps) {
      filled ^= unsigned((at + steps) / stages % 2);
      at = (at + steps) % stages;
    }
  };

  static CUtensorMap describe(const __nv_bfloat16* matrix, int height, int width, int box_height,
                              int box_width) {
    const cuuint64_t sizes[] = {run, cuuint64_t(height), cuuint64_t(width / run)};
    const cuuint64_t strides[] = {width * sizeof *matrix, run * sizeof *matrix};
    const cuuint32_t box[] = {run, cuuint32_t(box_height), cuuint32_t(box_width / run)};
    const cuuint32_t ones[] = {1, 1, 1};
    CUtensorMap map{};
    const CUresult result = cuTensorMapEncodeTiled(
        &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<__nv_bfloat16*>(matrix), sizes,
        strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) std::abort();
    return map;
  }
  CCL_DEVICE static void copy_box(void* to, const CUtensorMap& from, int row, int column,
                                  const Barrier& bar) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4}], [%5];"
        :
        : "r"(ptx::shared_address(to)), "l"(&from), "r"(0), "r"(row), "r"(column / run),
          "r"(bar.address())
        : "memory");
  }
  /// Returns the descriptor of a swizzled matrix in shared memory. Eight rows of 128 bytes follow
  /// each other, and `block_bytes` is the distance of blocks side by side.
  CCL_DEVICE static std::uint64_t descriptor(const __nv_bfloat16* at, int block_bytes) {
    constexpr std::uint64_t swizzle_128 = std::uint64_t{1} << 62, eight_rows = 8 * 128;
    return swizzle_128 | eight_rows / 16 << 32 | std::uint64_t(block_bytes / 16) << 16 |
           ptx::shared_address(at) / 16;
  }

  /// Calls `f(tile, row, column)` for the tiles of this block, with the place of their first
  /// elements. The loader and the groups have the same order.
  template <class F>
  CCL_DEVICE void for_each_tile(F f) const {
    const int all = tiles(factors_.m, factors_.n), down = factors_.m / rows / ranks_;
    const TileOrder order{all, rank_, ranks_, int(gridDim.x)};
    CCL_ROLL for (int i = int(blockIdx.x); i < all; i += int(gridDim.x)) {
      const TileOrder::Tile tile = order.at(i);
      f(tile, (tile.owner * down + tile.number % down) * rows, tile.number / down * columns);
    }
  }
  /// Computes the sums of a tile.
  CCL_DEVICE void multiply(Sums& sums, StageIndex& place, Barrier& next) const;
  /// Stores a square of the sums.
  CCL_DEVICE static void store(const Sums& sums, int down, int right, float* to);

  const Factors& factors_;
  const int rank_, ranks_;
  Shared* shared_;
};

CCL_DEVICE void Product::load() const {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
  if (int(threadIdx.x) != groups * warpgroup) return;
  StageIndex place;
  for_each_tile([&](TileOrder::Tile, int row, int column) {
    for (int at = 0; at < factors_.k; at += depth) {
      Stage& stage = shared_->stage[place.at];
      Barrier& loaded = shared_->loaded[place.at];
      shared_->multiplied[place.at].wait(place.emptied());
      loaded.expect(sizeof stage);
      copy_box(stage.a, factors_.a, row, at, loaded);
      copy_box(stage.b, factors_.b, at, column, loaded);
      place.advance();
    }
  });
}

template <class F>
CCL_DEVICE void Product::multiply(F f) const {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int steps = factors_.k / depth, me = group();
  float* const square = shared_->sums[me];
  StageIndex place;
  unsigned parity = me == 0 ? 1 : 0;  // of this group's turn; the first one is there from the start
  int others = me;                    // tiles of the other group before this group's next one
  for_each_tile([&](TileOrder::Tile tile, int row, int column) {
    if (others-- > 0) return place.advance(steps);
    others = groups - 1;
    Sums sums;
    shared_->turn[me].wait(parity);
    parity ^= 1;
    multiply(sums, place, shared_->turn[groups - 1 - me]);
    CCL_ROLL for (int s = 0; s < squares; ++s) {
      Group{}.sync();  // the last square has been read
      CCL_UNROLL for (int i = 0; i < squares; ++i) {
        if (i == s) store(sums, i / 2, i % 2, square);  // sums are registers, which have no index
      }
      Group{}.sync();
      f(Square{tile.owner, tile.number * squares + s, row + s / 2 * side, column + s % 2 * side},
        square);
    }
  });
}

CCL_DEVICE void Product::multiply(Sums& sums, StageIndex& place, Barrier& next) const {
  constexpr int inner = 16;   // of one instruction
  Barrier* before = nullptr;  // of the step whose products may be under way
  for (int at = 0; at < factors_.k; at += depth) {
    const Stage& stage = shared_->stage[place.at];
    shared_->loaded[place.at].wait(place.filled);
    const std::uint64_t a = descriptor(stage.a, 0);
    const std::uint64_t b = descriptor(stage.b, depth * run * int(sizeof *stage.b));
    Sums::begin();
    CCL_UNROLL for (int i = 0; i < depth; i += inner) {
      CCL_UNROLL for (int half = 0; half < 2; ++half) {
        // 16 columns of half of the rows of `a`, 16 rows of `b`; addresses count 16 bytes
        sums.add(half, a + unsigned((half * side * run + i) * 2 / 16),
                 b + unsigned(i * run * 2 / 16), at + i == 0);
      }
    }
    Sums::commit();
    Sums::await<1>();
    if (before != nullptr) before->arrive();
    before = &shared_->multiplied[place.at];
    place.advance();
  }
  next.arrive();
  sums.finish();
  before->arrive();
}

CCL_DEVICE void Product::store(const Sums& sums, int down, int right, float* to) {
  const int lane = Group{}.rank();
  const int row = lane / warp * 16 + lane % warp / 4, column = lane % 4 * 2;
  CCL_UNROLL for (int i = 0; i < side / 8; ++i) {
    const float* const of = sums.of[down] + (right * side / 8 + i) * 4;
    *reinterpret_cast<float2*>(to + place(row, column + 8 * i)) = {of[0], of[1]};
    *reinterpret_cast<float2*>(to + place(row + 8, column + 8 * i)) = {of[2], of[3]};
  }
}

}  // namespace ccl::bench
