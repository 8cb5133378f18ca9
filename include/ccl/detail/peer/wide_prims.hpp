#pragma once

#include <ccl/detail/peer/prims.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// `PeerPrims` for any number of ranks up to `Ranks`, which is known at run time. A lane has no
/// registers for a fragment of each rank. The functions that return such fragments therefore only
/// name the tile, and the functions that receive it load or collect `batch` ranks at a time. Sums
/// have the same order as those of `PeerPrims`.
template <LaneGroup Group, Protocol<Group> Proto, class R, int Align, int Ranks,
          class Notes = NoPhaseNotes>
class WidePrims : public PeerPrims<Group, Proto, R, Align, Ranks, fewest_ranks(Ranks), Notes> {
  using Base = PeerPrims<Group, Proto, R, Align, Ranks, fewest_ranks(Ranks), Notes>;
  using Base::flag_, Base::lane_, Base::mine_, Base::notes_, Base::peer, Base::rank_,
      Base::reduction_, Base::rows, Base::slots, Base::spin_wait_, Base::work_;

 public:
  using Base::Base, Base::prepare;
  using typename Base::Fragment;
  using typename Base::Lane;

  static constexpr int batch = max_unrolled_ranks;
  /// Names a tile of every other rank.
  struct All {
    int box, t;
  };

  CCL_HD All load_others(int t) const { return {0, t}; }
  CCL_HD All collect(int box, int t) const { return {box, t}; }

  /// Pushes the fragment to every peer.
  CCL_HD void push(int box, int t, const Fragment& f) const {
    const Index at = slots(box * rows(), t);
    CCL_ROLL for (int k = 1; k < ranks(); k += batch) {
      Packet* row[batch];
      CCL_UNROLL for (int i = 0; i < batch; ++i) row[i] = this->row_at(peer_or_own(k + i));
      CCL_UNROLL for (int i = 0; i < batch; ++i) {
        if (k + i >= ranks()) break;
        this->send(row[i] + at, f);
      }
    }
  }
  /// Pushes to each peer the tile of its share.
  CCL_HD void scatter(int box, int, const All& all) const {
    const Index at = slots(box * rows(), all.t);
    CCL_ROLL for (int k = 1; k < ranks(); k += batch) {
      Fragment f[batch];
      Packet* row[batch];
      CCL_UNROLL for (int i = 0; i < batch; ++i) {
        f[i] = this->load(peer_or_own(k + i), all.t);
        row[i] = this->row_at(peer_or_own(k + i));
      }
      CCL_UNROLL for (int i = 0; i < batch; ++i) {
        if (k + i >= ranks()) break;
        this->send(row[i] + at, prepare(f[i]));
      }
    }
  }
  /// Stores to the output, at the places that `load_others` names.
  CCL_HD void store_loaded(int t, const All&) const {
    CCL_ROLL for (int k = 1; k < ranks(); ++k) {
      this->store(peer(k), t, this->load(peer(k), t));
    }
  }
  /// Stores the tiles that the peers pushed, each to its rank's share.
  CCL_HD void store_others(int box, int t) {
    CCL_ROLL for (int first = 0; first < ranks(); first += batch) {
      const Batch some = collect_batch(box, t, first);
      CCL_UNROLL for (int i = 0; i < batch; ++i) {
        if (first + i < ranks() && first + i != rank_) this->store(first + i, t, some.of[i]);
      }
    }
  }
  /// Collects the tile of every peer and reduces in rank order. `own` is this rank's prepared
  /// fragment.
  CCL_HD Fragment reduce(const All& all, const Fragment& own) {
    using Sum = CellReducer<R, Lane::words>;
    Slot<Sum> sum;
    CCL_ROLL for (int first = 0; first < ranks(); first += batch) {
      const Batch some = collect_batch(all.box, all.t, first);
      CCL_UNROLL for (int i = 0; i < batch; ++i) {
        if (first + i >= ranks()) break;
        Fragment f;
        CCL_UNROLL for (int w = 0; w < Lane::words; ++w) {
          f.word[w] = first + i == rank_ ? own.word[w] : some.of[i].word[w];
        }
        if (i == 0 && first == 0) {
          sum.set(Sum::from_received(reduction_, f));
        } else {
          sum.value.add_received(f);
        }
      }
    }
    return Base::as_sent(sum.value.finish());
  }

 private:
  using Batch = Fragments<Fragment, batch>;

  CCL_HD int ranks() const { return work_.peers.ranks; }
  CCL_HD int peer_or_own(int k) const { return k < ranks() ? peer(k) : rank_; }
  /// Waits for the tiles of the ranks from `first` on. The fragments of this rank and of absent
  /// ranks are undefined.
  CCL_HD Batch collect_batch(int box, int t, int first) {
    Packet* const row = mine_ + slots(box * rows() + first, t);
    const int left = ranks() - first;
    const int skip = rank_ >= first && rank_ - first < batch ? rank_ - first : -1;
    if (left == 1 && skip == 0) return {};  // this rank is alone in the last batch
    const Batch some =
        detail::collect_batch<batch>(lane_, row, slots(1, 0), flag_, skip, left, spin_wait_, first);
    notes_.received();
    CCL_UNROLL for (int i = 0; i < batch; ++i) {
      if (i < left && i != skip) this->empty(row + slots(i, 0));
    }
    return some;
  }
};

template <class Group, class Proto, class R, int Align, int Ranks, int Fewest, class Notes>
  requires(Ranks > max_unrolled_ranks)
struct PrimsOf<Group, Proto, R, Align, Ranks, Fewest, Notes> {
  using Type = WidePrims<Group, Proto, R, Align, Ranks, Notes>;
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
