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
  explicit LendingChoice(Rule rule) : rule_{rule} {}

  bool by_time() const { return rule_ == Rule::by_time; }
  /// True if the next slice is to be lent.
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
