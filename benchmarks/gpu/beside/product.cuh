#pragma once

// Product of matrices of bfloat16 with sums in float, by the tensor cores of sm_90a. A launch has
// one block on each multiprocessor, whose warps have roles:
// - A loader copies both factors to shared memory, some steps ahead (TMA, 128-byte swizzle).
// - Two warpgroups multiply them (wgmma). Each has half of the rows of a tile.
// - Three senders take the sums of a tile from shared memory, a square each.
// Shared memory has room for at most half of a tile's sums. The next tile begins when the senders
// have taken the other half.
#include <ccl/detail/base/ptx_bulk.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>
#include <cstdlib>

namespace ccl::bench {

/// Barrier in shared memory, whose phases have the parities 0, 1, 0, ... A lane that waits at it
/// must wait for each of its phases.
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
  /// Waits for the end of a phase. Arrivals and copies end it, and what they released is visible.
  CCL_DEVICE void wait(unsigned parity) { ptx::bulk_await_load(&state, parity); }
};

/// Place in a ring of N buffers, which are filled and emptied alternately.
template <int N>
struct Ring {
  int at = 0;
  unsigned filled = 0;  // parity of the phase that fills the buffer
  /// Returns the parity of the phase before, which empties it.
  CCL_DEVICE unsigned emptied() const { return filled ^ 1; }
  CCL_DEVICE void advance() {
    if (++at < N) return;
    at = 0;
    filled ^= 1;
  }
};

/// Sums of a warpgroup, 64 rows of 256 columns. A lane has two adjacent columns of every eight, in
/// a row and in the eighth row below it.
struct Sums {
  float of[128];

  /// Starts to add a product of 64 x 16 by 16 x 256, or to replace the sums by it. `a` and `b` are
  /// descriptors of the factors.
  CCL_DEVICE void add(std::uint64_t a, std::uint64_t b, bool replace) {
#define CCL_SUM(i) "+f"(of[i]), "+f"(of[i + 1]), "+f"(of[i + 2]), "+f"(of[i + 3])
#define CCL_SUMS(i) CCL_SUM(i), CCL_SUM(i + 4), CCL_SUM(i + 8), CCL_SUM(i + 12)
    asm volatile(
        "{.reg .pred add; setp.eq.u32 add, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
        "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
        "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "
        "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, "
        "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, "
        "%87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, "
        "%103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, "
        "%117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, add, 1, 1, 0, 1;}"  // signs; the second factor has its rows in memory
        : CCL_SUMS(0), CCL_SUMS(16), CCL_SUMS(32), CCL_SUMS(48), CCL_SUMS(64), CCL_SUMS(80),
          CCL_SUMS(96), CCL_SUMS(112)
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
  /// Waits for all products. The compiler moves no access to the sums before it.
  CCL_DEVICE void finish() {
    await<0>();
    CCL_UNROLL for (float& sum : of) asm volatile("" : "+f"(sum) : : "memory");
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
///
/// - `Stages`: steps of the inner dimension that shared memory holds.
/// - `Buffers`: squares of sums of either half that it holds.
/// 4 and 1, or 3 and 2, fit a multiprocessor.
template <int Stages, int Buffers>
class Product {
  static constexpr int rows = 128, columns = 256, depth = 64;  // of a tile; of a step
  static constexpr int halves = 2, half_rows = rows / halves;  // warpgroups, and rows of each
  static constexpr int run = 64;                               // elements in 128 bytes, swizzled
  static constexpr int warpgroup = 128, warp = 32, multipliers = halves * warpgroup;

 public:
  static constexpr int senders = 3;  // warps
  static constexpr int lanes = multipliers + warp * (1 + senders);
  static constexpr int side = half_rows, square_elements = side * side;
  static constexpr int squares = rows / side * (columns / side);  // of a tile

  /// Sums of a tile that a sender gets at once.
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
      for (int i = 0; i < Stages; ++i) {
        shared_->loaded[i].open(1);
        shared_->multiplied[i].open(multipliers / warp);
      }
      for (int half = 0; half < halves; ++half) {
        for (auto& written : shared_->written[half]) written.open(warpgroup / warp);
        for (auto& sent : shared_->sent[half]) sent.open(1);
      }
      ptx::bulk_begin();
    }
    __syncthreads();
  }

  /// Loads or multiplies on the lanes of these roles. Returns false on the others, the senders.
  [[nodiscard]] CCL_DEVICE bool compute() const {
    const int lane = int(threadIdx.x);
    if (lane < multipliers) multiply(lane / warpgroup, lane % warpgroup);
    if (lane == multipliers) load();
    return lane < multipliers + warp;
  }
  /// Returns the number of this sender.
  CCL_DEVICE int sender() const { return int(threadIdx.x) / warp - multipliers / warp - 1; }
  /// Calls `f(square, sums)` for each square of this sender. `sums`, in shared memory, has elements
  /// in the order of `place`, and `f` may change them. All lanes of the senders call it.
  template <class F>
  CCL_DEVICE void for_each_square(F f) const {
    Ring<Buffers> ring;
    Ring<senders> turn;
    int others = sender();  // squares of the other senders before the next one
    for_each_tile([&](TileOrder::Tile tile, int row, int column) {
      CCL_ROLL for (int s = 0; s < squares; ++s) {
        const int half = s % halves, right = s / halves;
        if (others-- == 0) {
          others = senders - 1;
          shared_->written[half][turn.at].wait(turn.filled);
          f(Square{tile.owner, tile.number * squares + s, row + half * side, column + right * side},
            shared_->sums[half][ring.at]);
          shared_->sent[half][ring.at].arrive();
        }
        if (half == halves - 1) ring.advance(), turn.advance();
      }
    });
  }
  /// Copies a square to rows of a matrix that has `width` columns. All lanes of a sender call it.
  CCL_DEVICE static void copy(const float* sums, float* to, int width) {
    constexpr int each = 4, across = side / each;  // elements of a load; loads of a row
    _Pragma("unroll 8") for (int i = int(threadIdx.x) % warp; i < side * across; i += warp) {
      const int row = i / across, column = i % across * each;
      *reinterpret_cast<float4*>(to + Index{row} * width + column) =
          *reinterpret_cast<const float4*>(sums + place(row, column));
    }
  }
  /// Returns the place of an element in a square. Rows have different orders of their eighths, so
  /// that a warp's stores to eight rows reach different banks.
  CCL_DEVICE static int place(int row, int column) { return row * side + (column ^ row % 8 * 8); }

 private:
  struct Stage {
    __nv_bfloat16 a[rows * depth];     // rows of 64
    __nv_bfloat16 b[depth * columns];  // rows of 64; four such blocks side by side
  };
  struct Shared {
    Stage stage[Stages];
    float sums[halves][Buffers][square_elements];
    Barrier loaded[Stages], multiplied[Stages];
    Barrier written[halves][senders];  // one for each sender: only it waits there, for each phase
    Barrier sent[halves][Buffers];
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

  /// Calls `f(tile, row, column)` for the tiles of this block, with the place of their first
  /// elements. All roles have the same order.
  template <class F>
  CCL_DEVICE void for_each_tile(F f) const {
    const int all = tiles(factors_.m, factors_.n), down = factors_.m / rows / ranks_;
    const TileOrder order{all, rank_, ranks_, int(gridDim.x)};
    for (int i = int(blockIdx.x); i < all; i += int(gridDim.x)) {
      const TileOrder::Tile tile = order.at(i);
      f(tile, (tile.owner * down + tile.number % down) * rows, tile.number / down * columns);
    }
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
  CCL_DEVICE void load() const {
    Ring<Stages> ring;
    for_each_tile([&](TileOrder::Tile, int row, int column) {
      for (int at = 0; at < factors_.k; at += depth) {
        Stage& stage = shared_->stage[ring.at];
        Barrier& loaded = shared_->loaded[ring.at];
        shared_->multiplied[ring.at].wait(ring.emptied());
        loaded.expect(sizeof stage);
        copy_box(stage.a, factors_.a, row, at, loaded);
        copy_box(stage.b, factors_.b, at, column, loaded);
        ring.advance();
      }
    });
  }

  /// Returns the descriptor of a swizzled matrix in shared memory. Eight rows of 128 bytes follow
  /// each other, and `block_bytes` is the distance of blocks side by side.
  CCL_DEVICE static std::uint64_t descriptor(const __nv_bfloat16* at, int block_bytes) {
    constexpr std::uint64_t swizzle_128 = std::uint64_t{1} << 62, eight_rows = 8 * 128;
    return swizzle_128 | eight_rows / 16 << 32 | std::uint64_t(block_bytes / 16) << 16 |
           ptx::shared_address(at) / 16;
  }
  CCL_DEVICE void multiply(int half, int lane) const {
    constexpr int inner = 16;  // of one instruction
    Ring<Stages> ring;
    Ring<Buffers> out;
    Ring<senders> turn;
    for_each_tile([&](TileOrder::Tile, int, int) {
      Sums sums;
      Barrier* before = nullptr;  // of the last step, whose products may be under way
      for (int at = 0; at < factors_.k; at += depth) {
        const Stage& stage = shared_->stage[ring.at];
        shared_->loaded[ring.at].wait(ring.filled);
        const std::uint64_t a = descriptor(stage.a + half * half_rows * depth, 0);
        const std::uint64_t b = descriptor(stage.b, depth * run * int(sizeof *stage.b));
        Sums::begin();
        CCL_UNROLL for (int i = 0; i < depth; i += inner) {
          // The next 16 columns of `a` and rows of `b`. Addresses are in units of 16 bytes.
          sums.add(a + unsigned(i * 2 / 16), b + unsigned(i * run * 2 / 16), at + i == 0);
        }
        Sums::commit();
        Sums::await<1>();
        if (before != nullptr) before->arrive();
        before = &shared_->multiplied[ring.at];
        ring.advance();
      }
      sums.finish();
      before->arrive();
      const int row = lane / warp * 16 + lane % warp / 4, column = lane % 4 * 2;
      CCL_UNROLL for (int s = 0; s < columns / side; ++s) {
        shared_->sent[half][out.at].wait(out.emptied());
        float* const square = shared_->sums[half][out.at];
        CCL_UNROLL for (int i = 0; i < side / 8; ++i) {
          const float* const of = sums.of + (s * side / 8 + i) * 4;
          for (int below : {0, 1}) {
            *reinterpret_cast<float2*>(square + place(row + 8 * below, column + 8 * i)) = {
                of[2 * below], of[2 * below + 1]};
          }
        }
        shared_->written[half][turn.at].arrive();
        out.advance(), turn.advance();
      }
    });
  }

  const Factors& factors_;
  const int rank_, ranks_;
  Shared* shared_;
};

}  // namespace ccl::bench
