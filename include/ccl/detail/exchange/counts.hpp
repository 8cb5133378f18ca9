#pragma once

#include <ccl/detail/base/ptx.hpp>
#include <ccl/detail/lanes/block_epilogue.hpp>
#include <ccl/types/word.hpp>

#include <nv/target>

namespace ccl::detail {

/// Adds one to a word that no other lane writes, without a wait for the result.
CCL_HD void count_one(Word* at) {
  NV_IF_ELSE_TARGET(NV_IS_DEVICE, (ptx::add_one(at);), (++*at;))
}
CCL_HD int lowest_bit(unsigned bits) {
  NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return __ffs(int(bits)) - 1;), (return __builtin_ctz(bits);))
}
/// Counts the messages of `words` in the copies of absent blocks. Lanes of block `block` call it,
/// at any time. It waits for no load, because in a launch of one block the loads took longer than
/// the message.
template <class Work>
CCL_HD void count_for_absent(const Work& work, unsigned words, int block, int lane, int lanes) {
  for (unsigned left = words; left != 0; left &= left - 1) {
    Word* const counts = work.state.copies + lowest_bit(left) * work.state.count;
    for_absent_blocks(block, work.blocks, work.state.count, lane, lanes,
                      [&](int i) { count_one(counts + i); });
  }
}
/// Counts the messages of `words` in the copy of this block. Lanes call it after all lanes of the
/// block have read that copy.
template <class Work>
CCL_HD void count_own(const Work& work, unsigned words, int block, int lane, int lanes) {
  CCL_ROLL for (int word = lane; word < 32; word += lanes) {
    if ((words >> word & 1u) != 0) count_one(work.state.copies + word * work.state.count + block);
  }
}

}  // namespace ccl::detail
