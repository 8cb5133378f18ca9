#pragma once

#include <ccl/detail/lanes/copy_run.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// First line of a slot: what a kernel asks the proxy to do at a rank whose memory it does not
/// address.
struct FarHeader {
  enum Kind : Word {
    to_window,   // the bytes behind the header go into the window of `peer`, from `offset` on
    to_scratch,  // packets with flags, for the scratch of `peer`
    set_word,    // `value` goes into the scratch of `peer`, after all earlier messages
    end          // nothing follows; sent by the proxy alone
  };
  Word number = 0;  // turns of the queue up to this one; written last
  Word peer = 0, kind = 0, offset = 0, bytes = 0, value = 0;
};

/// Queue in memory of the host, which lanes of all blocks fill and the proxy empties in order. A
/// turn is one slot: a header and a payload.
struct FarQueue {
  static constexpr Index header_bytes = 128, payload_bytes = 8192;
  static constexpr Index slot_bytes = header_bytes + payload_bytes;
  static constexpr int slot_count = 64;
  char* slots = nullptr;    // slot_count * slot_bytes, zero at first
  Word* drained = nullptr;  // turns that the proxy is done with

  CCL_HD FarHeader* slot(Word turn) const {
    return reinterpret_cast<FarHeader*>(slots + Index(turn % Word(slot_count)) * slot_bytes);
  }
  CCL_HD static char* payload(FarHeader* slot) {
    return reinterpret_cast<char*>(slot) + header_bytes;
  }
};

/// Returns the rank to which the oldest turn goes, which keeps the later ones, or -1 if its block
/// has not given it.
template <class Memory>
CCL_HD int oldest_peer(const FarQueue& queue, Word drained) {
  const FarHeader* const oldest = queue.slot(drained);
  if (Memory::load_acquire(&oldest->number) != drained + 1) return -1;
  return int(Memory::load_relaxed(&oldest->peer));
}

/// Takes the next turn for a group, whose lanes read it in `mine`. `taken` counts the turns of this
/// rank. Waits for the proxy to drain the slot; returns null on all lanes if the wait has failed.
/// The deadline is that of one wait in which no turn is drained, and names the rank of the oldest.
template <LaneGroup Group>
CCL_HD_APART FarHeader* take_turn(const Group& group, const FarQueue& queue, Word* taken,
                                  Word* mine, int peer, const AbortWatch& watch) {
  using Memory = typename Group::Memory;
  constexpr Word none = ~Word{0};
  group.sync();  // all lanes have read the turn before
  if (group.rank() == 0) {
    SpinWait<Memory> spin_wait{watch};
    Word turn = Memory::fetch_add(taken, 1);
    Word done = Memory::load_acquire(queue.drained), seen = none;
    for (int late = -1; turn != none && Index(done + Word(queue.slot_count) - 1 - turn) < 0;) {
      if (late < 0 || done != seen) late = oldest_peer<Memory>(queue, seen = done);
      if (spin_wait.ends(late < 0 ? peer : late, done)) turn = none;
      done = Memory::load_acquire(queue.drained);
    }
    Memory::store_relaxed(mine, turn);
  }
  group.sync();
  const Word turn = Memory::load_relaxed(mine);
  return turn == none ? nullptr : queue.slot(turn);
}

/// Gives a turn to the proxy, after all lanes' writes to its payload.
template <LaneGroup Group>
CCL_HD void give_turn(const Group& group, FarHeader* slot, const Word* mine,
                      const FarHeader& header) {
  using Memory = typename Group::Memory;
  group.sync();  // every lane's writes, then the number
  if (group.rank() != 0) return;
  Memory::store_relaxed(&slot->peer, header.peer);
  Memory::store_relaxed(&slot->kind, header.kind);
  Memory::store_relaxed(&slot->offset, header.offset);
  Memory::store_relaxed(&slot->bytes, header.bytes);
  Memory::store_relaxed(&slot->value, header.value);
  Memory::store_release(&slot->number, Memory::load_relaxed(mine) + 1);
}

}  // namespace ccl::detail

CCL_ANY_SPACE_END
