#pragma once

#include <ccl/detail/base/word_set.hpp>
#include <ccl/detail/lanes/peer_view.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/detail/wire/work.hpp>
#include <ccl/types/macros.hpp>

#include <cuda/std/cstdint>
#include <cuda/std/type_traits>

#include <initializer_list>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Words that one peer writes into this rank's memory beside data. Each purpose has its own lines,
/// because words of different writers must not share a line. `seq` counts the messages from one
/// rank to another, from 1 on, equally at both ends.
struct alignas(128) Mailbox {
  static constexpr int max_rings = 64;
  // [0]: last launch, or message from this rank to the peer, that the peer has begun. The peer is
  // done with all earlier ones.
  Word begun[words_per_line];
  // [0], [1]: halves of the peer's `RemoteBuffer` reference for message `seq`. The low half of
  // `seq` is in the high half of each word. [2], [3]: those of its output, if it reduces.
  Word remote_buffer[words_per_line];
  // [seq % 2]: low half of `seq` << 32 | rows of message `seq`, if only the peer knows them.
  Word counted[words_per_line];
  Word reported[max_rings];  // message from the peer: seq << 32 | slots that it has filled
  Word drained[max_rings];   // message to the peer: seq << 32 | slots that it has emptied
  // Both counts again, of the sums that the peer and this rank send each other in an all-reduce.
  // A reduction by `DirectReduce` counts one more in the drained words.
  Word sums_reported[max_rings], sums_drained[max_rings];
};
static_assert(sizeof(Mailbox) % 128 == 0);

/// Reference to a byte of a rank's buffers, which peers can resolve. It holds the id of a memory
/// that the rank has opened to the peers, then the offset in that memory. 0 if the byte is in no
/// such memory.
struct RemoteBuffer {
  static constexpr int id_shift = 44;
  static constexpr int slots = 256;  // maximum memories that a rank keeps open at a time
  static constexpr int base_bits = id_shift + 8;  // bits of an address in an entry
  static constexpr Word offset_mask = (Word{1} << id_shift) - 1;

  CCL_HD static constexpr Word where(Word id, Word offset) { return id << id_shift | offset; }
  CCL_HD static constexpr int slot(Word where) { return int((where >> id_shift) % Word(slots)); }
  /// Returns the table entry of a peer's memory that is mapped at `base`, a multiple of 256. An
  /// entry is one word, so that it changes atomically.
  CCL_HD static constexpr Word entry(Word id, Word base) { return id << id_shift | base >> 8; }
  CCL_HD static constexpr bool leads(Word entry, Word where) {
    return where != 0 && entry >> id_shift == where >> id_shift;
  }
  CCL_HD static char* at(Word entry, Word where) {
    return reinterpret_cast<char*>(((entry & offset_mask) << 8) + (where & offset_mask));
  }
};

/// Maximum rings of a message: of one of `long_bytes` or more, and of a shorter one.
struct RingLimit {
  int many = 1, few = 1;
  Index long_bytes = Index{16} << 20;

  CCL_HD constexpr int of(Index bytes) const { return bytes < long_bytes ? few : many; }
};

/// Arguments of one launch of an exchange over a peer view: at most one message to each peer and
/// one from each. Ranks that exchange no messages need not make the same launches.
///
/// `Most`: maximum number of ranks. Kernels for few ranks have few arguments.
template <int Most>
struct BasicPeerExchangeWork {
  static constexpr int max_ranks = Most;
  /// Words of state: messages sent to each rank, then messages received from each rank. Each block
  /// has its own copy of a word. The copies of a word are adjacent, so that a count in all copies
  /// touches few lines.
  static constexpr int state_words = 2 * max_ranks;

  PeerView peers;
  Epoch state;  // copies of each word of the state; see `Epoch`
  const Word* table =
      nullptr;             // `RemoteBuffer::slots` entries for each rank; null: nothing is mapped
  Message out[max_ranks];  // bytes 0: none
  Message in[max_ranks];
  Word where[max_ranks] = {};  // references to `in`, posted to the peers
  /// Assignment of a direction's tiles to groups, if messages travel in tiles.
  struct TileAssignment {
    using Count = cuda::std::conditional_t<(Most > max_unrolled_ranks), cuda::std::uint16_t, int>;
    Count tiles[max_ranks] = {};
    Count first[max_ranks] = {};  // group of the first run of a message
    int run = 1;                  // adjacent tiles of one group
  };
  TileAssignment send_tiles, recv_tiles;
  /// Ranks with a message of a direction, by their distance from this rank. Sends count upwards
  /// from this rank, and receives count downwards.
  struct Partners {
    /// Fewer bytes for many ranks: arguments of more than 4 KiB would take longer to launch.
    using Number = cuda::std::conditional_t<(Most > max_unrolled_ranks), cuda::std::uint8_t, int>;
    int count = 0;
    Number rank[max_ranks] = {};
    int rings = 0;  // maximum rings of a message
  };
  Partners to, from;
  int own_rings = 0;            // rings of this rank's message to itself, if it is not in `to`
  WordSet<state_words> counts;  // words of the state that this launch increments
  RingLimit rings;              // the same on all ranks
  bool in_turns = false;        // see `Rings::in_turns`
  bool by_engine = false;       // the copy engine sends: long messages of multiples of 16 bytes
  Index slot_bytes = 0;         // bytes of a slot
  Index own_step = 0;           // bytes of the message to itself that a group copies at once
  Index box_packets = 0;        // packets of a box in each half
  int channels = 1;             // groups of the launch
  int blocks = 1;               // see `HasBlockEpilogue`
  int shared_bytes = 0;         // shared memory of a block that the launch asks for
  AbortWatch watch;
};

/// Arguments of the kernels for as many ranks as have their addresses in a kernel's arguments, and
/// of those for more.
using PeerExchangeWork = BasicPeerExchangeWork<max_unrolled_ranks>;
using WidePeerExchangeWork = BasicPeerExchangeWork<max_view_ranks>;
static_assert(sizeof(WidePeerExchangeWork) <= 4096);

/// Returns the words of state of a composition, which the launches of an exchange count in.
constexpr int state_words(int ranks) {
  return ranks > max_unrolled_ranks ? WidePeerExchangeWork::state_words
                                    : PeerExchangeWork::state_words;
}
/// Returns the mailboxes behind the scratch of a rank.
constexpr int mailboxes(int ranks) {
  return ranks > max_unrolled_ranks ? ranks : max_unrolled_ranks;
}

/// Returns the largest power of two, at most 16, that divides the address and size of every
/// message.
template <int Most>
int alignment(const BasicPeerExchangeWork<Most>& work) {
  Word bits = 16;
  for (int p = 0; p < work.peers.ranks; ++p) {
    for (const Message& m : {work.out[p], work.in[p]}) {
      if (m.bytes > 0) bits |= reinterpret_cast<cuda::std::uintptr_t>(m.data) | Word(m.bytes);
    }
  }
  return int(bits & -bits);
}

/// Returns the mailbox that rank `writer` writes for rank `owner`. It follows the owner's scratch.
/// `Most`: see `PeerView::scratch_of`.
template <int Most = max_unrolled_ranks>
CCL_HD Mailbox* mailbox(const PeerView& peers, int owner, int writer) {
  return reinterpret_cast<Mailbox*>(peers.scratch_of<Most>(owner) + 2 * peers.half_packets) +
         writer;
}

/// Division of a message among rings, each a run of slots in the receiver's scratch. Both ends
/// compute the same division.
struct Rings {
  static constexpr Index worth_bytes = Index{16} << 10;  // bytes of a message per ring
  static constexpr int slot_count = 4;
  static constexpr Index whole = Index{1} << 62;  // more bytes than any part has
  /// True if each block should have one ring of all long messages, and send a piece of each in
  /// turn. With more blocks than the default limit, and to one peer, each has rings of its own.
  ///
  /// All-to-alls among 4 H200 on 32 blocks take 638 us in turns for 256 MiB, and 707 otherwise, but
  /// 56 and 50 us for 16 MiB (docs/validation/performance.md).
  CCL_HD static constexpr bool in_turns(int ranks, bool one_peer, int blocks) {
    return ranks > 2 && !one_peer && blocks <= 32;
  }
  /// Returns the limit for launches of `blocks` blocks. The messages of a launch to all peers share
  /// the blocks, a ring in each, unless they take turns. A message to the only peer has all of
  /// them.
  CCL_HD static constexpr RingLimit limit(int ranks, bool one_peer, int blocks, bool in_turns) {
    const int peers = ranks > 2 ? ranks - 1 : 1;
    const int few = within(one_peer ? blocks : int(best_beside_own(ranks, blocks)) / peers);
    return {in_turns ? within(blocks) : few, few};
  }
  /// Returns the number of blocks, of `blocks`, that copy fastest to peers beside a copy of this
  /// rank's own message. Bare copies among H200 (docs/validation/calls.md):
  /// - 128 MiB to a peer and back: 369 us in 16 blocks, 452 in 24, 424 in 32, 382 in 64.
  /// - 64 MiB to each of 3 peers: 611 us in 24 blocks, 654 in 32, 596 in 128.
  CCL_HD static constexpr Index best_beside_own(int ranks, Index blocks) {
    if (ranks < 3) return blocks < 16 ? blocks : 16;
    return blocks > 24 && blocks <= 32 ? 24 : blocks;
  }
  CCL_HD static constexpr int used(Index bytes, const RingLimit& limit) {
    const Index n = div_up(bytes, worth_bytes);
    const int most = limit.of(bytes);
    return n < most ? int(n) : most;
  }
  /// Returns the part of a message that goes through `ring`. All parts except the last are whole
  /// lines.
  CCL_HD static constexpr Message part(const Message& m, int ring, const RingLimit& limit) {
    const int n = used(m.bytes, limit);
    if (ring >= n) return {};
    const Index each = div_up<Index>(m.bytes, Index{128} * n) * 128;
    const Index begin = each * ring;
    const Index left = m.bytes - begin;
    if (left <= 0) return {};
    return {m.data + begin, left < each ? left : each};
  }
  /// Returns the bytes of a slot. Both halves of a rank's scratch are divided among its peers.
  CCL_HD static constexpr Index slot_bytes(const PeerView& peers, int most) {
    return 2 * peers.half_packets * Index{sizeof(Packet)} /
           (Index{peers.ranks} * most * slot_count) / 128 * 128;
  }
  /// Returns a slot in the scratch of `owner` for data from `writer`.
  template <int Most = max_unrolled_ranks>
  CCL_HD static char* slot(const PeerView& peers, int most, Index slot_bytes, int owner, int writer,
                           int ring, Index chunk) {
    const Index row = (Index{writer} * most + ring) * slot_count + chunk % slot_count;
    return reinterpret_cast<char*>(peers.scratch_of<Most>(owner)) + row * slot_bytes;
  }

 private:
  CCL_HD static constexpr int within(int rings) {
    return rings < 1 ? 1 : rings < Mailbox::max_rings ? rings : Mailbox::max_rings;
  }
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
