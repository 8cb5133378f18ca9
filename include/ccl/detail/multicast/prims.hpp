#pragma once

#include <ccl/detail/base/bytes.hpp>
#include <ccl/detail/exchange/mailbox.hpp>
#include <ccl/detail/lanes/block_epilogue.hpp>
#include <ccl/detail/multicast/check.hpp>
#include <ccl/detail/multicast/memory.hpp>
#include <ccl/detail/multicast/work.hpp>
#include <ccl/detail/numeric/user_buffer.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/types/macros.hpp>

#include <cuda/std/cstddef>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Shares of an operation over multicast memory, and boxes of each half of the scratch. A box has a
/// row for each share. `OfHeads`: heads own the shares of all operations.
template <class Op, bool OfHeads>
struct MulticastShape {
  static constexpr bool sums_for_all = is_one_of<Op, AllReduce>;  // a second box for the sums
  static constexpr int boxes = sums_for_all ? 2 : 1;

  template <class R>
  CCL_HD static constexpr int shares(const MulticastWork<R>& work) {
    if constexpr (sums_for_all || OfHeads) return work.slices;
    return is_one_of<Op, AllGather, ReduceScatter> ? work.peers.ranks : 1;
  }
  /// Returns the share that this rank reduces or gives; -1: none.
  template <class R>
  CCL_HD static constexpr int own(const MulticastWork<R>& work) {
    if constexpr (sums_for_all || OfHeads) return work.slice;
    return is_one_of<Op, AllGather, ReduceScatter> ? work.peers.rank : 0;
  }
};

/// Operations of an algorithm over multicast memory. A rank lays out its data in its own scratch.
/// The owner of a share loads the sum of all ranks' copies, or spreads a tile into the scratch of
/// all ranks at once. Arrivals order both: each rank posts a word of its own to all, for each
/// group, so a wait knows who is late.
///
/// All waits of a launch are for words that count launches. The halves of the scratch alternate, as
/// in `PeerPrims`, and for the same reason: no rank is more than one launch ahead.
template <class Op, LaneGroup Group, class Multicast, class R, int Align, bool OfHeads = false>
class MulticastPrims {
 public:
  using T = typename R::Type;
  using Memory = typename Group::Memory;
  using Lane = typename Simple::template Lane<Group, Element<T>::words_per_cell>;
  using Fragment = typename Lane::Fragment;
  using Shape = MulticastShape<Op, OfHeads>;
  static_assert(Lane::words == 2, "A lane holds a packet.");

  static constexpr int tile_elements = Lane::tile_cells * Element<T>::per_cell;
  /// Granularity of shares in elements: 128 bytes.
  static constexpr int grain = 128 / int(sizeof(T));
  /// What an arrival tells.
  enum Arrival { begun, laid_out, spread_out };
  struct Stripe {
    Index first, last, step;
  };

  /// Returns the elements of a share.
  CCL_HD static constexpr Index share_of(const MulticastWork<R>& work) {
    if (!work.layout.split) return work.layout.count;
    return div_up<Index>(div_up<Index>(work.layout.count, Shape::shares(work)), grain) * grain;
  }
  /// Returns the packets of each half of the scratch.
  CCL_HD static constexpr Index half_packets(const MulticastWork<R>& work) {
    return div_up<Index>(share_of(work), tile_elements) * Lane::tile_packets * Shape::shares(work) *
           Shape::boxes;
  }

  CCL_HD MulticastPrims(Group group, const MulticastWork<R>& work, int channel)
      : group_{group},
        work_{work},
        multicast_{work.all, work.peers},
        lane_{group},
        data_{work.input, work.output},
        reduction_{work.reduction},
        channel_{channel},
        share_{share_of(work)},
        tiles_{div_up<Index>(share_, tile_elements)},
        spin_wait_{work.watch} {
    detail::look_at(work_);
    Memory::await_previous();
    if constexpr (reduces<R>) reduction_.load_here();
    const int block = work.first_block + channel % work.blocks;
    flag_ = Memory::load_relaxed(work.epoch.copies + block) + 1;
    half_ = Index(flag_ & 1) * work.peers.half_packets + work.first_packet;
  }

  CCL_HD int rank() const { return work_.peers.rank; }
  CCL_HD int root() const { return work_.root; }
  CCL_HD int shares() const { return Shape::shares(work_); }
  CCL_HD int own_share() const { return Shape::own(work_); }
  /// Returns this group's tiles of each share, the same on all ranks.
  CCL_HD Stripe tiles() const { return {channel_, tiles_, work_.channels}; }
  /// Returns the first argument of `MulticastBody::end`.
  CCL_HD Word left() const { return flag_ << 1; }

  /// Puts this rank's tile of a share into its own scratch, scaled if the reduction does that.
  CCL_HD void lay_out(int share, Index t) const {
    const Fragment f = prepare(load(share, t));
    Memory::store_bulk(mine() + place(0, share, t), {f.word[0], f.word[1]});
  }
  /// Returns the whole result of a tile that all ranks have laid out.
  CCL_HD Fragment reduced(int share, Index t) const {
    using Functor = typename R::Functor;
    const Packet p = multicast_.template load_reduced<Functor, T>(place(0, share, t));
    const Fragment sum{{p.word[0], p.word[1]}};
    if constexpr (is_one_of<Functor, Avg, AvgEnded>) {
      return CellReducer<R, Lane::words>::from_received(reduction_, sum).finish();
    } else {
      return sum;
    }
  }
  /// Stores a tile of a share to all ranks.
  CCL_HD void spread(int share, Index t, const Fragment& f) const {
    multicast_.store(place(Shape::boxes - 1, share, t), {f.word[0], f.word[1]});
  }
  /// Copies a tile that a rank has spread to the output.
  CCL_HD void take(int share, Index t) const {
    const Packet p = Memory::load_bulk(mine() + place(Shape::boxes - 1, share, t));
    store(share, t, Fragment{{p.word[0], p.word[1]}});
  }
  /// Loads a tile of a share of the input.
  CCL_HD Fragment load(int share, Index t) const {
    return data_.template load<fill>(lane_, in_begin(share) + t * tile_elements, left(share, t));
  }
  /// Stores a tile of a share of the output.
  CCL_HD void store(int share, Index t, const Fragment& f) const {
    data_.template store<fill>(lane_, out_begin(share) + t * tile_elements, left(share, t), f);
  }

  /// Posts to all ranks that this group has come so far. What it wrote before is then visible.
  CCL_HD void arrive(Arrival what) const {
    multicast_.fence();
    group_.sync();
    // A rank begins all groups of a launch at once: the first posts for all.
    if (group_.rank() != 0 || (what == begun && channel_ != 0)) return;
    const Index box = 2 * work_.peers.half_packets * packet_words;
    const Index mailbox_words = sizeof(Mailbox) / sizeof(Word);
    multicast_.store_release(box + rank() * mailbox_words + word_of(what), flag_);
  }
  /// Blocks until all ranks have arrived. Returns false if the spin wait failed.
  CCL_HD bool await_all(Arrival what) {
    return await(what, flag_, [](int) { return true; });
  }
  /// Blocks until all heads have arrived.
  CCL_HD bool await_heads(Arrival what) {
    return await(what, flag_, [this](int p) { return work_.heads.contains(p); });
  }
  /// Blocks until one rank has arrived.
  CCL_HD bool await_one(Arrival what, int rank) {
    return await(what, flag_, [rank](int p) { return p == rank; });
  }
  /// Blocks until all ranks have done the last launch that used this half, for operations in which
  /// some ranks wait for no other.
  CCL_HD bool await_step_of_all() {
    return await(begun, flag_ - 1, [](int) { return true; });
  }
  /// Blocks until all heads have done the last launch that used this half.
  CCL_HD bool await_step_of_heads() {
    return await(begun, flag_ - 1, [this](int p) { return work_.heads.contains(p); });
  }

 private:
  static constexpr Fill fill = Align == 16 ? Fill::cells : Fill::any;
  static constexpr Index packet_words = sizeof(Packet) / sizeof(Word);

  /// Returns the word of an arrival of this group in a mailbox, counted from its begin.
  CCL_HD Index word_of(Arrival what) const {
    const cuda::std::size_t at = what == begun      ? offsetof(Mailbox, begun)
                                 : what == laid_out ? offsetof(Mailbox, reported)
                                                    : offsetof(Mailbox, sums_reported);
    return Index(at / sizeof(Word)) + (what == begun ? 0 : channel_);
  }
  /// The lanes share the words of the ranks that `wanted` selects.
  template <class Wanted>
  CCL_HD bool await(Arrival what, Word want, Wanted wanted) {
    for (;;) {
      int late = -1;
      for (int p = group_.rank(); p < work_.peers.ranks; p += Group::width) {
        if (!wanted(p)) continue;
        const auto* const box =
            reinterpret_cast<const Word*>(detail::mailbox<max_view_ranks>(work_.peers, rank(), p));
        if (Index(Memory::load_acquire(box + word_of(what)) - want) < 0) late = p;
      }
      if (group_.all(late < 0)) break;
      if (group_.all(spin_wait_.ends(late, want - 1))) return false;
    }
    spin_wait_.restart();
    multicast_.fence();
    return true;
  }
  CCL_HD Packet* mine() const { return work_.peers.template scratch_of<max_view_ranks>(rank()); }
  /// Returns this lane's packet of a tile, counted from the begin of the scratch of each rank.
  CCL_HD Index place(int box, int share, Index t) const {
    const Index row = Index{box} * shares() + share;
    return half_ + (row * tiles_ + t) * Lane::tile_packets + group_.rank();
  }
  CCL_HD Index in_begin(int share) const {
    return share * (work_.layout.split ? share_ : work_.layout.in_stride);
  }
  CCL_HD Index out_begin(int share) const {
    return share * (work_.layout.split ? share_ : work_.layout.out_stride);
  }
  /// Returns the elements of the share from tile t on. Below 1 if the tile is past the end.
  CCL_HD Index left(int share, Index t) const {
    const Index rest = work_.layout.split ? work_.layout.count - share * share_ : share_;
    return (rest < share_ ? rest : share_) - t * tile_elements;
  }
  CCL_HD Fragment prepare(const Fragment& f) const {
    if constexpr (detail::prepares<R>()) {
      return CellReducer<R, Lane::words>::from_own(reduction_, f).result();
    } else {
      return f;
    }
  }

  Group group_;
  const MulticastWork<R>& work_;
  Multicast multicast_;
  Lane lane_;
  UserBuffer<T, Align> data_;
  R reduction_;
  int channel_;
  Index share_;  // elements of a share
  Index tiles_;  // tiles of a share
  Word flag_ = 0;
  Index half_ = 0;  // first packet of this launch's boxes
  SpinWait<Memory> spin_wait_;
};

/// Body of one launch over multicast memory, for an executor.
template <class Op, class Algo, class Proto, class Multicast, int Align, class R>
struct MulticastBody {
  static_assert(check_multicast<Op, Algo, Proto, R>());
  using Work = MulticastWork<R>;
  static constexpr int max_lanes = 512;
  static constexpr int max_channels = Mailbox::max_rings;
  const Work& work;

  template <LaneGroup Group>
  using Prims = MulticastPrims<Op, Group, Multicast, R, Align, HeadsOwnShares<Algo>>;

  /// True if the message fits into the scratch and the channels have words for their arrivals. No
  /// other code checks this.
  template <LaneGroup Group>
  static constexpr bool fits(const Work& work) {
    return work.channels <= max_channels &&
           Prims<Group>::half_packets(work) <= work.peers.half_packets;
  }
  /// Returns the tiles of each share, which is the number of groups with work.
  template <LaneGroup Group>
  static constexpr Index tiles(const Work& work) {
    return div_up<Index>(Prims<Group>::share_of(work), Prims<Group>::tile_elements);
  }
  /// Returns the maximum elements of a message, split or per share, that fits into a half of the
  /// scratch. They are a multiple of 128 bytes, so that the next part has the same alignment.
  template <LaneGroup Group>
  static constexpr Index max_elements(const Work& work) {
    using P = Prims<Group>;
    const Index rows = Index{P::Shape::shares(work)} * P::Shape::boxes;
    const Index tiles = work.peers.half_packets / (rows * P::Lane::tile_packets);
    const Index share = tiles * P::tile_elements / P::grain * P::grain;
    return work.layout.split ? share * P::Shape::shares(work) : share;
  }
  /// Returns the work of at most `most` elements from the `begin`-th on.
  static Work part(const Work& whole, Index begin, Index most) {
    constexpr Index size = sizeof(typename R::Type);
    Work work = whole;
    const Index left = whole.layout.count - begin;
    // A rank may have no output: null stays null.
    if (whole.input != nullptr) work.input = static_cast<const char*>(whole.input) + begin * size;
    if (whole.output != nullptr) work.output = static_cast<char*>(whole.output) + begin * size;
    work.layout.count = left < most ? left : most;
    return work;
  }
  template <LaneGroup Group>
  CCL_HD Word operator()(Group group, int channel) const {
    Prims<Group> prims{group, work, channel};
    Algo::run(Op{}, prims);
    return prims.left();
  }
  CCL_HD void end(Word left, int block, int lane, int lanes) const {
    detail::count_at_end(work.epoch, left, work.first_block + block, work.blocks, lane, lanes);
  }
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
