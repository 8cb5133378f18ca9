#pragma once

// Compilers without CUDA see the shared memory only.
#include <ccl/detail/base/ptx_bulk.hpp>
#include <ccl/detail/lanes/strip.hpp>
#include <ccl/types/word.hpp>

namespace ccl::detail {

/// Shared memory of a `BulkCopy`.
template <int Stages, int PieceBytes>
struct BulkCopyShared {
  alignas(128) char piece[Stages][PieceBytes];
  Word full[Stages];
};

#if defined(__CUDACC__)
/// Copies memory by the bulk copy engine of a multiprocessor. One thread loads pieces to shared
/// memory and stores them from there; the registers of the block stay free. `Stages` pieces are in
/// flight: half of them on the way in, the others on the way out. `Early` more are on the way to
/// the cache.
template <int Stages, int PieceBytes, int Early = 0>
class BulkCopy {
  static_assert(Stages % 2 == 0 && PieceBytes % 128 == 0);
  static constexpr int ahead = Stages / 2;

 public:
  using Shared = BulkCopyShared<Stages, PieceBytes>;

  CCL_DEVICE BulkCopy(Shared& shared, char* to, const char* from, const Strip& strip)
      : shared_{shared}, to_{to}, from_{from}, strip_{strip} {}

  /// Runs on one thread. Addresses and sizes are multiples of 16. Returns when the thread sees all
  /// stores.
  CCL_DEVICE void run() {
    for (Word& bar : shared_.full) ptx::bulk_open(&bar);
    ptx::bulk_begin();
    Position in, out, early;
    unsigned loaded = 0;
    for (; loaded < unsigned(ahead) && strip_.holds(in); ++loaded) load(in, loaded);
    if constexpr (Early > 0) {
      early = in;
      for (int n = 0; n < Early; ++n) prefetch(early);
    }
    for (unsigned n = 0; strip_.holds(out); ++n) {
      if constexpr (Early > 0) prefetch(early);
      const unsigned stage = n % Stages, size = strip_.piece(out, PieceBytes);
      ptx::bulk_await_load(&shared_.full[stage], n / Stages & 1u);
      ptx::bulk_store(to_ + out.at, shared_.piece[stage], size);
      strip_.advance(out, size);
      if (!strip_.holds(in)) continue;
      // The next piece goes where piece n - ahead was, which has been read by then.
      ptx::bulk_await_reads<Stages - ahead>();
      load(in, loaded++);
    }
    ptx::bulk_await_stores();
    for (Word& bar : shared_.full) ptx::bulk_close(&bar);
  }

 private:
  using Position = Strip::Position;
  CCL_DEVICE void load(Position& position, unsigned n) {
    const unsigned stage = n % Stages, size = strip_.piece(position, PieceBytes);
    ptx::bulk_load(shared_.piece[stage], from_ + position.at, size, &shared_.full[stage]);
    strip_.advance(position, size);
  }
  CCL_DEVICE void prefetch(Position& position) {
    if (!strip_.holds(position)) return;
    const unsigned size = strip_.piece(position, PieceBytes);
    ptx::bulk_prefetch(from_ + position.at, size);
    strip_.advance(position, size);
  }

  Shared& shared_;
  char* to_;
  const char* from_;
  Strip strip_;
};

/// Bulk copies of a block whose other lanes copy data of this GPU, and of a block whose other lanes
/// are idle.
///
/// Copies of 128 MiB from H200 to H200 and back: beside copies of as much on each GPU, 16 blocks
/// take 369 us by six pieces of 16 KiB, and 410 us by six of 8 KiB. In 32 idle blocks four pieces
/// that are fetched early take 379 us, six of 8 KiB take 390 us (docs/validation/calls.md).
using BusyBulkCopy = BulkCopy<6, 128 * 128>;
using IdleBulkCopy = BulkCopy<4, 93 * 128, 4>;
#endif
/// Shared memory of either. A kernel gets as much only if its launch asks.
union BulkCopyMemory {
  BulkCopyShared<6, 128 * 128> busy;
  BulkCopyShared<4, 93 * 128> idle;
};

}  // namespace ccl::detail
