#pragma once

#include <ccl/bytes.hpp>
#include <ccl/mail.hpp>
#include <ccl/proto/collect.hpp>
#include <ccl/span.hpp>

namespace ccl {

/// What `OneShot` may do with messages of any size between any two ranks: push each tile into its
/// peer's box, collect what the peers pushed into mine. Tiles are dealt out among the groups, in
/// runs of a few. Boxes have two halves in turn; a sender goes on to one when its receiver has
/// begun the message after the one that used it last.
template <LaneGroup Group, Protocol<Group> Proto, int Align>
class PacketExchange {
  using Memory = typename Group::Memory;
  using Lane = typename Proto::template Lane<Group, 1>;
  using Fragment = typename Lane::Fragment;
  static constexpr Fill fill = Align == 16 ? Fill::cells : Fill::any;
  static constexpr int run = 4;  // tiles that one group has in flight where there are many
  static_assert(Proto::carries_flags, "Peers tell by flags that their tiles have landed.");

 public:
  template <class OtherGroup>
  using Over = PacketExchange<OtherGroup, Proto, Align>;

  static constexpr int tile_bytes = Lane::tile_cells * int(sizeof(Word));
  /// Bytes of a message, at most; a multiple of 128, so that the next one is aligned as this one
  /// is.
  static constexpr Index most_bytes(const PeerView& peers) {
    return box_tiles(peers) * tile_bytes / 128 * 128;
  }
  /// Tiles of all messages of one direction: as many groups have something to do.
  static constexpr Index tiles(const Message* messages, int ranks) {
    Index n = 0;
    for (int p = 0; p < ranks; ++p) n += div_up<Index>(messages[p].bytes, tile_bytes);
    return n;
  }

  /// On the host, once `channels` is known: a message's runs go on with the group where those of
  /// the one before ended, so that small messages go to different groups.
  static void deal(PeerExchangeWork& work) {
    work.box_packets = box_tiles(work.peers) * Lane::tile_packets;
    for (const bool sends : {true, false}) {
      const Message* const messages = sends ? work.out : work.in;
      auto& deal = sends ? work.out_deal : work.in_deal;
      const Index all = tiles(messages, work.peers.ranks);
      deal.run = all > Index{work.channels} * run ? run : 1;
      int next = 0;
      for (int k = 0; k < work.peers.ranks; ++k) {
        const int p = (work.peers.rank + k) % work.peers.ranks;
        deal.tiles[p] = int(div_up<Index>(messages[p].bytes, tile_bytes));
        deal.first[p] = next;
        next = (next + div_up(deal.tiles[p], deal.run)) % work.channels;
      }
    }
  }

  CCL_HD PacketExchange(Group group, const PeerExchangeWork& work, int channel)
      : group_{group},
        lane_{group},
        work_{work},
        channel_{channel},
        rank_{work.peers.rank},
        ranks_{work.peers.ranks},
        state_{work.state.copies + channel % work.crews},
        patience_{work.watch} {
    detail::look_at(work_);
    Memory::await_previous();
  }

  /// Before any push: tells who sends to me that I am through with the messages before.
  CCL_HD void begin() {
    if (channel_ != 0) return;
    for (int p = group_.rank(); p < ranks_; p += Group::width) {
      if (p == rank_ || work_.in[p].bytes == 0) continue;
      Memory::store_credit(detail::mail(work_.peers, p, rank_)->begun, sequence(false, p));
    }
  }

  CCL_HD void push_all() {
    CCL_ROLL for (int k = 0; k < work_.to.count; ++k) {
      const int p = work_.to.rank[k];
      const Message& m = work_.out[p];
      const int n = work_.out_deal.tiles[p];
      Tiles tiles = tiles_of(work_.out_deal, p);
      if (tiles.t >= n) continue;
      const Data data{m.data, p == rank_ ? work_.in[p].data : nullptr};
      if (p == rank_) {
        if (m.data == work_.in[p].data || m.bytes != work_.in[p].bytes) continue;
        for (; tiles.t < n; tiles.next()) store(data, m, tiles.t, load(data, m, tiles.t));
        continue;
      }
      Fragment next = load(data, m, tiles.t);
      const Word flag = sequence(true, p);
      const Word* const begun = detail::mail(work_.peers, rank_, p)->begun;
      // Its begin of the message before this one: it has read what the half held.
      while (!group_.all(Index(Memory::load_credit(begun) + 1 - flag) >= 0)) {
        if (group_.all(patience_.ends(p, flag - 1))) return;
      }
      Packet* const box = box_of(p, rank_, flag);
      while (tiles.t < n) {
        const Fragment f = next;
        Packet* const tile = box + Index{tiles.t} * Lane::tile_packets;
        tiles.next();
        next = load(data, m, tiles.t);
        lane_.store(tile, f, flag);
      }
    }
  }

  CCL_HD void collect_all() {
    CCL_ROLL for (int k = 0; k < work_.from.count; ++k) {
      const int p = work_.from.rank[k];
      const Message& m = work_.in[p];
      const int n = work_.in_deal.tiles[p];
      Tiles tiles = tiles_of(work_.in_deal, p);
      if (tiles.t >= n) continue;
      const Data data{nullptr, m.data};
      const Word flag = sequence(false, p);
      const Packet* const box = box_of(rank_, p, flag);
      while (tiles.t < n) {
        if (tiles.length == run && tiles.t + run <= n) {
          take<run>(data, m, box, tiles.t, flag, p);
          tiles.next_run();
        } else {
          take<1>(data, m, box, tiles.t, flag, p);
          tiles.next();
        }
      }
    }
  }

 private:
  using Data = Span<cuda::std::uint8_t, Align>;

  /// The tiles of one message that are this group's: every `groups`-th run of `length`.
  struct Tiles {
    int t, length, groups;
    int left;  // of the run at hand, t included
    CCL_HD void next() {
      ++t;
      if (--left == 0) {
        t += (groups - 1) * length;
        left = length;
      }
    }
    /// From the first tile of a run to that of the next.
    CCL_HD void next_run() { t += groups * length; }
  };
  /// The first tile of this group of a message, and how it goes on.
  CCL_HD Tiles tiles_of(const PeerExchangeWork::Deal& deal, int p) const {
    const int behind = channel_ - deal.first[p];
    const int mine = behind < 0 ? behind + work_.channels : behind;
    return {mine * deal.run, deal.run, work_.channels, deal.run};
  }

  CCL_HD Fragment load(const Data& data, const Message& m, int t) const {
    const Index at = Index{t} * tile_bytes;
    return data.template load<fill>(lane_, at, m.bytes - at);
  }
  CCL_HD void store(const Data& data, const Message& m, int t, const Fragment& f) const {
    const Index at = Index{t} * tile_bytes;
    data.template store<fill>(lane_, at, m.bytes - at, f);
  }
  template <int N>
  CCL_HD void take(const Data& data, const Message& m, const Packet* box, int t, Word flag, int p) {
    const auto got = collect<N>(lane_, box + Index{t} * Lane::tile_packets, flag, p, patience_);
    CCL_UNROLL for (int i = 0; i < N; ++i) store(data, m, t + i, got.of[i]);
  }
  static constexpr Index box_tiles(const PeerView& peers) {
    return peers.half_packets / peers.ranks / Lane::tile_packets;
  }
  CCL_HD Packet* box_of(int owner, int writer, Word flag) const {
    return work_.peers.scratch[owner] + Index(flag & 1) * work_.peers.half_packets +
           writer * work_.box_packets;
  }
  /// Of this launch's message to or from a peer.
  CCL_HD Word sequence(bool sends, int p) const {
    const int word = (sends ? 0 : PeerExchangeWork::most_ranks) + p;
    return Memory::load_relaxed(state_ + word * work_.state.count) + 1;
  }

  Group group_;
  Lane lane_;
  const PeerExchangeWork& work_;
  int channel_, rank_, ranks_;
  const Word* state_;
  Patience<Memory> patience_;
};

}  // namespace ccl
