#pragma once

#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/proto/lane_group.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Waits of a group for words of its mailbox, whose high half numbers a message or a launch.
template <LaneGroup Group>
class MailboxWait {
  using Memory = typename Group::Memory;

 public:
  CCL_HD MailboxWait(Group group, const AbortWatch& watch) : group_{group}, spin_wait_{watch} {}

  /// Blocks until the word has the high half of `want` and at least its low half. What its writer
  /// stored before is then visible. Returns false if the spin wait for `peer` failed.
  CCL_HD bool acquire(const Word* at, Word want, int peer) {
    Word got;
    return acquire(at, want, peer, got);
  }
  /// Blocks as the other `acquire` does. The first lane receives the word.
  CCL_HD bool acquire(const Word* at, Word want, int peer, Word& got) {
    return await(at, want, peer, got, [](const Word* word) { return Memory::load_acquire(word); });
  }
  /// Blocks as `acquire` does, for a credit: its writer has read what it read before.
  CCL_HD bool credit(const Word* at, Word want, int peer) {
    Word got;
    return await(at, want, peer, got, [](const Word* word) { return Memory::load_credit(word); });
  }
  /// Blocks as `credit` does, for two adjacent words with the high half of `want`. All lanes
  /// receive their low halves in one word.
  CCL_HD bool credit_pair(const Word* at, Word want, int peer, Word& joined) {
    for (;;) {
      const Word first = Memory::load_credit(at), second = Memory::load_credit(at + 1);
      joined = low(first) | second << 32;
      if (group_.all(first >> 32 == want >> 32 && second >> 32 == want >> 32)) return arrived();
      if (fails(peer, want)) return false;
    }
  }
  /// Waits for several words at once, as `acquire` does for one. The lanes share them. Word `i`, of
  /// `count`, is at `word(i)` and comes from rank `writer(i)`. Lanes call `see(i, value)` for their
  /// words at each poll.
  template <class WordAt, class Writer, class See>
  CCL_HD bool acquire_each(int count, Word want, WordAt word, Writer writer, See see) {
    for (;;) {
      int late = -1;
      for (int i = group_.rank(); i < count; i += Group::width) {
        const Word got = Memory::load_acquire(word(i));
        if (got >> 32 != want >> 32 || low(got) < low(want)) late = writer(i);
        see(i, got);
      }
      if (group_.all(late < 0)) return arrived();
      if (group_.all(spin_wait_.ends(late, (want >> 32) - 1))) {
        failed_ = true;
        return false;
      }
    }
  }
  /// Waits for several words at once, as `credit` does for one. The lanes share them. Word `i`, of
  /// `count`, is at `word(i)`, comes from rank `writer(i)` and shall have the high half of
  /// `want(i)`.
  template <class WordAt, class Want, class Writer>
  CCL_HD bool credit_each(int count, WordAt word, Want want, Writer writer) {
    for (;;) {
      int late = -1;
      for (int i = group_.rank(); i < count; i += Group::width) {
        if (Memory::load_credit(word(i)) >> 32 != want(i) >> 32) late = i;
      }
      if (group_.all(late < 0)) return arrived();
      const bool over =
          late < 0 ? spin_wait_.ends(-1, 0) : spin_wait_.ends(writer(late), (want(late) >> 32) - 1);
      if (group_.all(over)) {
        failed_ = true;
        return false;
      }
    }
  }
  CCL_HD bool failed() const { return failed_; }
  CCL_HD static constexpr Word low(Word word) { return word & 0xffff'ffffu; }

 private:
  /// The next words of the peer have the number of the same launch, but a deadline of their own.
  CCL_HD bool arrived() {
    spin_wait_.restart();
    return true;
  }
  /// Counts a failed poll. Returns true if the wait has failed, which the first lane decides: every
  /// look at its limits reads memory of the host. A send_recv of 1 GiB between 2 H200 took 3212 us
  /// when all lanes looked, and takes 2910.
  CCL_HD bool fails(int peer, Word want) {
    const bool first = group_.rank() == 0;
    if (group_.all(!first || spin_wait_.ends(peer, (want >> 32) - 1))) failed_ = true;
    return failed_;
  }
  /// Only the first lane polls.
  template <class Load>
  CCL_HD bool await(const Word* at, Word want, int peer, Word& got, Load load) {
    for (;;) {
      bool there = true;
      if (group_.rank() == 0) {
        got = load(at);
        there = got >> 32 == want >> 32 && low(got) >= low(want);
      }
      if (group_.all(there)) return arrived();
      if (fails(peer, want)) return false;
    }
  }

  Group group_;
  bool failed_ = false;
  SpinWait<Memory> spin_wait_;
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
