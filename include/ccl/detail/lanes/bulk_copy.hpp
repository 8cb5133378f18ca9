#pragma once

// Compilers without CUDA see the shared memory only.
#include <ccl/detail/base/ptx_bulk.hpp>
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

  CCL_DEVICE BulkCopy(Shared& shared, char* to, const char* from, Index bytes)
      : shared_{shared}, to_{to}, from_{from}, bytes_{bytes} {}

  /// Runs on one thread. Addresses and `bytes` are multiples of 16. Returns when the thread sees
  /// all stores.
  CCL_DEVICE void run() {
    for (Word& bar : shared_.full) ptx::bulk_open(&bar);
    ptx::bulk_begin();
    const Index pieces = div_up<Index>(bytes_, PieceBytes);
    for (Index n = 0; n < ahead && n < pieces; ++n) load(n);
    for (Index n = ahead; n < ahead + Early; ++n) prefetch(n);
    for (Index n = 0; n < pieces; ++n) {
      if constexpr (Early > 0) prefetch(n + ahead + Early);
      const int stage = int(n % Stages);
      ptx::bulk_await_load(&shared_.full[stage], unsigned(n / Stages) & 1u);
      ptx::bulk_store(to_ + n * PieceBytes, shared_.piece[stage], size(n));
      if (n + ahead >= pieces) continue;
      // The next piece goes where piece n - ahead was, which has been read by then.
      ptx::bulk_await_reads<Stages - ahead>();
      load(n + ahead);
    }
    ptx::bulk_await_stores();
    for (Word& bar : shared_.full) ptx::bulk_close(&bar);
  }

 private:
  CCL_DEVICE unsigned size(Index n) const {
    const Index left = bytes_ - n * PieceBytes;
    return unsigned(left < PieceBytes ? left : PieceBytes);
  }
  CCL_DEVICE void load(Index n) {
    const int stage = int(n % Stages);
    ptx::bulk_load(shared_.piece[stage], from_ + n * PieceBytes, size(n), &shared_.full[stage]);
  }

  CCL_DEVICE void prefetch(Index n) {
    if (n * PieceBytes < bytes_) ptx::bulk_prefetch(from_ + n * PieceBytes, size(n));
  }

  Shared& shared_;
  char* to_;
  const char* from_;
  Index bytes_;
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
  BulkCopyShared<4, 128 * 128> turns;
};

}  // namespace ccl::detail
