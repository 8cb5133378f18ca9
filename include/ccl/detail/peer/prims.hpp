#pragma once

#include <ccl/detail/base/bytes.hpp>
#include <ccl/detail/exchange/mailbox.hpp>
#include <ccl/detail/lanes/block_epilogue.hpp>
#include <ccl/detail/lanes/collect.hpp>
#include <ccl/detail/lanes/phases.hpp>
#include <ccl/detail/numeric/reduction.hpp>
#include <ccl/detail/numeric/user_buffer.hpp>
#include <ccl/detail/peer/work.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Operations of an algorithm on peers whose memory it can address. It pushes tiles into boxes of
/// the peers and collects the tiles that peers pushed into its own boxes. A launch writes the box
/// of each rank once.
///
/// `Ranks` is the maximum number of ranks. A launch has `fewest_ranks(Ranks)` ranks or more. Loops
/// over ranks are unrolled up to `Ranks` and end at the first absent rank, in all lanes alike.
///
/// `Fewest`: minimum number of ranks. With fewer than `fewest_ranks(Ranks)`, the kernel stands for
/// several others: its boxes have `PeerWork::rows` rows, as those of its peers' kernels.
///
/// The message is one share, or one share per rank. Its tiles are assigned to the groups.
///
/// The halves of the scratch alternate between launches. If every rank waits for data of all
/// others, no rank is more than one launch ahead. No rank then overwrites a tile that a peer still
/// reads. If some ranks wait for no other, `begin_in_step` keeps them from running ahead.
///
/// `Notes`: times of the launch, for `Traced`.
template <LaneGroup Group, Protocol<Group> Proto, class R, int Align, int Ranks,
          int Fewest = fewest_ranks(Ranks), class Notes = NoPhaseNotes>
class PeerPrims {
 public:
  static constexpr int max_ranks = Ranks;
  using T = typename R::Type;
  using Memory = typename Group::Memory;
  using Lane = typename Proto::template Lane<Group, Element<T>::words_per_cell>;
  using Fragment = typename Lane::Fragment;
  using All = Fragments<Fragment, Ranks>;
  static_assert(Proto::carries_flags,
                "Algorithms over peer memory need a protocol whose packets carry flags.");

  /// Tiles of one group: first, first + step, ...
  struct Stripe {
    int first, last, step;
  };

  static constexpr int tile_elements = Lane::tile_cells * Element<T>::per_cell;
  /// Granularity of shares in elements. Shares begin at multiples of 128 bytes.
  static constexpr int grain = [] {
    int n = 128;
    while (n > 1 && (n / 2) * int(sizeof(T)) % 128 == 0) n /= 2;
    return n;
  }();

  /// Returns the packets of each half of the scratch for a launch of `share` elements in each box.
  static constexpr Index half_packets(Index share, int boxes) {
    return div_up<Index>(share, tile_elements) * Lane::tile_packets * Ranks * boxes;
  }
  /// Returns the elements of a share if `count` elements are split among `ranks` ranks.
  CCL_HD static constexpr int split_share(int count, int ranks = Ranks) {
    if constexpr (stands_for_others) return div_up(div_up(count, ranks), grain) * grain;
    // All divisors are constants, so that no lane divides before its first load.
    int each = div_up(count, Ranks);
    CCL_UNROLL for (int n = Fewest; n < Ranks; ++n) {
      if (n == ranks) each = div_up(count, n);
    }
    return div_up(each, grain) * grain;
  }

  CCL_HD PeerPrims(Group group, const PeerWork<R>& work, int channel)
      : group_{group},
        work_{work},
        lane_{group},
        data_{work.input, work.output},
        reduction_{work.reduction},
        rank_{work.peers.rank},
        block_{work.first_block + channel % work.blocks},
        share_{work.layout.split ? split_share(int(work.layout.count), work.peers.ranks)
                                 : int(work.layout.count)},
        end_{work.layout.split ? int(work.layout.count) : share_ * work.peers.ranks},
        in_stride_{work.layout.split ? share_ : work.layout.in_stride},
        out_stride_{work.layout.split ? share_ : work.layout.out_stride},
        tiles_{div_up(share_, tile_elements)},
        stripe_{channel, tiles_, work.channels},
        spin_wait_{work.watch},
        notes_{group, work.watch, channel} {
    detail::look_at(work_);
    Memory::await_previous();
    notes_.ready();
    if constexpr (detail::reduces<R>) reduction_.load_here();
  }

  /// Must run before any push or collect. Loads issued earlier overlap with the load of the epoch.
  CCL_HD void begin() {
    flag_ = Memory::load_relaxed(work_.epoch.copies + block_) + 1;
    const Index half = Index(flag_ & 1) * work_.peers.half_packets + work_.first_packet;
    mine_ = work_.peers.template scratch_of<Ranks>(rank_) + half;
    if constexpr (!wide) {
      CCL_UNROLL for (int k = 1; k < Ranks; ++k) {
        theirs_[k] = work_.peers.scratch[peer(k)] + half + slots(rank_, 0);
      }
    }
  }

  /// Begins a launch of an operation in which some ranks do not wait for all others. Also posts to
  /// the peers that this rank is done with all earlier launches.
  ///
  /// Every rank must call it in every launch of the operation. It must call `await_step` next, for
  /// each rank to which it pushes.
  CCL_HD void begin_in_step() {
    begin();
    if (stripe_.first != 0) return;
    for (int p = group_.rank(); p < work_.peers.ranks; p += Group::width) {
      if (p == rank_) continue;
      Memory::store_credit(detail::mailbox<Ranks>(work_.peers, p, rank_)->begun, flag_);
    }
  }
  /// Blocks until rank p is done with the previous launch that used this half. Returns false if the
  /// spin wait failed.
  CCL_HD bool await_step(int p) {
    const Word* const begun = detail::mailbox<Ranks>(work_.peers, rank_, p)->begun;
    while (!group_.all(Index(Memory::load_credit(begun) + 1 - flag_) >= 0)) {
      if (group_.all(spin_wait_.ends(p, flag_ - 1))) return false;
    }
    return true;
  }
  CCL_HD bool await_step_of_all() {
    bool all = true;
    CCL_ROLL for (int p = 0; p < work_.peers.ranks; ++p) {
      all = all && (p == rank_ || await_step(p));
    }
    return all;
  }

  /// Counts the launch for absent blocks. Meant for algorithms that are about to wait for tiles of
  /// the peers. `PeerBody::end` does it otherwise.
  CCL_HD void count_launch() {
    launch_counted_ = true;
    if (stripe_.first >= work_.blocks) return;
    const int all = work_.blocks + work_.other_blocks;
    detail::for_absent_blocks(block_, all, work_.epoch.count, group_.rank(), Group::width,
                              [this](int i) { work_.epoch.copies[i] = flag_; });
  }

  /// Returns this group's tiles of each share.
  CCL_HD const Stripe& tiles() const { return stripe_; }
  CCL_HD int rank() const { return rank_; }
  CCL_HD int root() const { return work_.root; }
  CCL_HD Word flag() const { return flag_; }
  /// Returns the first argument of `PeerBody::end`.
  CCL_HD Word left() const { return flag_ << 1 | Word{launch_counted_}; }

  /// Loads tile t of a share. The share of an absent rank has no elements.
  CCL_HD Fragment load(int share, int t) const {
    return data_.template load<fill>(lane_, share * in_stride_ + Index{t} * tile_elements,
                                     left(share, t));
  }
  CCL_HD void store(int share, int t, const Fragment& f) const {
    if constexpr (Align == any_align) {
      store_apart(share, t, f);
    } else {
      store_here(share, t, f);
    }
  }
  CCL_HD_APART void store_apart(int share, int t, Fragment f) const { store_here(share, t, f); }
  CCL_HD void store_here(int share, int t, const Fragment& f) const {
    data_.template store<fill>(lane_, share * out_stride_ + Index{t} * tile_elements,
                               left(share, t), f);
  }
  /// Returns this rank's tile as it travels, scaled if the reduction does that.
  CCL_HD Fragment prepare(const Fragment& f) const {
    if constexpr (detail::prepares<R>()) {
      return as_sent(CellReducer<R, Lane::words>::from_own(reduction_, f).result());
    } else {
      return as_sent(f);
    }
  }
  /// Loads tile t of every share except this rank's. `of[k]` is the share of the k-th rank after
  /// this rank.
  CCL_HD All load_others(int t) const {
    if constexpr (Align == any_align) {
      return load_others_apart(t);
    } else {
      return load_others_here(t);
    }
  }
  CCL_HD_APART All load_others_apart(int t) const { return load_others_here(t); }
  CCL_HD All load_others_here(int t) const {
    All all;
    CCL_UNROLL for (int k = 1; k < Ranks; ++k) all.of[k] = load(peer(k), t);
    return all;
  }

  /// Pushes the fragment to every peer.
  CCL_HD void push(int box, int t, const Fragment& f) const {
    CCL_UNROLL for (int k = 1; k < Ranks; ++k) {
      if (!is_present(k)) break;
      send(theirs_[k] + slots(box * rows(), t), f);
    }
  }
  /// Pushes the fragment to one rank, which must not be this rank.
  CCL_HD void push_to(int rank, int box, int t, const Fragment& f) const {
    send(row_at(rank) + slots(box * rows(), t), f);
  }
  /// Pushes to each peer its own fragment.
  CCL_HD void scatter(int box, int t, const All& all) const {
    CCL_UNROLL for (int k = 1; k < Ranks; ++k) {
      if (!is_present(k)) break;
      send(theirs_[k] + slots(box * rows(), t), prepare(all.of[k]));
    }
  }
  /// Waits for the tiles that the peers pushed. The fragments of this rank and of absent ranks are
  /// undefined. Returns when all flags have arrived or the spin wait has failed.
  CCL_HD All collect(int box, int t) {
    if constexpr (Align == any_align) {
      return collect_apart(box, t);
    } else {
      return collect_here(box, t);
    }
  }
  CCL_HD_APART All collect_apart(int box, int t) { return collect_here(box, t); }
  CCL_HD All collect_here(int box, int t) {
    Packet* const row = mine_ + slots(box * rows(), t);
    const All all = collect_peers<Ranks, Fewest>(lane_, row, slots(1, 0), flag_, rank_,
                                                 work_.peers.ranks, spin_wait_);
    notes_.received();
    CCL_UNROLL for (int r = 0; r < Ranks; ++r) {
      if (stands_for_others && r >= work_.peers.ranks) break;
      if (r != rank_) empty(row + slots(r, 0));
    }
    return all;
  }
  /// Waits for the tile that one rank pushed.
  CCL_HD Fragment collect_from(int rank, int box, int t) {
    Packet* const tile = mine_ + slots(box * rows() + rank, t);
    const Fragment f = ccl::detail::collect<1>(lane_, tile, flag_, rank, spin_wait_).of[0];
    notes_.received();
    empty(tile);
    return f;
  }
  /// Stores to the output, at the places from which `load_others` loads.
  CCL_HD void store_loaded(int t, const All& all) const {
    CCL_UNROLL for (int k = 1; k < Ranks; ++k) store(peer(k), t, all.of[k]);
  }
  /// Reduces in rank order, so that every rank has the same bits. `own` is this rank's prepared
  /// fragment.
  CCL_HD Fragment reduce(const All& all, const Fragment& own) const {
    auto sum = CellReducer<R, Lane::words>::from_received(reduction_, pick(0, all, own));
    CCL_UNROLL for (int r = 1; r < Ranks; ++r) {
      if (!is_present(r)) break;
      sum.add_received(pick(r, all, own));
    }
    return as_sent(sum.finish());
  }

 protected:
  static constexpr Fill fill = Align == 16 ? Fill::cells : Fill::any;
  /// True if the number of ranks is known at run time only; see `WidePrims`.
  static constexpr bool wide = Ranks > max_unrolled_ranks;
  static constexpr bool stands_for_others = wide || Fewest < fewest_ranks(Ranks);
  /// Returns this rank's row of slots in the memory of another rank.
  CCL_HD Packet* row_at(int rank) const {
    return work_.peers.template scratch_of<Ranks>(rank) +
           Index(flag_ & 1) * work_.peers.half_packets + work_.first_packet + slots(rank_, 0);
  }
  /// Returns the rows of a box, one for each rank.
  CCL_HD int rows() const { return stands_for_others ? work_.rows : Ranks; }
  /// Returns true if the launch has rank r, or an r-th rank after this rank. `r` is a constant.
  CCL_HD bool is_present(int r) const { return r < Fewest || r < work_.peers.ranks; }
  /// Returns the fragment as the peers receive it, for use by this rank too.
  CCL_HD static Fragment as_sent(const Fragment& f) {
    if constexpr (requires { Lane::as_sent(f); }) return Lane::as_sent(f);
    return f;
  }
  CCL_HD void empty(Packet* tile) const {
    if constexpr (requires { lane_.empty(tile); }) lane_.empty(tile);
  }
  /// Stores a tile. After a failed wait the tile must not count as data. It then carries the flag
  /// of the previous launch, whose tiles are in the other half.
  ///
  /// A protocol that empties its tiles does not store it. A wait fails for all lanes that share a
  /// flag or for none.
  CCL_HD void send(Packet* tile, const Fragment& f) const {
    if constexpr (requires { lane_.empty(tile); }) {
      if (!spin_wait_.failed()) lane_.store(tile, f, flag_);
    } else {
      lane_.store(tile, f, flag_ - Word{spin_wait_.failed()});
    }
  }
  /// Returns the k-th rank after this rank.
  CCL_HD int peer(int k) const {
    // The share of an absent rank is one past the last, which has no elements.
    if constexpr (Fewest == Ranks && (Ranks & (Ranks - 1)) == 0) {
      return (rank_ + k) & (Ranks - 1);
    }
    const int ranks = work_.peers.ranks;
    return rank_ + k - (rank_ + k < ranks ? 0 : ranks);
  }
  CCL_HD Fragment pick(int r, const All& all, const Fragment& own) const {
    Fragment f;
    CCL_UNROLL for (int w = 0; w < Lane::words; ++w) {
      f.word[w] = r == rank_ ? own.word[w] : all.of[r].word[w];
    }
    return f;
  }
  /// Returns the elements of the share from tile t on. Below 1 if the tile is past the end.
  CCL_HD int left(int share, int t) const {
    if (stands_for_others && share >= work_.peers.ranks) return 0;
    const int rest = end_ - share * share_;
    return (rest < share_ ? rest : share_) - t * tile_elements;
  }
  /// Returns the packets in `rows` rows of slots plus `t` slots. A row has one slot per tile.
  CCL_HD Index slots(int rows, int t) const {
    return (Index{rows} * tiles_ + t) * Lane::tile_packets;
  }

  Group group_;
  const PeerWork<R>& work_;
  Lane lane_;
  UserBuffer<T, Align> data_;
  R reduction_;
  int rank_, block_;
  int share_, end_;  // elements of a share; of the message, or of all shares
  Index in_stride_, out_stride_;
  int tiles_;  // tiles of a share
  Stripe stripe_;
  Word flag_ = 0;                // this launch's epoch
  bool launch_counted_ = false;  // for the absent blocks
  Packet* mine_ = nullptr;       // in this rank's memory: Ranks rows of slots for each box
  Packet* theirs_[wide ? 1 : Ranks] = {};  // this rank's row at the k-th rank after it
  SpinWait<Memory> spin_wait_;
  [[no_unique_address]] Notes notes_;
};

/// Primitives of a kernel. Those for more than `max_unrolled_ranks` ranks are in another header.
template <class Group, class Proto, class R, int Align, int Ranks, int Fewest, class Notes>
struct PrimsOf {
  using Type = PeerPrims<Group, Proto, R, Align, Ranks, Fewest, Notes>;
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
