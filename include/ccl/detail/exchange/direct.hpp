#pragma once

#include <ccl/detail/exchange/counts.hpp>
#include <ccl/detail/exchange/direct_division.hpp>
#include <ccl/detail/exchange/mailbox_wait.hpp>
#include <ccl/detail/exchange/posted_buffers.hpp>
#include <ccl/detail/lanes/copy_turns.hpp>
#include <ccl/detail/lanes/phases.hpp>
#include <ccl/detail/lanes/slot_sender.hpp>
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

  static constexpr Index max_bytes(const PeerView& peers, int max_rings) {
    return DirectDivision<Most>::max_bytes(peers, max_rings);
  }
  static void assign_tiles(Work& work) { DirectDivision<Most>::assign(work); }

  CCL_HD DirectExchange(Group group, const Work& work, int channel)
      : group_{group},
        notes_{group, work.watch, channel},
        work_{work},
        channel_{channel},
        rank_{work.peers.rank},
        ranks_{work.peers.ranks},
        state_{work.state.copies + channel % work.blocks},
        sends_{work.to.count * work.to.rings},
        tasks_{sends_ + work.from.count * work.from.rings},
        wait_{group, work.watch} {}

  /// Waits for the launch before, and posts references to the receive buffers. Must run first. One
  /// lane of the launch posts each message.
  CCL_HD void open_registry() {
    // Divisions and first loads of arguments take long, so they precede the wait.
    int p = channel_ == 0 ? group_.rank() : ranks_;
    Word* buffer = buffer_word(p);
    Word where = buffer != nullptr ? work_.where[p] : 0;
    find_first_tasks();
    open_engine();
    Memory::await_previous();
    notes_.ready();
    Word flag = buffer != nullptr ? high(Most + p) : 0;
    if (channel_ < sends_) send_.flag = high(send_.task.peer);
    if (first_recv_ < tasks_) recv_.flag = high(Most + recv_.task.peer);
    while (p < ranks_) {
      if (buffer != nullptr) {
        // Both words are credits. Earlier kernels and copies on the stream are done with the
        // buffer, and this rank is done with its scratch.
        Memory::store_credit(buffer, (where & 0xffff'ffffu) | flag);
        Memory::store_credit(buffer + 1, where >> 32 | flag);
      }
      p += Group::width;
      buffer = buffer_word(p);
      if (buffer != nullptr) where = work_.where[p], flag = high(Most + p);
    }
    detail::count_for_absent(work_, work_.counts, channel_, group_.rank(), Group::width);
  }

  /// Moves all messages in rounds of one slot per ring. A round makes all sends, then all receives.
  /// A group therefore waits only for an earlier round or for a send of this round. The copy of
  /// this rank's own message runs beside or after the sends of the first round.
  ///
  /// The first lane drives the copy engine through all rounds, if the engine makes the sends. Other
  /// lanes receive meanwhile, and copy this rank's own message. On 2 H200, an all-gather of 16 MiB
  /// takes 30.8 us so, and 32.0 in rounds (docs/validation/performance_h200x2.md).
  CCL_HD void run() {
    if (work_.in_turns) send_in_turns(sends_);
    bool left = !wait_.failed();
    if (left && by_engine_ && run_by_engine()) return;
    for (Index round = 0; left && !wait_.failed(); ++round) {
      int t = channel_, n = 0;
      left = run_sends(t, n, round);
      left |= copy_own_step(group_);
      if (!wait_.failed()) left |= run_receives(group_, wait_, t, n, round);
    }
  }

 private:
  struct Task {
    int peer = 0, ring = 0;
  };
  /// First task of the group in a direction.
  struct FirstTask {
    Task task;
    Message part;
    Word flag = 0;
  };
  CCL_HD void find_first_tasks() {
    // The own message begins at the first group that has fewer sends. If peers fill slots, other
    // lanes of the groups that send copy it.
    const int busy = work_.own_step == Rings::whole ? sends_ % work_.channels : 0;
    own_ring_ = (channel_ + work_.channels - busy) % work_.channels;
    if (channel_ < sends_) {
      send_.task = task_of(work_.to, channel_);
      send_.part = message_part(send_.task.peer, send_.task.ring);
    }
    for (first_recv_ = channel_; first_recv_ < sends_; ++own_sends_) first_recv_ += work_.channels;
    by_engine_ = work_.by_engine && own_sends_ <= TurnRuns::most;
    if (first_recv_ >= tasks_) return;
    recv_.task = task_of(work_.from, first_recv_ - sends_);
    recv_.part = Rings::part(work_.in[recv_.task.peer], recv_.task.ring, work_.rings);
  }
  /// Returns where rank `p` reads the reference to this rank's buffer. Null if it does not.
  CCL_HD Word* buffer_word(int p) const {
    if (p >= ranks_ || p == rank_ || work_.in[p].bytes == 0) return nullptr;
    return detail::mailbox<Most>(work_.peers, p, rank_)->remote_buffer;
  }
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
    const auto posted = [&](int i) { return buffers().posted(parts[i / 2].peer) + i % 2; };
    const auto peer = [&](int i) { return parts[i / 2].peer; };
    const auto flag = [&](int i) { return high(parts[i / 2].peer); };
    if (!wait_.credit_each(2 * count, posted, flag, peer)) return false;
    TurnRuns runs;
    Word mapped = 0;
    for (int i = 0; i < count; ++i) {
      char* const to = buffers().mapped(parts[i].peer);
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
  CCL_HD PostedBuffers<Memory, Most> buffers() const { return {work_}; }
  CCL_HD Message message_part(int peer, int ring) const {
    return Rings::part(work_.out[peer], ring, work_.rings);
  }
  /// Runs one round of the group's sends from `t` on. `n` counts its tasks. Returns true if one has
  /// work left.
  CCL_HD bool run_sends(int& t, int& n, Index round) {
    return run_tasks(t, n, sends_, wait_, [&](int task) { return send(task, round, n); });
  }
  /// Runs one round of the group's receives from `t` on, as `run_sends` does, by `lanes` of it.
  template <class Lanes>
  CCL_HD bool run_receives(Lanes lanes, MailboxWait<Lanes>& wait, int& t, int& n, Index round) {
    return run_tasks(t, n, tasks_, wait, [&](int task) { return recv(lanes, wait, task, round); });
  }
  template <class Wait, class Run>
  CCL_HD bool run_tasks(int& t, int& n, int end, const Wait& wait, Run run) {
    bool left = false;
    for (; t < end; t += work_.channels, ++n) {
      if (n < tracked_tasks && is_over(n)) continue;  // a task without work costs about 0.3 us
      const bool more = run(t);
      if (wait.failed()) return false;
      if (!more && n < tracked_tasks) set_over(n);
      left |= more;
    }
    return left;
  }
  /// Runs the group's sends by the copy engine, which the first lane drives, while half of the
  /// lanes receive and copy this rank's own message. No wait of one stops the other. Returns false
  /// in code for older GPUs, which a newer one may run.
  CCL_HD bool run_by_engine() {
    NV_IF_TARGET(NV_PROVIDES_SM_90, (if constexpr (Group::width >= 512) {
                   if (group_.rank() == 0) {
                     send_by_engine();
                   } else if (group_.rank() >= Group::width / 2) {
                     receive_beside(typename Group::Half{});
                   }
                   group_.sync();
                   if (first_recv_ < tasks_) notes_.received();
                   return true;
                 }))
    return false;
  }
  /// Prepares the engine for the first send, before the launch waits for the one before.
  CCL_HD void open_engine() {
    NV_IF_TARGET(NV_PROVIDES_SM_90, (if (opens_early() && group_.rank() == 0) {
                   with_engine(send_.part, [](auto copy) { copy.open(); });
                 }))
  }
#if defined(__CUDACC__)
  CCL_DEVICE bool opens_early() const {
    return by_engine_ && !work_.in_turns && work_.table != nullptr && send_.part.bytes > 0;
  }
  /// Calls `visit` with a copy of a part by the engine.
  template <class Visit>
  CCL_DEVICE void with_engine(const Message& part, Visit visit) const {
    extern __shared__ BulkCopyMemory bulk_copy_memory[];
    if (own_ring_ < work_.own_rings) {
      visit(BusyBulkCopy{bulk_copy_memory->busy, part.data, part.bytes});
    } else {
      visit(IdleBulkCopy{bulk_copy_memory->idle, part.data, part.bytes});
    }
  }
  template <class Lanes>
  CCL_DEVICE void receive_beside(Lanes lanes) {
    MailboxWait<Lanes> wait{lanes, work_.watch};
    bool left = true;
    for (Index round = 0; left && !wait.failed(); ++round) {
      int t = first_recv_, n = own_sends_;
      left = copy_own_step(lanes);
      left |= run_receives(lanes, wait, t, n, round);
    }
  }
  /// Runs on the first lane. Parts whose memory is mapped go first.
  CCL_DEVICE void send_by_engine() {
    using Alone = typename Group::Alone;
    MailboxWait<Alone> wait{Alone{}, work_.watch};
    SlotRuns slots;
    slots.slot_count = Rings::slot_count;
    slots.slot_bytes = work_.slot_bytes;
    for (int n = 0, t = channel_; n < own_sends_; ++n, t += work_.channels) {
      if (is_over(n)) continue;
      const bool first = n == 0;
      const Task task = first ? send_.task : task_of(work_.to, t);
      const Message part = first ? send_.part : message_part(task.peer, task.ring);
      if (part.bytes == 0) continue;
      const Word flag = first ? send_.flag : high(task.peer);
      const bool may_be_mapped = work_.table != nullptr;
      if (may_be_mapped) {
        with_engine(part, [&](auto copy) {
          if (!first || !opens_early()) copy.open();
          copy.fetch();
        });
      }
      char* to = nullptr;
      const bool open = buffers().await(wait, task.peer, flag, may_be_mapped, to);
      // The engine stores whole packets. Into slots it can, whatever the receiver's address.
      if (reinterpret_cast<cuda::std::uintptr_t>(to) % sizeof(Packet) != 0) to = nullptr;
      if (may_be_mapped && to == nullptr) with_engine(part, [](auto copy) { copy.drop(); });
      if (!open) return;
      Mailbox* const theirs = detail::mailbox<Most>(work_.peers, task.peer, rank_);
      const Mailbox* const mine = detail::mailbox<Most>(work_.peers, rank_, task.peer);
      if (to == nullptr) {
        slots.add(slot_of(task.peer, rank_, task.ring, 0), part.data, part.bytes,
                  {theirs->reported + task.ring, mine->drained + task.ring, flag, task.peer});
        continue;
      }
      to += part.data - work_.out[task.peer].data;
      with_engine(part, [&](auto copy) { copy.finish(to); });
      Memory::store_release(theirs->reported + task.ring, flag | all_there);
    }
    if (slots.runs.count > 0) fill(slots, wait);
  }
  template <class Wait>
  CCL_DEVICE void fill(const SlotRuns& slots, Wait& wait) {
    extern __shared__ BulkCopyMemory bulk_copy_memory[];
    SlotBulkStages stages{bulk_copy_memory->slots};
    SlotSender<SlotBulkStages, Memory>{stages, slots}.run(
        [&](const Word* at, Word want, int peer) { return wait.credit(at, want, peer); });
  }
#endif
  /// Returns a slot in the scratch of `owner` for data from `writer`.
  CCL_HD char* slot_of(int owner, int writer, int ring, Index round) const {
    return Rings::template slot<Most>(work_.peers, work_.rings.many, work_.slot_bytes, owner,
                                      writer, ring, round);
  }
  /// Copies what is left of the next part of this rank's own message that falls to this group.
  template <class Lanes>
  CCL_HD void copy_own(Lanes lanes) const {
    if (own_ring_ >= work_.own_rings) return;
    const Message from = Rings::part(work_.out[rank_], own_ring_, work_.rings);
    const Message to = Rings::part(work_.in[rank_], own_ring_, work_.rings);
    detail::copy_run(lanes, to.data + own_done_, from.data + own_done_, from.bytes - own_done_);
  }
  /// Copies a step of that part. Returns true if something is left.
  template <class Lanes>
  CCL_HD bool copy_own_step(Lanes lanes) {
    if (own_ring_ >= work_.own_rings) return false;
    const Message from = Rings::part(work_.out[rank_], own_ring_, work_.rings);
    const Message to = Rings::part(work_.in[rank_], own_ring_, work_.rings);
    const Index left = from.bytes - own_done_, step = left < work_.own_step ? left : work_.own_step;
    detail::copy_run(lanes, to.data + own_done_, from.data + own_done_, step);
    own_done_ += step;
    if (step == left) own_ring_ += work_.channels, own_done_ = 0;
    return own_ring_ < work_.own_rings;
  }
  /// Copies to a peer. Where the copy engine does that, other lanes copy a part of this rank's own
  /// message.
  CCL_HD void copy_to_peer(char* to, const char* from, Index bytes) {
    const auto aside = [this](auto lanes) { copy_own(lanes); };
    const BulkUse use = work_.shared_bytes == 0       ? BulkUse::none
                        : own_ring_ < work_.own_rings ? BulkUse::busy
                                                      : BulkUse::idle;
    if (detail::copy_long_run(group_, to, from, bytes, use, aside)) {
      own_ring_ += work_.channels;
      own_done_ = 0;
    }
  }
  /// Sends one slot, or the whole part if the receiver's memory is mapped. Returns false if nothing
  /// is left to send or the spin wait failed.
  CCL_HD bool send(int t, Index round, int n) {
    const bool first = t == channel_;
    const Task task = first ? send_.task : task_of(work_.to, t);
    const int peer = task.peer, ring = task.ring;
    const Message part = first ? send_.part : message_part(peer, ring);
    const Index slot = work_.slot_bytes, at = round * slot;
    if (at >= part.bytes) return false;
    const Word flag = first ? send_.flag : high(peer);
    const Mailbox* const mine = detail::mailbox<Most>(work_.peers, rank_, peer);
    Mailbox* const theirs = detail::mailbox<Most>(work_.peers, peer, rank_);
    if (round == 0) {
      // The receiver's reference is also the credit for all slots, because the receiver has drained
      // the previous message.
      char* to = nullptr;
      if (!buffers().await(wait_, peer, flag, work_.table != nullptr && n < tracked_tasks, to)) {
        return false;
      }
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
    copy_to_peer(slot_of(peer, rank_, ring, round), part.data + at, left < slot ? left : slot);
    group_.sync();
    if (group_.rank() == 0) Memory::store_release(theirs->reported + ring, flag | Word(round + 1));
    return left > slot;
  }

  template <class Lanes>
  CCL_HD bool recv(Lanes lanes, MailboxWait<Lanes>& wait, int t, Index round) {
    const bool is_first = t == first_recv_;
    const Task task = is_first ? recv_.task : task_of(work_.from, t - sends_);
    const int peer = task.peer, ring = task.ring;
    const Message part = is_first ? recv_.part : Rings::part(work_.in[peer], ring, work_.rings);
    const Index slot = work_.slot_bytes, at = round * slot;
    if (at >= part.bytes || peer == rank_) return false;
    const Word flag = is_first ? recv_.flag : high(Most + peer);
    const Word* const reported = detail::mailbox<Most>(work_.peers, rank_, peer)->reported + ring;
    // The sender stored its data before the word.
    Word got = 0;
    if (!wait.acquire(reported, flag | Word(round + 1), peer, got)) return false;
    notes_.received();
    const bool first = lanes.rank() == 0;
    if (lanes.all(!first || wait.low(got) == all_there)) return false;
    const Index left = part.bytes - at;
    detail::copy_run(lanes, part.data + at, slot_of(rank_, peer, ring, round),
                     left < slot ? left : slot);
    lanes.sync();  // every lane has read the slot
    if (first) {
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
  int sends_, tasks_;                   // of all groups: sends, and sends and receives
  FirstTask send_, recv_;               // of this group
  int first_recv_ = 0;                  // number of its first receive, from `sends_` on
  int own_ring_ = 0;                    // next part of this rank's own message
  Index own_done_ = 0;                  // bytes of that part that are copied
  int own_sends_ = 0;                   // of this group
  bool by_engine_ = false;              // see `run_by_engine`
  Word over_[tracked_tasks / 64] = {};  // bit n: task n of this group has no work left
  MailboxWait<Group> wait_;
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
