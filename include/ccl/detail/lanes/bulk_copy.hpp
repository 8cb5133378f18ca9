#pragma once

// Compilers without CUDA see the shared memory only.
#include <ccl/detail/base/ptx_bulk.hpp>
#include <ccl/types/word.hpp>

namespace ccl::detail {

/// Bytes from which the engine is faster than lanes, as measured on H100 and H200
/// (docs/validation/calls.md).
inline constexpr Index worth_bulk_copy = Index{128} << 10;

/// Shared memory of a `BulkCopy`.
template <int Stages, int PieceBytes>
struct BulkCopyShared {
  alignas(128) char piece[Stages][PieceBytes];
  Word full[Stages];
};

#if defined(__CUDACC__)
/// Stages of the bulk copy engine of a multiprocessor: pieces in shared memory, between their loads
/// and their stores. One thread.
template <int Stages, int PieceBytes>
class BulkStages {
  static_assert(Stages % 2 == 0 && PieceBytes % 128 == 0);

 public:
  using Shared = BulkCopyShared<Stages, PieceBytes>;
  static constexpr int ahead = Stages / 2;
  static constexpr int on_the_way = 4;  // stores that a `SlotSender` does not await
  static constexpr Index piece_bytes = PieceBytes;

  CCL_DEVICE explicit BulkStages(Shared& shared) : shared_{shared} {}

  CCL_DEVICE void open() {
    for (Word& bar : shared_.full) ptx::bulk_open(&bar);
    ptx::bulk_begin();
  }
  CCL_DEVICE void close() {
    for (Word& bar : shared_.full) ptx::bulk_close(&bar);
  }
  /// Piece `n` goes where piece `n - Stages` was. After `await_reads` that has been read.
  CCL_DEVICE void load(Index n, const char* from, Index bytes) {
    ptx::bulk_load(shared_.piece[n % Stages], from, unsigned(bytes), &shared_.full[n % Stages]);
  }
  CCL_DEVICE void await_load(Index n) {
    ptx::bulk_await_load(&shared_.full[n % Stages], unsigned(n / Stages) & 1u);
  }
  CCL_DEVICE void store(Index n, char* to, Index bytes) {
    ptx::bulk_store(to, shared_.piece[n % Stages], unsigned(bytes));
  }
  CCL_DEVICE void await_reads() { ptx::bulk_await_reads<Stages - ahead>(); }
  template <int Left>
  CCL_DEVICE void await_stores() {
    ptx::bulk_await_stores<Left>();
  }

 private:
  Shared& shared_;
};

/// Copies memory by the bulk copy engine of a multiprocessor. One thread loads pieces to shared
/// memory and stores them from there; the registers of the block stay free. `Stages` pieces are in
/// flight: half of them on the way in, the others on the way out. `Early` more are on the way to
/// the cache.
template <int Stages, int PieceBytes, int Early = 0>
class BulkCopy {
  static constexpr int ahead = BulkStages<Stages, PieceBytes>::ahead;

 public:
  using Shared = BulkCopyShared<Stages, PieceBytes>;

  CCL_DEVICE BulkCopy(Shared& shared, const char* from, Index bytes)
      : stages_{shared}, from_{from}, bytes_{bytes} {}

  /// Copies to `to`. Runs on one thread, as the functions below. Addresses and bytes are multiples
  /// of 16. Returns when the thread sees all stores.
  CCL_DEVICE void run(char* to) {
    open();
    fetch();
    finish(to);
  }
  /// Begins a copy whose target is not known yet. `fetch` follows, then `finish` or `drop`, of this
  /// object or of one with the same arguments.
  CCL_DEVICE void open() { stages_.open(); }
  /// Loads the first pieces.
  CCL_DEVICE void fetch() {
    const Index pieces = div_up<Index>(bytes_, PieceBytes);
    for (Index n = 0; n < ahead && n < pieces; ++n) load(n);
    for (Index n = ahead; n < ahead + Early; ++n) prefetch(n);
  }
  /// Copies to `to`. Returns when the thread sees all stores.
  CCL_DEVICE void finish(char* to) {
    const Index pieces = div_up<Index>(bytes_, PieceBytes);
    for (Index n = 0; n < pieces; ++n) {
      if constexpr (Early > 0) prefetch(n + ahead + Early);
      stages_.await_load(n);
      stages_.store(n, to + n * PieceBytes, size(n));
      if (n + ahead >= pieces) continue;
      stages_.await_reads();
      load(n + ahead);
    }
    stages_.template await_stores<0>();
    stages_.close();
  }
  /// Copies nothing. Returns when the loads have ended.
  CCL_DEVICE void drop() {
    for (Index n = 0; n < ahead && n * PieceBytes < bytes_; ++n) stages_.await_load(n);
    stages_.close();
  }

 private:
  CCL_DEVICE Index size(Index n) const {
    const Index left = bytes_ - n * PieceBytes;
    return left < PieceBytes ? left : PieceBytes;
  }
  CCL_DEVICE void load(Index n) { stages_.load(n, from_ + n * PieceBytes, size(n)); }
  CCL_DEVICE void prefetch(Index n) {
    if (n * PieceBytes < bytes_) ptx::bulk_prefetch(from_ + n * PieceBytes, unsigned(size(n)));
  }

  BulkStages<Stages, PieceBytes> stages_;
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
using SlotBulkStages = BulkStages<6, 128 * 128>;
#endif
/// Shared memory of either. A kernel gets as much only if its launch asks.
union BulkCopyMemory {
  BulkCopyShared<6, 128 * 128> busy;
  BulkCopyShared<4, 93 * 128> idle;
  BulkCopyShared<4, 128 * 128> turns;
  BulkCopyShared<6, 128 * 128> slots;
};

}  // namespace ccl::detail
