#pragma once

#include <ccl/types/word.hpp>

namespace ccl::detail {

/// Decides whether a rank lends long slices to a process of its host or copies them into slots. A
/// copy into lines that the peer's core has read runs at 8 to 10 GB/s where both cores share a
/// cache, and at 2 GB/s where they do not, which the host of a virtual machine may change at any
/// time. So the time of each copy tells, and of one now and then while the rank lends.
class LendingChoice {
 public:
  enum class Rule { by_time, always };
  /// Ways of a slice to its receiver. `timed_copy`: a copy whose time is to be noted.
  enum class Transfer { copy, timed_copy, copy_past_caches, lend };
  /// Facts that a call knows about a slice that it sends.
  struct Slice {
    bool only_sends = false;   // the rank receives nothing in the call
    bool adds_up = false;      // the receivers add slices up
    bool is_message = false;   // of an exchange
    bool to_one_rank = true;   // and to no other
    bool past_caches = false;  // a slot may be filled past the caches of this core
    bool relayed = false;      // received in the same step
    bool crowded = false;      // the host has more ranks than cores
    Index call_bytes = 0;      // of the call's message, or of a share of it
  };
  explicit LendingChoice(Rule rule) : rule_{rule} {}

  /// Returns how a slice goes that cannot be lent. Of two ends that only move, the sender is the
  /// slower one, and it is faster past its caches.
  static constexpr Transfer unlent(const Slice& slice) {
    const bool alone = slice.only_sends && !slice.adds_up && slice.past_caches;
    return alone ? Transfer::copy_past_caches : Transfer::copy;
  }
  /// Returns how the next slice goes, which the receiver can read where it is.
  Transfer transfer_of(const Slice& slice, Word now_ns) const {
    if (rule_ == Rule::always) return Transfer::lend;
    // Both ends together are faster, and the receiver of a message may have to send before it
    // receives.
    const bool copies = slice.is_message || unlent(slice) == Transfer::copy_past_caches;
    if (slice.only_sends && copies) return unlent(slice);
    if (!lends(now_ns) || is_better_kept(slice)) return Transfer::timed_copy;
    // The receiver has enough to do.
    if (!slice.only_sends || !slice.adds_up || !slice.to_one_rank) return Transfer::lend;
    return slice.past_caches ? Transfer::copy_past_caches : Transfer::timed_copy;
  }
  /// True if the time of copies is for lending.
  bool lends(Word now_ns) const { return rule_ == Rule::always || (far_ && now_ns < look_at_ns_); }
  /// Notes that a slice of `bytes` bytes was copied into a slot. `streams`: places in memory that
  /// the copy read and wrote besides the data and the slot.
  void note_copy(Index bytes, int streams, Word began_ns, Word ended_ns) {
    const bool slow = Index(ended_ns - began_ns) * 10 > bytes * (3 + streams);  // 0.3 ns a byte
    if (copies_ < first_copies) ++copies_;
    slow_ = slow ? slow_ + 1 : 0;
    fast_ = slow ? 0 : fast_ + 1;
    if (far_ && slow) {
      look_at_ns_ = ended_ns + wait_ns_;
      if (wait_ns_ < last_wait_ns) wait_ns_ *= 2;
    } else if (far_ && fast_ == fast_enough) {
      far_ = false;
    } else if (slow_ >= (copies_ < first_copies ? first_copies : slow_enough)) {
      far_ = true;
      wait_ns_ = first_wait_ns;
      look_at_ns_ = ended_ns + wait_ns_;
    }
  }

 private:
  /// True if the rank should not wait for the receiver's copy, because others run on its core:
  /// broadcasts of 32 and 256 KiB of four ranks on two far cores took 1.0 to 1.6 times as long with
  /// such slices lent. From 2 MiB on lending gains (docs/validation/shared_memory.md).
  static constexpr bool is_better_kept(const Slice& slice) {
    constexpr Index min_bytes = Index{1} << 20;
    return slice.crowded && slice.relayed && !slice.adds_up && slice.call_bytes < min_bytes;
  }
  static constexpr int slow_enough = 2;    // in a row: one may be an interrupt
  static constexpr int fast_enough = 20;   // slots that the peer has not read for long are fast
  static constexpr int first_copies = 20;  // they touch memory for the first time
  // A look costs 25 us where copies are slow.
  static constexpr Word first_wait_ns = 200'000, last_wait_ns = 10'000'000;
  const Rule rule_;
  bool far_ = false;
  int copies_ = 0, slow_ = 0, fast_ = 0;
  Word look_at_ns_ = 0, wait_ns_ = first_wait_ns;
};

}  // namespace ccl::detail
