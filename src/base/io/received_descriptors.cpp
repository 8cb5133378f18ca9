#include "base/io/received_descriptors.hpp"

#include <cstddef>
#include <cstring>

namespace ccl::detail {
namespace {

template <class F>
void for_each_descriptor(msghdr& message, F f) {
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
       head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t n = 0; n < count; ++n) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(head) + n * sizeof fd, sizeof fd);
      f(fd);
    }
  }
}

}  // namespace

std::vector<Fd> received_descriptors(msghdr& message) {
  std::vector<Fd> all;
  try {
    for_each_descriptor(message, [&](int fd) { all.emplace_back(fd); });
  } catch (...) {  // no memory is left: those that `all` does not own
    std::size_t n = 0;
    for_each_descriptor(message, [&](int fd) {
      if (n++ >= all.size()) (void)Fd{fd};
    });
    throw;
  }
  return all;
}

}  // namespace ccl::detail
