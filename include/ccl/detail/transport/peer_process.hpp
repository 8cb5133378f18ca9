#pragma once

#include <ccl/types/word.hpp>

#include <sys/uio.h>

namespace ccl::detail {

/// Process of another rank of this host, whose memory this process may read. The number of a
/// process is not proof of it: another one may have it in another container, or later.
struct PeerProcess {
  static constexpr int max_pieces = 8;  // of a read

  int id = 0;                  // as this process numbers it
  const void* word = nullptr;  // in that process
  Word value = 0;              // random; what lies at `word`

  /// Copies memory of the process, from `from` on, to `pieces` places one after the other. Returns
  /// 0, or an errno: `ESRCH` also if `word` does not hold `value`. Then the places hold anything.
  int read(const void* from, const iovec* to, int pieces) const;
  /// True if other processes can read the first and the last byte of this process's memory: not
  /// that of devices, as CUDA's pinned memory is.
  static bool others_can_read(const void* at, Index bytes);
};

}  // namespace ccl::detail
