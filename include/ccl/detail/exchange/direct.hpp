#pragma once

#include <ccl/detail/exchange/counts.hpp>
#include <ccl/detail/exchange/mailbox.hpp>
#include <ccl/detail/exchange/mailbox_wait.hpp>
#include <ccl/detail/lanes/copy_turns.hpp>
#include <ccl/detail/lanes/phases.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Operations of `Direct`, which moves the messages of a launch in rings. The rings are assigned to
/// groups.
///
/// A receiver posts a `RemoteBuffer` reference to its buffer. A sender that has mapped that memory
/// stores into it. Otherwise the sender fills slots of the receiver's scratch, which the receiver
/// empties.
///
/// The sender alone chooses between the two, for each ring.
///
/// `Notes`: times of the launch, for `Traced`.
template <LaneGroup Group, int Most = max_unrolled_ranks, class Notes = NoPhaseNotes>
class DirectExchange {
  using Work = BasicPeerExchangeWork<Most>;
  using Partners = typename Work::Partners;
  using Memory = typename Group::Memory;
  using Rings = detail::Rings;
  static constexpr Word all_there = 0xffff'ffffu;  // replaces the count of slots: no slot is filled
  static constexpr int tracked_tasks = 256;        // of a group; further ones go through slots

 public:
  template <class OtherGroup>
  using Over = DirectExchange<OtherGroup, Most, Notes>;

  /// Returns the maximum bytes of one message in a launch: 1 GiB between two ranks, 512 MiB for all
  /// peers of more together, or 4 MiB per ring if that is more. 0 if the scratch has no slot for
  /// each ring.
  ///
  /// On 2 H200, 1 GiB to one peer takes 2952 us in one launch and 3012 us in four. On 4 H200, an
  /// all-to-all of 1 GiB took 2451 us in one launch and 2311 us in two; there the peers had mapped
  /// memory in small pages (docs/validation/performance_h200x2.md).
  static constexpr Index max_bytes(const PeerView& peers, int max_rings) {
    if (Rings::slot_bytes(peers, max_rings) < 1) return 0;
    const Index each = peers.ranks > 2 ? (Index{512} << 20) / peers.ranks : Index{1} << 30;
    const Index by_ring = Index{max_rings} << 22;
    return by_ring > each ? by_ring : each;
  }
  /// Completes the arguments on the host, before a launch.
  static void assign_tiles(Work& work) {
    work.slot_bytes = Rings::slot_bytes(work.peers, work.rings.many);
    take_own(work);
    for (int i = 0; i < work.to.count; ++i) {
      take(work.to, work.out[work.to.rank[i]].bytes, work.rings);
    }
    for (int i = 0; i < work.from.count; ++i) {
      take(work.from, work.in[work.from.rank[i]].bytes, work.rings);
    }
  }

  CCL_HD DirectExchange(Group group, const Work& work, int channel)
      : group_{group},
        notes_{group, work.watch, channel},
        work_{work},
        channel_{channel},
        rank_{work.peers.rank},
        ranks_{work.peers.ranks},
        state_{work.state.copies + channel % work.blocks},
        wait_{group, work.watch} {
    Memory::await_previous();
    notes_.ready();
  }

  /// Posts references to the receive buffers. Must run first. One lane of the launch posts each
  /// message.
  CCL_HD void open_registry() {
    detail::count_for_absent(work_, work_.counts, channel_, group_.rank(), Group::width);
    if (channel_ != 0) return;
    for (int p = group_.rank(); p < ranks_; p += Group::width) {
      if (p == rank_ || work_.in[p].bytes == 0) continue;
      const Word flag = high(Most + p);
      Word* const remote_buffer = detail::mailbox<Most>(work_.peers, p, rank_)->remote_buffer;
      // Both words are credits. Earlier kernels and copies on the stream are done with the buffer,
      // and this rank is done with its scratch.
      Memory::store_credit(remote_buffer, (work_.where[p] & 0xffff'ffffu) | flag);
      Memory::store_credit(remote_buffer + 1, work_.where[p] >> 32 | flag);
    }
  }

  /// Moves all messages in rounds of one slot per ring. A round makes all sends, then all receives.
  /// A group therefore waits only for an earlier round or for a send of this round. The copy of
  /// this rank's own message runs beside or after the sends of the first round.
  CCL_HD void run() {
    const int sends = work_.to.count * work_.to.rings;
    const int tasks = sends + work_.from.count * work_.from.rings;
    // The own message begins at the first group that has fewer sends.
    own_ring_ = (channel_ + work_.channels - sends % work_.channels) % work_.channels;
    if (work_.in_turns) send_in_turns(sends);
    bool left = !wait_.failed();
    for (Index round = 0; left && !wait_.failed(); ++round) {
      int t = channel_, n = 0;
      left = run_tasks(t, n, sends, sends, round);
      for (; own_ring_ < work_.own_rings; own_ring_ += work_.channels) copy_own(group_);
      if (!wait_.failed()) left |= run_tasks(t, n, tasks, sends, round);
    }
  }

 private:
  static void take(Partners& partners, Index bytes, const RingLimit& limit) {
    const int rings = Rings::used(bytes, limit);
    partners.rings = partners.rings < rings ? rings : partners.rings;
  }
  /// Takes this rank, which comes first, from the ranks to send to.
  static void take_own(Work& work) {
    auto& to = work.to;
    work.own_rings = 0;
    if (to.count == 0 || to.rank[0] != work.peers.rank) return;
    const Message &from = work.out[work.peers.rank], &own = work.in[work.peers.rank];
    if (own.data != from.data && own.bytes == from.bytes) {
      work.own_rings = Rings::used(own.bytes, work.rings);
    }
    --to.count;
    for (int i = 0; i < to.count; ++i) to.rank[i] = to.rank[i + 1];
  }
  struct Task {
    int peer, ring;
  };
  CCL_HD Task task_of(const Partners& partners, int i) const {
    if (!work_.in_turns) return {int(partners.rank[i % partners.count]), i / partners.count};
    // A group has one ring of all messages, and groups begin with different peers.
    const int ring = i % partners.rings;
    return {int(partners.rank[(i / partners.rings + ring) % partners.count]), ring};
  }
  CCL_HD bool is_over(int n) const { return (over_[n / 64] >> n % 64 & 1) != 0; }
  CCL_HD void set_over(int n) { over_[n / 64] |= Word{1} << n % 64; }
  /// A part to send, and the number of its task in this group.
  struct Part {
    int peer, ring, n;
  };
  /// Sends the parts whose memory is mapped, a piece of each in turn. Parts of this rank's own
  /// message take turns with them.
  CCL_HD void send_in_turns(int sends) {
    if (work_.table == nullptr) return;
    int t = channel_, n = 0;
    do {
      Part parts[TurnRuns::most - 1];
      int count = 0;
      for (; t < sends && n < tracked_tasks && count < TurnRuns::most - 1;
           t += work_.channels, ++n) {
        const Task task = task_of(work_.to, t);
        if (message_part(task.peer, task.ring).bytes == 0) continue;
        parts[count++] = {task.peer, task.ring, n};
      }
      if (count == 0 || !send_mapped(parts, count)) return;
    } while (t < sends && n < tracked_tasks);
  }
  /// Returns false if the spin wait failed.
  CCL_HD bool send_mapped(const Part* parts, int count) {
    const auto posted = [&](int i) {
      return detail::mailbox<Most>(work_.peers, rank_, parts[i / 2].peer)->remote_buffer + i % 2;
    };
    const auto peer = [&](int i) { return parts[i / 2].peer; };
    const auto flag = [&](int i) { return high(parts[i / 2].peer); };
    if (!wait_.credit_each(2 * count, posted, flag, peer)) return false;
    TurnRuns runs;
    Word mapped = 0;
    for (int i = 0; i < count; ++i) {
      char* const to = mapped_at(parts[i].peer);
      if (!group_.all(to != nullptr)) continue;
      const Message part = message_part(parts[i].peer, parts[i].ring);
      runs.add(to + (part.data - work_.out[parts[i].peer].data), part.data, part.bytes);
      mapped |= Word{1} << i;
      set_over(parts[i].n);
    }
    if (runs.count == 0) return true;
    if (own_ring_ < work_.own_rings) {
      const Message from = message_part(rank_, own_ring_);
      runs.add(work_.in[rank_].data + (from.data - work_.out[rank_].data), from.data, from.bytes);
      own_ring_ += work_.channels;
    }
    // Groups begin at different places, so that all peers receive at any time.
    const int first = channel_ / work_.to.count % runs.count;
    detail::copy_long_in_turns(group_, runs, first, work_.shared_bytes != 0);
    group_.sync();  // the stores of all lanes precede the words
    for (int i = group_.rank(); i < count; i += Group::width) {
      if ((mapped >> i & 1) == 0) continue;
      Mailbox* const theirs = detail::mailbox<Most>(work_.peers, parts[i].peer, rank_);
      Memory::store_release(theirs->reported + parts[i].ring, high(parts[i].peer) | all_there);
    }
    return true;
  }
  CCL_HD Message message_part(int peer, int ring) const {
    return Rings::part(work_.out[peer], ring, work_.rings);
  }
  /// Returns the place of a peer's receive buffer, which the peer has posted, or null if it is not
  /// mapped.
  CCL_HD char* mapped_at(int peer) const {
    const Word* const posted = detail::mailbox<Most>(work_.peers, rank_, peer)->remote_buffer;
    const Word where =
        (Memory::load_credit(posted) & 0xffff'ffffu) | Memory::load_credit(posted + 1) << 32;
    const Word entry =
        Memory::load_relaxed(work_.table + peer * RemoteBuffer::slots + RemoteBuffer::slot(where));
    return RemoteBuffer::leads(entry, where) ? RemoteBuffer::at(entry, where) : nullptr;
  }
  /// Runs one round of the group's tasks from `t` up to `end`. `n` counts its tasks. Returns true
  /// if one has work left.
  CCL_HD bool run_tasks(int& t, int& n, int end, int sends, Index round) {
    bool left = false;
    for (; t < end; t += work_.channels, ++n) {
      if (n < tracked_tasks && is_over(n)) continue;  // a task without work costs about 0.3 us
      const Task task = t < sends ? task_of(work_.to, t) : task_of(work_.from, t - sends);
      const bool more =
          t < sends ? send(task.peer, task.ring, round, n) : recv(task.peer, task.ring, round);
      if (wait_.failed()) return false;
      if (!more && n < tracked_tasks) set_over(n);
      left |= more;
    }
    return left;
  }
  /// Copies the next part of this rank's own message that falls to this group.
  template <class Lanes>
  CCL_HD void copy_own(Lanes lanes) const {
    if (own_ring_ >= work_.own_rings) return;
    const Message from = Rings::part(work_.out[rank_], own_ring_, work_.rings);
    const Message to = Rings::part(work_.in[rank_], own_ring_, work_.rings);
    detail::copy_run(lanes, to.data, from.data, from.bytes);
  }
  /// Copies to a peer. Where the copy engine does that, other lanes copy a part of this rank's own
  /// message.
  CCL_HD void copy_to_peer(char* to, const char* from, Index bytes) {
    const auto aside = [this](auto lanes) { copy_own(lanes); };
    const BulkUse use = work_.shared_bytes == 0       ? BulkUse::none
                        : own_ring_ < work_.own_rings ? BulkUse::busy
                                                      : BulkUse::idle;
    if (detail::copy_long_run(group_, to, from, bytes, use, aside)) own_ring_ += work_.channels;
  }
  /// Sends one slot, or the whole part if the receiver's memory is mapped. Returns false if nothing
  /// is left to send or the spin wait failed.
  CCL_HD bool send(int peer, int ring, Index round, int n) {
    const Message part = message_part(peer, ring);
    const Index slot = work_.slot_bytes, at = round * slot;
    if (at >= part.bytes) return false;
    const Word flag = high(peer);
    const Mailbox* const mine = detail::mailbox<Most>(work_.peers, rank_, peer);
    Mailbox* const theirs = detail::mailbox<Most>(work_.peers, peer, rank_);
    if (round == 0) {
      // The receiver's reference is also the credit for all slots, because the receiver has drained
      // the previous message.
      if (!wait_.credit(mine->remote_buffer, flag, peer)) return false;
      if (!wait_.credit(mine->remote_buffer + 1, flag, peer)) return false;
      char* const to = work_.table != nullptr && n < tracked_tasks ? mapped_at(peer) : nullptr;
      if (group_.all(to != nullptr)) {
        const Index offset = part.data - work_.out[peer].data;
        copy_to_peer(to + offset, part.data, part.bytes);
        group_.sync();  // the stores of all lanes precede the word
        if (group_.rank() == 0) Memory::store_release(theirs->reported + ring, flag | all_there);
        return false;
      }
    }
    if (round >= Rings::slot_count) {
      const Word want = flag | Word(round - Rings::slot_count + 1);
      if (!wait_.credit(mine->drained + ring, want, peer)) return false;
    }
    const Index left = part.bytes - at;
    copy_to_peer(
        Rings::template slot<Most>(work_.peers, work_.rings.many, slot, peer, rank_, ring, round),
        part.data + at, left < slot ? left : slot);
    group_.sync();
    if (group_.rank() == 0) Memory::store_release(theirs->reported + ring, flag | Word(round + 1));
    return left > slot;
  }

  CCL_HD bool recv(int peer, int ring, Index round) {
    const Message part = Rings::part(work_.in[peer], ring, work_.rings);
    const Index slot = work_.slot_bytes, at = round * slot;
    if (at >= part.bytes || peer == rank_) return false;
    const Word flag = high(Most + peer);
    const Word* const reported = detail::mailbox<Most>(work_.peers, rank_, peer)->reported + ring;
    // The sender stored its data before the word.
    if (!wait_.acquire(reported, flag | Word(round + 1), peer)) return false;
    notes_.received();
    const bool first = group_.rank() == 0;
    if (group_.all(!first || wait_.low(Memory::load_relaxed(reported)) == all_there)) return false;
    const Index left = part.bytes - at;
    detail::copy_run(
        group_, part.data + at,
        Rings::template slot<Most>(work_.peers, work_.rings.many, slot, rank_, peer, ring, round),
        left < slot ? left : slot);
    group_.sync();  // every lane has read the slot
    if (group_.rank() == 0) {
      Memory::store_credit(detail::mailbox<Most>(work_.peers, peer, rank_)->drained + ring,
                           flag | Word(round + 1));
    }
    return left > slot;
  }

  /// Returns the number of the next message that a word of the state counts, in the high half as in
  /// mailbox words.
  CCL_HD Word high(int word) const {
    return (Memory::load_relaxed(state_ + word * work_.state.count) + 1) << 32;
  }

  Group group_;
  [[no_unique_address]] Notes notes_;  // as the last member, it made the frames of kernels larger
  const Work& work_;
  int channel_, rank_, ranks_;
  const Word* state_;
  int own_ring_ = 0;                    // next part of this rank's own message
  Word over_[tracked_tasks / 64] = {};  // bit n: task n of this group has no work left
  MailboxWait<Group> wait_;
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
