#pragma once

#include <ccl/detail/lanes/bulk_copy.hpp>
#include <ccl/detail/lanes/turn_runs.hpp>

namespace ccl::detail {

#if defined(__CUDACC__)
/// Copies several runs by the bulk copy engine of a multiprocessor, a piece of each in turn. One
/// thread loads pieces to shared memory and stores them from there, as `BulkCopy` does.
template <int Stages, int PieceBytes>
class BulkCopies {
  static_assert(Stages % 2 == 0 && PieceBytes % 128 == 0);
  static constexpr int ahead = Stages / 2;

 public:
  using Shared = BulkCopyShared<Stages, PieceBytes>;

  CCL_DEVICE BulkCopies(Shared& shared, const TurnRuns& runs, int first)
      : shared_{shared}, runs_{runs}, first_{first} {}

  /// Runs on one thread. Addresses and bytes are multiples of 16. Returns when the thread sees all
  /// stores.
  CCL_DEVICE void run() {
    for (Word& bar : shared_.full) ptx::bulk_open(&bar);
    ptx::bulk_begin();
    TurnCursor load{runs_, first_, PieceBytes}, store{runs_, first_, PieceBytes};
    Index loaded = 0;
    for (; loaded < ahead && load.left(); ++loaded, load.next()) fetch(load, loaded);
    for (Index n = 0; store.left(); ++n, store.next()) {
      const int stage = int(n % Stages);
      ptx::bulk_await_load(&shared_.full[stage], unsigned(n / Stages) & 1u);
      ptx::bulk_store(runs_.run[store.run()].to + store.at(), shared_.piece[stage], size(store));
      if (!load.left()) continue;
      // The next piece goes where piece n - ahead was, which has been read by then.
      ptx::bulk_await_reads<Stages - ahead>();
      fetch(load, loaded);
      load.next();
      ++loaded;
    }
    ptx::bulk_await_stores();
    for (Word& bar : shared_.full) ptx::bulk_close(&bar);
  }

 private:
  CCL_DEVICE unsigned size(const TurnCursor& turn) const {
    const Index left = runs_.run[turn.run()].bytes - turn.at();
    return unsigned(left < PieceBytes ? left : PieceBytes);
  }
  CCL_DEVICE void fetch(const TurnCursor& turn, Index n) {
    const int stage = int(n % Stages);
    ptx::bulk_load(shared_.piece[stage], runs_.run[turn.run()].from + turn.at(), size(turn),
                   &shared_.full[stage]);
  }

  Shared& shared_;
  const TurnRuns& runs_;
  int first_;
};

/// Bulk copies to several GPUs. More or larger pieces are not faster (docs/validation/calls.md).
using TurnsBulkCopies = BulkCopies<4, 128 * 128>;
#endif

}  // namespace ccl::detail
