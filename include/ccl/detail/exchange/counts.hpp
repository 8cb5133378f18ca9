#pragma once

#include <ccl/detail/base/ptx.hpp>
#include <ccl/detail/base/word_set.hpp>
#include <ccl/detail/lanes/block_epilogue.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

#include <nv/target>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Adds one to a word that no other lane writes, without a wait for the result.
CCL_HD void count_one(Word* at) {
  NV_IF_ELSE_TARGET(NV_IS_DEVICE, (ptx::add_one(at);), (++*at;))
}
CCL_HD int lowest_bit(unsigned bits) {
  NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return __ffs(int(bits)) - 1;), (return __builtin_ctz(bits);))
}
CCL_HD int lowest_bit(Word bits) {
  NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return __ffsll((long long)(bits)) - 1;),
                    (return __builtin_ctzll(bits);))
}
/// Counts the messages of `words` in the copies of absent blocks. Lanes of block `block` call it,
/// at any time. It waits for no load, because in a launch of one block the loads took longer than
/// the message.
template <class Work, int Count>
CCL_HD void count_for_absent(const Work& work, const WordSet<Count>& words, int block, int lane,
                             int lanes) {
  const auto count_part = [&](auto left, int first) {
    for (; left != 0; left &= left - 1) {
      Word* const counts = work.state.copies + (first + lowest_bit(left)) * work.state.count;
      for_absent_blocks(block, work.blocks, work.state.count, lane, lanes,
                        [&](int i) { count_one(counts + i); });
    }
  };
  if constexpr (WordSet<Count>::parts == 1) {
    count_part(words.part[0], 0);
  } else {
    CCL_ROLL for (int i = 0; i < WordSet<Count>::parts; ++i) {
      count_part(words.part[i], i * WordSet<Count>::bits);
    }
  }
}
/// Counts the messages of `words` in the copy of this block. Lanes call it after all lanes of the
/// block have read that copy.
template <class Work, int Count>
CCL_HD void count_own(const Work& work, const WordSet<Count>& words, int block, int lane,
                      int lanes) {
  constexpr int all = WordSet<Count>::parts * WordSet<Count>::bits;
  CCL_ROLL for (int word = lane; word < all; word += lanes) {
    if (words.contains(word)) count_one(work.state.copies + word * work.state.count + block);
  }
}

}  // namespace ccl::detail

CCL_ANY_SPACE_END
