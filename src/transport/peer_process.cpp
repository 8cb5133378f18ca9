#include <ccl/detail/transport/peer_process.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include <unistd.h>

namespace ccl::detail {

int PeerProcess::read(const void* from, const iovec* to, int pieces) const {
  if (pieces < 1 || pieces > max_pieces) return EINVAL;
  iovec here[max_pieces + 1];
  std::copy_n(to, pieces, here);
  std::size_t bytes = 0;
  for (int i = 0; i < pieces; ++i) bytes += to[i].iov_len;
  Word found = 0;
  here[pieces] = {&found, sizeof found};
  // The word comes last, from the same process: so the data before it came from there, too.
  const iovec there[] = {{const_cast<void*>(from), bytes}, {const_cast<void*>(word), sizeof found}};
  const ssize_t got = ::process_vm_readv(id, here, unsigned(pieces) + 1, there, 2, 0);
  if (got < 0) return errno;
  if (std::size_t(got) != bytes + sizeof found) return EFAULT;
  if (found != value) return ESRCH;
  return 0;
}

bool PeerProcess::others_can_read(const void* at, Index bytes) {
  char two[2];
  const iovec here{two, sizeof two};
  auto* const first = static_cast<char*>(const_cast<void*>(at));
  const iovec there[] = {{first, 1}, {first + bytes - 1, 1}};
  return ::process_vm_readv(::getpid(), &here, 1, there, 2, 0) == ssize_t{sizeof two};
}

}  // namespace ccl::detail
