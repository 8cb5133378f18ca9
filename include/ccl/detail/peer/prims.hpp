#pragma once

#include <ccl/detail/base/bytes.hpp>
#include <ccl/detail/exchange/mailbox.hpp>
#include <ccl/detail/lanes/block_epilogue.hpp>
#include <ccl/detail/lanes/collect.hpp>
#include <ccl/detail/numeric/reduction.hpp>
#include <ccl/detail/numeric/user_buffer.hpp>
#include <ccl/detail/peer/work.hpp>

namespace ccl::detail {

/// What an algorithm may do with peers whose memory it can address: push a tile into a peer's box,
/// collect what every peer pushed into mine. A box of each rank is written once per launch. The
/// message is one share, or one for each rank, in tiles that the groups deal out among themselves.
///
/// Scratch halves alternate from launch to launch: where every rank waits for data of all others,
/// none is more than one launch ahead, and nobody still reads what it overwrites. Where some wait
/// for nobody, `begin_in_step` keeps them from running ahead.
template <LaneGroup Group, Protocol<Group> Proto, class R, int Align, int Ranks>
class PeerPrims {
 public:
  static constexpr int ranks = Ranks;
  using T = typename R::Type;
  using Memory = typename Group::Memory;
  using Lane = typename Proto::template Lane<Group, Element<T>::words_per_cell>;
  using Fragment = typename Lane::Fragment;
  using All = Fragments<Fragment, Ranks>;
  static_assert(Proto::carries_flags, "Peers tell by flags that their tiles have landed.");

  /// first, first + step, ...: the tiles of one group.
  struct Stripe {
    int first, last, step;
  };

  static constexpr int tile_elements = Lane::tile_cells * Element<T>::per_cell;
  /// Elements: shares begin at multiples of 128 bytes.
  static constexpr int grain = [] {
    int n = 128;
    while (n > 1 && (n / 2) * int(sizeof(T)) % 128 == 0) n /= 2;
    return n;
  }();

  /// Packets of scratch that a launch of `share` elements for each box needs, in each half.
  static constexpr Index half_packets(Index share, int boxes) {
    return div_up<Index>(share, tile_elements) * Lane::tile_packets * Ranks * boxes;
  }
  /// Elements of a share, where `count` elements are split among the ranks.
  CCL_HD static constexpr int split_share(int count) {
    return div_up(div_up(count, Ranks), grain) * grain;
  }

  CCL_HD PeerPrims(Group group, const PeerWork<R>& work, int channel)
      : group_{group},
        work_{work},
        lane_{group},
        data_{work.input, work.output},
        reduction_{work.reduction},
        rank_{work.peers.rank},
        block_{work.first_block + channel % work.blocks},
        count_{int(work.layout.count)},
        share_{work.layout.split ? split_share(count_) : count_},
        in_stride_{work.layout.split ? share_ : work.layout.in_stride},
        out_stride_{work.layout.split ? share_ : work.layout.out_stride},
        tiles_{div_up(share_, tile_elements)},
        stripe_{channel, tiles_, work.channels},
        spin_wait_{work.watch} {
    detail::look_at(work_);
    Memory::await_previous();
    if constexpr (detail::reduces<R>) reduction_.load_here();
  }

  /// Before any push or collect. What is loaded before this is on its way together with the epoch.
  CCL_HD void begin() {
    flag_ = Memory::load_relaxed(work_.epoch.copies + block_) + 1;
    const Index half = Index(flag_ & 1) * work_.peers.half_packets + work_.first_packet;
    mine_ = work_.peers.scratch[rank_] + half;
    CCL_UNROLL for (int k = 1; k < Ranks; ++k) {
      theirs_[k] = work_.peers.scratch[peer(k)] + half + slots(rank_, 0);
    }
  }

  /// The same where not everybody waits for everybody: also tells the peers that this rank is
  /// through with all launches before this one. To be followed by `await_step` of those to whom
  /// this rank pushes; every rank calls it in every launch of the operation.
  CCL_HD void begin_in_step() {
    begin();
    if (stripe_.first != 0) return;
    for (int p = group_.rank(); p < Ranks; p += Group::width) {
      if (p == rank_) continue;
      Memory::store_credit(detail::mailbox(work_.peers, p, rank_)->begun, flag_);
    }
  }
  /// Until rank p is through with the launch that used this half before; false if patience ended.
  CCL_HD bool await_step(int p) {
    const Word* const begun = detail::mailbox(work_.peers, rank_, p)->begun;
    while (!group_.all(Index(Memory::load_credit(begun) + 1 - flag_) >= 0)) {
      if (group_.all(spin_wait_.ends(p, flag_ - 1))) return false;
    }
    return true;
  }
  CCL_HD bool await_step_of_all() {
    bool all = true;
    CCL_ROLL for (int p = 0; p < Ranks; ++p) all = all && (p == rank_ || await_step(p));
    return all;
  }

  /// Counts the launch for the crews that have no part in it. For algorithms that are about to wait
  /// for the peers' tiles; else it is done at the end.
  CCL_HD void count_launch() {
    launch_counted_ = true;
    if (stripe_.first >= work_.blocks) return;
    const int all = work_.blocks + work_.other_blocks;
    detail::for_absent_blocks(block_, all, work_.epoch.count, group_.rank(), Group::width,
                              [this](int i) { work_.epoch.copies[i] = flag_; });
  }

  /// This group's tiles of each share.
  CCL_HD const Stripe& tiles() const { return stripe_; }
  CCL_HD int rank() const { return rank_; }
  CCL_HD int root() const { return work_.root; }
  CCL_HD Word flag() const { return flag_; }
  /// For `end`.
  CCL_HD Word left() const { return flag_ << 1 | Word{launch_counted_}; }

  CCL_HD Fragment load(int share, int t) const {
    return data_.template load<fill>(lane_, share * in_stride_ + Index{t} * tile_elements,
                                     left(share, t));
  }
  CCL_HD void store(int share, int t, const Fragment& f) const {
    data_.template store<fill>(lane_, share * out_stride_ + Index{t} * tile_elements,
                               left(share, t), f);
  }
  /// My own tile as it travels: scaled, where the reduction does that.
  CCL_HD Fragment prepare(const Fragment& f) const {
    if constexpr (detail::prepares<R>()) {
      return as_sent(CellReducer<R, Lane::words>::from_own(reduction_, f).result());
    } else {
      return as_sent(f);
    }
  }
  /// Tile t of every share but mine; `of[k]` is the share of the k-th rank after me.
  CCL_HD All load_others(int t) const {
    All all;
    CCL_UNROLL for (int k = 1; k < Ranks; ++k) all.of[k] = load(peer(k), t);
    return all;
  }

  /// The fragment to every peer.
  CCL_HD void push(int box, int t, const Fragment& f) const {
    CCL_UNROLL for (int k = 1; k < Ranks; ++k) {
      send(theirs_[k] + slots(box * Ranks, t), f);
    }
  }
  /// To one rank, not to myself.
  CCL_HD void push_to(int rank, int box, int t, const Fragment& f) const {
    Packet* const row = work_.peers.scratch[rank] + Index(flag_ & 1) * work_.peers.half_packets +
                        work_.first_packet + slots(rank_, 0);
    send(row + slots(box * Ranks, t), f);
  }
  /// To each peer its own.
  CCL_HD void scatter(int box, int t, const All& all) const {
    CCL_UNROLL for (int k = 1; k < Ranks; ++k) {
      send(theirs_[k] + slots(box * Ranks, t), prepare(all.of[k]));
    }
  }
  /// What the peers pushed; mine is whatever. Ends with the peers' flags or with patience.
  CCL_HD All collect(int box, int t) {
    Packet* const row = mine_ + slots(box * Ranks, t);
    const All all = collect_peers<Ranks>(lane_, row, slots(1, 0), flag_, rank_, spin_wait_);
    CCL_UNROLL for (int r = 0; r < Ranks; ++r) {
      if (r != rank_) empty(row + slots(r, 0));
    }
    return all;
  }
  /// What one rank pushed.
  CCL_HD Fragment collect_from(int rank, int box, int t) {
    Packet* const tile = mine_ + slots(box * Ranks + rank, t);
    const Fragment f = ccl::detail::collect<1>(lane_, tile, flag_, rank, spin_wait_).of[0];
    empty(tile);
    return f;
  }
  /// To the output, each where `load_others` found it.
  CCL_HD void store_loaded(int t, const All& all) const {
    CCL_UNROLL for (int k = 1; k < Ranks; ++k) store(peer(k), t, all.of[k]);
  }
  /// In rank order, so that every rank has the same bits; `own`, prepared, in my place.
  CCL_HD Fragment reduce(const All& all, const Fragment& own) const {
    auto sum = CellReducer<R, Lane::words>::from_received(reduction_, pick(0, all, own));
    CCL_UNROLL for (int r = 1; r < Ranks; ++r) sum.add_received(pick(r, all, own));
    return as_sent(sum.finish());
  }

 private:
  static constexpr Fill fill = Align == 16 ? Fill::cells : Fill::any;

  /// What the others get of a fragment that this rank goes on with, too.
  CCL_HD static Fragment as_sent(const Fragment& f) {
    if constexpr (requires { Lane::as_sent(f); }) return Lane::as_sent(f);
    return f;
  }
  CCL_HD void empty(Packet* tile) const {
    if constexpr (requires { lane_.empty(tile); }) lane_.empty(tile);
  }
  /// What is left of a wait that was given up must not pass for data: it has the flag of the launch
  /// before, whose tiles are in the other half, or does not go where there are no flags. `collect`
  /// gives up with all of the lanes that share a flag, or with none.
  CCL_HD void send(Packet* tile, const Fragment& f) const {
    if constexpr (requires { lane_.empty(tile); }) {
      if (!spin_wait_.failed()) lane_.store(tile, f, flag_);
    } else {
      lane_.store(tile, f, flag_ - Word{spin_wait_.failed()});
    }
  }
  CCL_HD int peer(int k) const {
    if constexpr ((Ranks & (Ranks - 1)) == 0) return (rank_ + k) & (Ranks - 1);
    return rank_ + k - (rank_ + k < Ranks ? 0 : Ranks);
  }
  CCL_HD Fragment pick(int r, const All& all, const Fragment& own) const {
    Fragment f;
    CCL_UNROLL for (int w = 0; w < Lane::words; ++w) {
      f.word[w] = r == rank_ ? own.word[w] : all.of[r].word[w];
    }
    return f;
  }
  /// Elements of the share from tile t on; below one past its end.
  CCL_HD int left(int share, int t) const {
    const int rest = work_.layout.split ? count_ - share * share_ : count_;
    return (rest < share_ ? rest : share_) - t * tile_elements;
  }
  /// Packets in `rows` rows of slots, a slot for each tile, and `t` more.
  CCL_HD Index slots(int rows, int t) const {
    return (Index{rows} * tiles_ + t) * Lane::tile_packets;
  }

  Group group_;
  const PeerWork<R>& work_;
  Lane lane_;
  UserBuffer<T, Align> data_;
  R reduction_;
  int rank_, block_;
  int count_, share_;  // elements
  Index in_stride_, out_stride_;
  int tiles_;  // of a share
  Stripe stripe_;
  Word flag_ = 0;                // this launch's epoch
  bool launch_counted_ = false;  // for the crews without a part
  Packet* mine_ = nullptr;       // in my memory: Ranks rows of slots for each box
  Packet* theirs_[Ranks] = {};   // my row in the memory of the k-th rank after me
  SpinWait<Memory> spin_wait_;
};

/// One launch over a peer view, as an executor runs it.
template <class Op, class Algo, class Proto, int Align, class R, int Ranks>
struct PeerBody {
  using Work = PeerWork<R>;
  static constexpr int max_lanes = 512;
  const Work& work;

  /// Does the message fit into the scratch? Nobody else looks.
  template <LaneGroup Group>
  static constexpr bool fits(const Work& work) {
    using Prims = PeerPrims<Group, Proto, R, Align, Ranks>;
    return Prims::half_packets(share<Group>(work), Algo::boxes) <= work.peers.half_packets;
  }
  /// Tiles of each share: as many groups have something to do.
  template <LaneGroup Group>
  static constexpr Index tiles(const Work& work) {
    using Prims = PeerPrims<Group, Proto, R, Align, Ranks>;
    return div_up<Index>(share<Group>(work), Prims::tile_elements);
  }
  /// Of each half of the scratch that the message takes. A multiple of 128 bytes.
  template <LaneGroup Group>
  static constexpr Index packets(const Work& work) {
    using Prims = PeerPrims<Group, Proto, R, Align, Ranks>;
    return div_up<Index>(Prims::half_packets(share<Group>(work), Algo::boxes), 8) * 8;
  }
  /// Elements of the longest message, split or of each share, that fits into a half of the scratch.
  /// A multiple of 128 bytes, so that the next one is aligned as this one is.
  template <LaneGroup Group>
  static constexpr Index max_elements(const Work& work) {
    using Prims = PeerPrims<Group, Proto, R, Align, Ranks>;
    const Index tiles = work.peers.half_packets / Prims::half_packets(1, Algo::boxes);
    const Index share = tiles * Prims::tile_elements / Prims::grain * Prims::grain;
    const Index most = work.layout.split ? share * Ranks : share;
    constexpr Index limit = Index{1} << 30;
    return most < limit ? most : limit;
  }

  template <LaneGroup Group>
  CCL_HD Word operator()(Group group, int channel) const {
    PeerPrims<Group, Proto, R, Align, Ranks> prims{group, work, channel};
    Algo::run(Op{}, prims);
    return prims.left();
  }
  template <LaneGroup Group>
  static constexpr Index share(const Work& work) {
    using Prims = PeerPrims<Group, Proto, R, Align, Ranks>;
    return work.layout.split ? Prims::split_share(int(work.layout.count)) : work.layout.count;
  }
  /// Counts the launch in the crew's copy, and in those of crews without a part if nobody has.
  CCL_HD void end(Word left, int block, int lane, int lanes) const {
    const int all = work.blocks + work.other_blocks;
    detail::count_at_end(work.epoch, left, work.first_block + block, all, lane, lanes);
  }
};

}  // namespace ccl::detail
