#pragma once

#include <ccl/detail/lanes/bulk_copy.hpp>
#include <ccl/detail/lanes/turn_runs.hpp>

namespace ccl::detail {

#if defined(__CUDACC__)
/// Copies several runs by the bulk copy engine of a multiprocessor, a piece of each in turn. One
/// thread loads pieces to shared memory and stores them from there, as `BulkCopy` does.
template <int Stages, int PieceBytes>
class BulkCopies {
  static constexpr int ahead = BulkStages<Stages, PieceBytes>::ahead;

 public:
  using Shared = BulkCopyShared<Stages, PieceBytes>;

  CCL_DEVICE BulkCopies(Shared& shared, const TurnRuns& runs, int first)
      : stages_{shared}, runs_{runs}, first_{first} {}

  /// Runs on one thread. Addresses and bytes are multiples of 16. Returns when the thread sees all
  /// stores.
  CCL_DEVICE void run() {
    stages_.open();
    TurnCursor load{runs_, first_, PieceBytes}, store{runs_, first_, PieceBytes};
    Index loaded = 0;
    for (; loaded < ahead && load.left(); ++loaded, load.next()) fetch(load, loaded);
    for (Index n = 0; store.left(); ++n, store.next()) {
      stages_.await_load(n);
      stages_.store(n, runs_.run[store.run()].to + store.at(), size(store));
      if (!load.left()) continue;
      stages_.await_reads();
      fetch(load, loaded);
      load.next();
      ++loaded;
    }
    stages_.template await_stores<0>();
    stages_.close();
  }

 private:
  CCL_DEVICE Index size(const TurnCursor& turn) const {
    const Index left = runs_.run[turn.run()].bytes - turn.at();
    return left < PieceBytes ? left : PieceBytes;
  }
  CCL_DEVICE void fetch(const TurnCursor& turn, Index n) {
    stages_.load(n, runs_.run[turn.run()].from + turn.at(), size(turn));
  }

  BulkStages<Stages, PieceBytes> stages_;
  const TurnRuns& runs_;
  int first_;
};

/// Bulk copies to several GPUs. More or larger pieces are not faster (docs/validation/calls.md).
using TurnsBulkCopies = BulkCopies<4, 128 * 128>;
#endif

}  // namespace ccl::detail
