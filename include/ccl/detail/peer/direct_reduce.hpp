#pragma once

#include <ccl/detail/base/word_set.hpp>
#include <ccl/detail/exchange/mailbox_wait.hpp>
#include <ccl/detail/lanes/copy_run.hpp>
#include <ccl/detail/lanes/phases.hpp>
#include <ccl/detail/peer/direct_slices.hpp>
#include <ccl/detail/peer/direct_work.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/operations.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Operations of `Direct` on reductions. The message has a share for each rank, which that rank
/// reduces: it reads the peers' buffers where it has mapped them. In an all-reduce it stores the
/// sums into the buffers of all ranks. In a reduction to a root it stores them into the root's.
///
/// The root of more than two ranks has no share. All sums reach it, and they take as long as the
/// others' reads.
///
/// A rank that has not mapped the buffers of all peers goes by scratch. The peers then copy their
/// data into its slots, and it copies the sums into theirs. A rank decides this for each ring by
/// itself, and the first word that it posts says so.
///
/// A share is cut into slices, which rings take in turn. All ranks cut alike.
///
/// `Most`: maximum number of ranks. `Notes`: times of the launch, for `Traced`.
template <class Op, LaneGroup Group, class R, int Most = max_unrolled_ranks,
          class Notes = NoPhaseNotes>
class DirectReduce : public DirectSlices<Op, Group, R, Most> {
  using Base = DirectSlices<Op, Group, R, Most>;
  using Base::align_to, Base::buffers, Base::channel_, Base::group_, Base::max_slices, Base::rank_,
      Base::ranks_, Base::receives_sums, Base::reduce_slice, Base::reduction_, Base::ring_,
      Base::share_begin, Base::share_number, Base::slice_begin, Base::slice_count, Base::slices,
      Base::stores_to, Base::wide, Base::work_;

 public:
  using T = typename R::Type;
  using Memory = typename Group::Memory;
  using Shares = DirectShares<Op, T>;

  CCL_HD DirectReduce(Group group, const DirectWork<R>& work, int channel)
      : Base{group, work, channel}, wait_{group, work.watch}, notes_{group, work.watch, channel} {
    detail::look_at(work_);
    Memory::await_previous();
    notes_.ready();
    reduction_.load_here();
    flag_ = (Memory::load_relaxed(work.epoch.copies + channel) + 1) << 32;
  }

  /// Posts references to this rank's buffers to the peers. Must run first.
  CCL_HD void open_registry() {
    if (channel_ != 0) return;
    for (int i = group_.rank(); i < ranks_ * refs; i += Group::width) {
      const int p = i / refs, word = i % refs;
      if (p == rank_) continue;
      const Word where = word < 2 ? work_.where_input : work_.where_output;
      // Credits: the launch before this one has ended, so the buffers are written and read.
      Memory::store_credit(mailbox(p, rank_)->remote_buffer + word,
                           (word % 2 == 0 ? where & 0xffff'ffffu : where >> 32) | flag_);
    }
  }

  /// Reduces this rank's share and serves the peers that go by scratch.
  CCL_HD void run() {
    if (!find_peers()) return;
    for (ring_ = channel_; ring_ < work_.rings; ring_ += work_.channels) {
      if (direct_) {
        reduce_all();
        report(all_there);
      } else {
        report(1);
      }
      if (!find_unmapped()) return;
      if (direct_ && unmapped_.empty()) continue;
      for (Index n = 0; n < max_slices(); ++n) {
        if (!send_slices(n) || !reduce_round(n) || !take_sums(n)) return;
      }
    }
  }

  /// Returns the first argument of `DirectBody::end`.
  CCL_HD Word left() const { return flag_ >> 32 << 1; }

 private:
  static constexpr Word all_there = 0xffff'ffffu;  // replaces the count of slots: read directly
  static constexpr int slot_count = Rings::slot_count;
  static constexpr Index size = sizeof(T);
  static constexpr bool sums_for_all = Shares::sums_for_all;
  static constexpr bool sums_travel = Shares::sums_travel;
  static constexpr int refs = sums_travel ? 4 : 2;  // words of references that a rank posts
  enum Kind { data, sums };

  CCL_HD Mailbox* mailbox(int owner, int writer) const {
    return detail::mailbox<Most>(work_.peers, owner, writer);
  }
  /// Returns the mapped address of a buffer whose reference peer `p` has posted, or null. The
  /// reference begins at word `first`.
  CCL_HD char* mapped(int p, int first) const {
    const Word* const from = mailbox(rank_, p)->remote_buffer + first;
    const Word where = wait_.low(Memory::load_relaxed(from)) | Memory::load_relaxed(from + 1) << 32;
    if (work_.table == nullptr) return nullptr;
    const Word entry =
        Memory::load_relaxed(work_.table + p * RemoteBuffer::slots + RemoteBuffer::slot(where));
    return RemoteBuffer::leads(entry, where) ? RemoteBuffer::at(entry, where) : nullptr;
  }
  /// Finds the buffers of all peers. Returns false if a wait failed.
  CCL_HD bool find_peers() {
    // A rank waits for no word of its own.
    const auto writer = [&](int i) { return i / refs + (i / refs >= rank_ ? 1 : 0); };
    const auto word = [&](int i) { return mailbox(rank_, writer(i))->remote_buffer + i % refs; };
    const int words = (ranks_ - 1) * refs;
    const auto see = [](int, Word) {};
    if (!wait_.acquire_each(words, flag_, word, writer, see)) return false;
    const Index in = share_begin(rank_, work_.layout.in_stride) * size;
    const Index out = share_begin(rank_, work_.layout.out_stride) * size;
    // Lanes that share memory find the buffers of one peer each, and others those of all peers.
    const int step = Parts<Group>::shares ? Group::width : 1;
    for (int p = step > 1 ? group_.rank() : 0; p < ranks_; p += step) {
      const bool own = p == rank_, stores = stores_to(p);
      const char* const from = own ? static_cast<const char*>(work_.input) : mapped(p, 0);
      char* const to = !stores ? nullptr
                       : own   ? static_cast<char*>(work_.output)
                               : mapped(p, refs - 2);
      buffers().input[p] = from == nullptr ? nullptr : from + in;
      buffers().output[p] = to == nullptr ? nullptr : to + out;
    }
    if constexpr (Parts<Group>::shares) group_.sync();
    direct_ = true;
    Word bits = 0;
    for (int p = 0; p < ranks_; ++p) {
      const bool stores = stores_to(p);
      direct_ = direct_ && buffers().input[p] != nullptr;
      direct_ = direct_ && (buffers().output[p] != nullptr || !stores);
      bits |= reinterpret_cast<cuda::std::uintptr_t>(buffers().input[p]);
      if (stores) bits |= reinterpret_cast<cuda::std::uintptr_t>(buffers().output[p]);
    }
    direct_ = group_.all(direct_) || share_number(rank_) < 0;
    align_to(bits);
    return true;
  }
  /// Finds the peers that go by scratch. Returns false if a wait failed.
  CCL_HD bool find_unmapped() {
    const auto writer = [&](int i) { return i + (i >= rank_ ? 1 : 0); };
    const auto mode = [&](int i) { return mailbox(rank_, writer(i))->drained + ring_; };
    bool none = true;
    const auto see = [&](int i, Word got) {
      none = (i == group_.rank() || none) && wait_.low(got) == all_there;
    };
    // The sums that a peer stored here precede its word.
    if (!wait_.acquire_each(ranks_ - 1, flag_ | 1, mode, writer, see)) return false;
    if (sums_travel && direct_) notes_.received();
    unmapped_ = {};
    if (group_.all(none)) return true;
    for (int i = 0; i < ranks_ - 1; ++i) {
      const bool first = group_.rank() == 0;
      if (!group_.all(!first || wait_.low(Memory::load_relaxed(mode(i))) == all_there)) {
        unmapped_.insert(writer(i));
      }
    }
    return true;
  }
  /// Posts to all peers that this rank has read their data, or, by 1, that it wants them in slots.
  CCL_HD void report(Word count) const {
    group_.sync();
    for (int p = group_.rank(); p < ranks_; p += Group::width) {
      if (p == rank_) continue;
      Word* const to = mailbox(p, rank_)->drained + ring_;
      if constexpr (sums_travel) {
        Memory::store_release(to, flag_ | count);
      } else {
        Memory::store_credit(to, flag_ | count);
      }
    }
  }

  CCL_HD char* slot(Kind kind, int owner, int writer, Index n) const {
    constexpr int kinds = Shares::kinds;
    const int rings = work_.max_rings * kinds;
    return Rings::template slot<Most>(work_.peers, rings, Rings::slot_bytes(work_.peers, rings),
                                      owner, writer, ring_ * kinds + kind, n);
  }
  /// Returns the word of a slot's count after it was filled or emptied for the n-th slice.
  CCL_HD Word count_of(Index n) const { return flag_ | Word(n + 1); }
  /// Waits until the slot of the n-th slice is free. `drained` counts one more than the slots.
  CCL_HD bool await_free(const Word* drained, Index n, int p) {
    return n < slot_count || wait_.credit(drained, count_of(n - slot_count) + 1, p);
  }

  CCL_HD void reduce_all() {
    const Index end = slices(rank_);
    for (Index n = 0; n < end; ++n) {
      const Index at = slice_begin(n) * size;
      reduce_slice(at, at, slice_count(rank_, n));
      notes_.received();
    }
  }
  /// Copies the n-th slices of the peers' shares to those that go by scratch.
  CCL_HD bool send_slices(Index n) {
    for (int k = 1; k < ranks_; ++k) {
      const int p = (rank_ + k) % ranks_;
      const Index count = slice_count(p, n);
      if (!unmapped_.contains(p) || count == 0) continue;
      if (!await_free(mailbox(rank_, p)->drained + ring_, n, p)) return false;
      const Index from = share_begin(p, work_.layout.in_stride) + slice_begin(n);
      copy_run(group_, slot(data, p, rank_, n), static_cast<const char*>(work_.input) + from * size,
               count * size);
      group_.sync();
      if (group_.rank() == 0) {
        Memory::store_release(mailbox(p, rank_)->reported + ring_, count_of(n));
      }
    }
    return true;
  }
  /// Reduces the n-th slice of this rank's share from the slots.
  CCL_HD bool reduce_round(Index n) {
    const Index count = slice_count(rank_, n);
    if (direct_ || count == 0) return true;
    const Index at = slice_begin(n) * size;
    for (int p = 0; p < ranks_; ++p) {
      if (p == rank_) continue;
      if (!wait_.acquire(mailbox(rank_, p)->reported + ring_, count_of(n), p)) return false;
      if (sums_travel && stores_to(p) &&
          !await_free(mailbox(rank_, p)->sums_drained + ring_, n, p)) {
        return false;
      }
      if (!Parts<Group>::shares || group_.rank() == 0) {
        buffers().input[p] = slot(data, rank_, p, n);
        if (sums_travel && stores_to(p)) buffers().output[p] = slot(sums, p, rank_, n);
      }
    }
    if constexpr (Parts<Group>::shares) group_.sync();
    Word bits = reinterpret_cast<cuda::std::uintptr_t>(buffers().input[rank_]);
    if (stores_to(rank_)) {
      bits |= reinterpret_cast<cuda::std::uintptr_t>(buffers().output[rank_]);
    }
    align_to(bits);
    reduce_slice(at, 0, count);
    notes_.received();
    group_.sync();
    for (int p = group_.rank(); p < ranks_; p += Group::width) {
      if (p == rank_) continue;
      Mailbox* const theirs = mailbox(p, rank_);
      Memory::store_credit(theirs->drained + ring_, count_of(n) + 1);
      if (sums_travel && stores_to(p)) {
        Memory::store_release(theirs->sums_reported + ring_, count_of(n));
      }
    }
    return true;
  }
  /// Copies the n-th slices of the sums of the peers that go by scratch to the output.
  CCL_HD bool take_sums(Index n) {
    if constexpr (sums_travel) {
      if (!receives_sums()) return true;
      for (int p = 0; p < ranks_; ++p) {
        const Index count = slice_count(p, n);
        if (!unmapped_.contains(p) || count == 0) continue;
        if (!wait_.acquire(mailbox(rank_, p)->sums_reported + ring_, count_of(n), p)) return false;
        const Index to = share_begin(p, work_.layout.out_stride) + slice_begin(n);
        copy_run(group_, static_cast<char*>(work_.output) + to * size, slot(sums, rank_, p, n),
                 count * size);
        notes_.received();
        group_.sync();
        if (group_.rank() == 0) {
          Memory::store_credit(mailbox(p, rank_)->sums_drained + ring_, count_of(n) + 1);
        }
      }
    }
    return true;
  }

  bool direct_ = true;                  // this rank has mapped the buffers of all peers
  WordSet<wide ? Most : 64> unmapped_;  // peers that go by scratch
  Word flag_ = 0;                       // number of the launch, in the high half
  MailboxWait<Group> wait_;
  [[no_unique_address]] Notes notes_;
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
