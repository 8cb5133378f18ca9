#pragma once

#include <ccl/detail/lanes/peer_view.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/detail/wire/work.hpp>

#include <initializer_list>

namespace ccl::detail {

/// What one peer writes into this rank's memory beside data: a line or more for each purpose, as
/// words of different writers must not share one. `seq` counts the messages from one rank to
/// another, from 1 on; both ends count them alike.
struct alignas(128) Mailbox {
  static constexpr int max_rings = 64;
  Word begun[words_per_line];  // [0]: the last launch, or message from here to there, that the peer
                               // has begun: it is through with all before
  Word remote_buffer[words_per_line];  // [0], [1]: where the peer wants message `seq`: halves of a
                                       // word, each with the low half of `seq` above it
  Word counted[words_per_line];  // [seq % 2]: low half of `seq` << 32 | rows of message `seq`,
                                 // where only the peer knew how many it would be
  Word reported[max_rings];  // of the message from the peer: seq << 32 | slots that it has filled
  Word drained[max_rings];   // of the message to the peer: seq << 32 | slots that it has emptied
};
static_assert(sizeof(Mailbox) % 128 == 0);

/// Where a byte of a rank's own buffers is, as peers find it: the id of the memory that the rank
/// has opened to them, then the offset in that. 0: in no such memory.
struct RemoteBuffer {
  static constexpr int id_shift = 44;
  static constexpr int slots = 256;               // memories that a rank keeps open at a time
  static constexpr int base_bits = id_shift + 8;  // of addresses that an entry can hold
  static constexpr Word offset_mask = (Word{1} << id_shift) - 1;

  CCL_HD static constexpr Word where(Word id, Word offset) { return id << id_shift | offset; }
  CCL_HD static constexpr int slot(Word where) { return int((where >> id_shift) % Word(slots)); }
  /// What a rank keeps in its table for a memory of a peer that it has mapped at `base`, a multiple
  /// of 256. One word, so that it changes at once.
  CCL_HD static constexpr Word entry(Word id, Word base) { return id << id_shift | base >> 8; }
  CCL_HD static constexpr bool leads(Word entry, Word where) {
    return where != 0 && entry >> id_shift == where >> id_shift;
  }
  CCL_HD static char* at(Word entry, Word where) {
    return reinterpret_cast<char*>(((entry & offset_mask) << 8) + (where & offset_mask));
  }
};

/// What one launch of an exchange over a peer view is told: at most one message to each peer and
/// one from each. Ranks that have nothing to do with each other need not make the same launches.
struct PeerExchangeWork {
  static constexpr int max_ranks = PeerView::max_ranks;
  /// Words of state: messages sent to each rank so far, then those received from each. Each has a
  /// copy for each crew, side by side: who counts a message in all copies then touches few lines.
  static constexpr int state_words = 2 * max_ranks;

  PeerView peers;
  Epoch state;  // of each word of the state, otherwise as `Epoch` says
  const Word* table =
      nullptr;             // `RemoteBuffer::slots` entries for each rank; null: nothing is mapped
  Message out[max_ranks];  // bytes 0: none
  Message in[max_ranks];
  Word where[max_ranks] = {};  // of `in`, for the peers
  /// How a direction's tiles are dealt out among the groups, where messages travel in tiles.
  struct TileAssignment {
    int tiles[max_ranks] = {};
    int first[max_ranks] = {};  // the group that has the first run of a message
    int run = 1;                // tiles that go to a group together
  };
  TileAssignment out_deal, in_deal;
  /// The ranks with a message of a direction, from this one on: ahead of it, or behind.
  struct Partners {
    int count = 0;
    int rank[max_ranks] = {};
    int rings = 0;  // of the message that has the most
  };
  Partners to, from;
  unsigned counts = 0;    // words of the state that this launch counts up, a bit for each
  int max_rings = 1;      // of a message; the same on all ranks
  Index slot_bytes = 0;   // of a ring
  Index box_packets = 0;  // of what one rank pushes to another, in each half
  int channels = 1;       // groups of the launch
  int blocks = 1;         // groups that end together
  AbortWatch watch;
};

/// What the address and size of every message are a multiple of, at most 16.
inline int alignment(const PeerExchangeWork& work) {
  Word bits = 16;
  for (int p = 0; p < work.peers.ranks; ++p) {
    for (const Message& m : {work.out[p], work.in[p]}) {
      if (m.bytes > 0) bits |= reinterpret_cast<cuda::std::uintptr_t>(m.data) | Word(m.bytes);
    }
  }
  return int(bits & -bits);
}

/// What rank `writer` writes for rank `owner`, behind the owner's scratch.
CCL_HD Mailbox* mailbox(const PeerView& peers, int owner, int writer) {
  return reinterpret_cast<Mailbox*>(peers.scratch[owner] + 2 * peers.half_packets) + writer;
}

/// How a message is shared out among rings, each a run of slots in the receiver's scratch. Both its
/// ends come to the same.
struct Rings {
  static constexpr Index worth_bytes = Index{16} << 10;  // of a message, for one more ring
  static constexpr int slot_count = 4;
  /// Together, the messages of a launch to all peers keep a GPU busy; so must one where a rank
  /// sends to one peer.
  CCL_HD static constexpr int most(int ranks, bool one_peer) {
    const int n = one_peer ? Mailbox::max_rings : 128 / ranks;
    return n < Mailbox::max_rings ? n : Mailbox::max_rings;
  }
  CCL_HD static constexpr int used(Index bytes, int most) {
    const Index n = div_up(bytes, worth_bytes);
    return n < most ? int(n) : most;
  }
  /// The part of a message that goes through `ring`: whole lines, but for the last.
  CCL_HD static constexpr Message part(const Message& m, int ring, int most) {
    const int n = used(m.bytes, most);
    if (ring >= n) return {};
    const Index each = div_up<Index>(m.bytes, Index{128} * n) * 128;
    const Index begin = each * ring;
    const Index left = m.bytes - begin;
    if (left <= 0) return {};
    return {m.data + begin, left < each ? left : each};
  }
  /// Bytes of a slot: a rank's scratch, both halves of it, is dealt out to its peers.
  CCL_HD static constexpr Index slot_bytes(const PeerView& peers, int most) {
    return 2 * peers.half_packets * Index{sizeof(Packet)} /
           (Index{peers.ranks} * most * slot_count) / 128 * 128;
  }
  /// In the scratch of `owner`, for what `writer` sends.
  CCL_HD static char* slot(const PeerView& peers, int most, Index slot_bytes, int owner, int writer,
                           int ring, Index chunk) {
    const Index row = (Index{writer} * most + ring) * slot_count + chunk % slot_count;
    return reinterpret_cast<char*>(peers.scratch[owner]) + row * slot_bytes;
  }
};

}  // namespace ccl::detail
