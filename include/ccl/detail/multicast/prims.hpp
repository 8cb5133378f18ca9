#pragma once

#include <ccl/detail/base/bytes.hpp>
#include <ccl/detail/exchange/mailbox.hpp>
#include <ccl/detail/multicast/memory.hpp>
#include <ccl/detail/multicast/sides.hpp>
#include <ccl/detail/multicast/work.hpp>
#include <ccl/detail/numeric/user_buffer.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/types/macros.hpp>

#include <cuda/std/cstddef>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Operations of an algorithm over multicast memory. A rank lays out its data in its own scratch.
/// The owner of a share loads the sum of all ranks' copies, or spreads a tile into the scratch of
/// all ranks at once. Arrivals order both: each rank posts a word of its own to all, for each
/// group, so a wait knows who is late.
///
/// All waits of a launch are for words that count launches. The halves of the scratch alternate, as
/// in `PeerPrims`, and for the same reason: no rank is more than one launch ahead.
///
/// `Buffers`: `CopiedBuffers` or `WindowBuffers`.
template <class Op, LaneGroup Group, class Multicast, class R, int Align, bool OfHeads = false,
          class Buffers = CopiedBuffers>
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
    begin_half();
  }

  CCL_HD int rank() const { return work_.peers.rank; }
  CCL_HD int root() const { return work_.root; }
  CCL_HD int shares() const { return Shape::shares(work_); }
  CCL_HD int own_share() const { return Shape::own(work_); }
  /// Returns this group's tiles of each share, the same on all ranks.
  CCL_HD Stripe tiles() const { return {channel_, tiles_, work_.channels}; }
  /// Returns the first argument of `MulticastBody::end`.
  CCL_HD Word left() const { return flag_ << 1; }

  /// Asks all ranks whether their buffers lie at the same places of windows. Returns false if a
  /// wait failed. Every rank is then in this launch: its send buffer has its data, and nothing else
  /// uses its receive buffer.
  CCL_HD bool agree() {
    if constexpr (in_windows) {
      if (group_.rank() == 0 && channel_ == 0) {
        multicast_.store_relaxed(mailbox_word(rank()) + place_word(), work_.send.place);
        multicast_.store_relaxed(mailbox_word(rank()) + place_word() + 1, work_.recv.place);
      }
      arrive(begun);
      if (!await_all(begun)) return false;
      bool loads = work_.send.place > WindowPlaceWord::in_no_window;
      bool stores = work_.recv.place > WindowPlaceWord::in_no_window;
      CCL_ROLL for (int p = group_.rank(); p < work_.peers.ranks; p += Group::width) {
        const Word* const places = words_of(p) + place_word();
        loads = loads && Memory::load_relaxed(places) == work_.send.place;
        stores = stores && Memory::load_relaxed(places + 1) == work_.recv.place;
      }
      sides_.loads = group_.all(loads);
      sides_.stores = group_.all(stores);
      begin_part();
      if (work_.taken != nullptr && group_.rank() == 0 && channel_ == 0) {
        Memory::store_relaxed(work_.taken, TakenWay::asked |
                                               (sides_.loads ? TakenWay::loaded_windows : 0) |
                                               (sides_.stores ? TakenWay::stored_windows : 0));
      }
    }
    return true;
  }
  /// True if `reduced` loads from the send buffers of all ranks, which then lay out nothing.
  CCL_HD bool loads_windows() const {
    if constexpr (in_windows) return sides_.loads;
    return false;
  }
  /// True if `spread` stores to the receive buffers of all ranks, which then take nothing.
  CCL_HD bool stores_windows() const {
    if constexpr (in_windows) return sides_.stores;
    return false;
  }
  /// Goes on to the next part of the message, for which the algorithm runs once more. Returns false
  /// if there is none, or a wait has failed. Each group is at most one part ahead of those with its
  /// channel on other ranks, as launches are: a part has the next flag and the other half.
  CCL_HD bool next_part() {
    if constexpr (in_windows) {
      sides_.begin += sides_.count;
      if (sides_.begin >= work_.layout.count || spin_wait_.failed()) return false;
      ++flag_;
      begin_half();
      begin_part();
      return true;
    }
    return false;
  }

  /// Puts this rank's tile of a share into its own scratch, scaled if the reduction does that.
  CCL_HD void lay_out(int share, Index t) const {
    const Fragment f = prepare(load(share, t));
    Memory::store_bulk(mine() + place(0, share, t), {f.word[0], f.word[1]});
  }
  /// Returns the whole result of a tile that all ranks have laid out.
  CCL_HD Fragment reduced(int share, Index t) const {
    using Functor = typename R::Functor;
    const Packet p = load_reduced<Functor>(share, t);
    const Fragment sum{{p.word[0], p.word[1]}};
    if constexpr (is_one_of<Functor, Avg, AvgEnded>) {
      return CellReducer<R, Lane::words>::from_received(reduction_, sum).finish();
    } else {
      return sum;
    }
  }
  /// Stores a tile of a share to all ranks.
  CCL_HD void spread(int share, Index t, const Fragment& f) const {
    if constexpr (in_windows) {
      if (sides_.stores) {
        if (has_packet(share, t)) {
          bound(work_.recv)
              .store(packet_of(work_.recv, out_begin(share), t), {f.word[0], f.word[1]});
        }
        return;
      }
    }
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
    multicast_.store_release(mailbox_word(rank()) + word_of(what), flag_);
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
  static constexpr bool in_windows = Buffers::in_windows;

  CCL_HD void begin_half() {
    half_ = Index(flag_ & 1) * work_.peers.half_packets + work_.first_packet;
  }
  /// A message that uses no scratch is one part.
  CCL_HD void begin_part() {
    constexpr bool both = Shape::sums_for_all, sends = is_one_of<Op, ReduceScatter>;
    const bool whole = both ? sides_.loads && sides_.stores : sends ? sides_.loads : sides_.stores;
    const Index left = work_.layout.count - sides_.begin;
    sides_.count = whole || left < work_.part ? left : work_.part;
    // Without a division: the last part may have fewer shares.
    if (!whole) share_ = work_.layout.split ? work_.part_share : sides_.count;
    tiles_ = div_up<Index>(share_, tile_elements);
  }
  /// Returns the first element of this part, and the number of its elements.
  CCL_HD Index part_begin() const {
    if constexpr (in_windows) return sides_.begin;
    return 0;
  }
  CCL_HD Index part_count() const {
    if constexpr (in_windows) return sides_.count;
    return work_.layout.count;
  }

  /// Returns the first word of the mailbox that `writer` writes, counted from the begin of the
  /// scratch of each rank.
  CCL_HD Index mailbox_word(int writer) const {
    return 2 * work_.peers.half_packets * packet_words +
           writer * Index{sizeof(Mailbox) / sizeof(Word)};
  }
  /// Returns the mailbox that `writer` writes for this rank.
  CCL_HD const Word* words_of(int writer) const {
    return reinterpret_cast<const Word*>(
        detail::mailbox<max_view_ranks>(work_.peers, rank(), writer));
  }
  /// Returns the word of a mailbox with the place of a send buffer, before that of the receive
  /// buffer. Two launches alternate, because a rank may be one ahead.
  CCL_HD Index place_word() const {
    return Index(offsetof(Mailbox, remote_buffer) / sizeof(Word)) + 2 * Index(flag_ & 1);
  }
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
        if (Index(Memory::load_acquire(words_of(p) + word_of(what)) - want) < 0) late = p;
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
    Index row_tiles = tiles_;
    if constexpr (in_windows) row_tiles = work_.row_tiles;
    return half_ + (row * row_tiles + t) * Lane::tile_packets + group_.rank();
  }
  /// Made where it is used: its address is among the arguments, and takes no registers.
  CCL_HD static Multicast bound(const BoundBuffer& buffer) {
    return Multicast{buffer.all, buffer.windows};
  }
  /// Returns this lane's packet of a tile in a window, for the run of elements from `begin` on.
  CCL_HD Index packet_of(const BoundBuffer& in, Index begin, Index t) const {
    constexpr Index size = sizeof(T);
    return in.packet + (begin + t * tile_elements) * size / Index{sizeof(Packet)} + group_.rank();
  }
  /// True if the tile has elements for this lane. In windows, runs are whole packets.
  CCL_HD bool has_packet(int share, Index t) const {
    constexpr Index per_packet = sizeof(Packet) / sizeof(T);
    return group_.rank() * per_packet < left(share, t);
  }
  template <class Functor>
  CCL_HD Packet load_reduced(int share, Index t) const {
    if constexpr (in_windows) {
      if (sides_.loads) {
        if (!has_packet(share, t)) return {};
        const Index at = packet_of(work_.send, in_begin(share), t);
        return bound(work_.send).template load_reduced<Functor, T>(at);
      }
    }
    return multicast_.template load_reduced<Functor, T>(place(0, share, t));
  }
  CCL_HD Index in_begin(int share) const {
    return part_begin() + share * (work_.layout.split ? share_ : work_.layout.in_stride);
  }
  CCL_HD Index out_begin(int share) const {
    return part_begin() + share * (work_.layout.split ? share_ : work_.layout.out_stride);
  }
  /// Returns the elements of the share from tile t on. Below 1 if the tile is past the end.
  CCL_HD Index left(int share, Index t) const {
    const Index rest = work_.layout.split ? part_count() - share * share_ : share_;
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
  typename Buffers::PartState sides_;
  int channel_;
  Index share_;  // elements of a share
  Index tiles_;  // tiles of a share
  Word flag_ = 0;
  Index half_ = 0;  // first packet of this launch's boxes
  SpinWait<Memory> spin_wait_;
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
