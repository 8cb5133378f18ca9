#pragma once

// Alters what a process sends over sockets at one place. Exactly one source of a program includes
// it.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/uio.h>

namespace ccl::test {

/// One altered word: in which send, at which of its bytes, how many, and what they become.
struct Lie {
  long send = 0;  // 1 is the first; 0: none
  std::size_t at = 0, width = 4;
  std::uint64_t value = 0;
};

/// What this process has sent, and the lie among it. Sends of no byte do not count.
struct Lies {
  Lie lie;
  std::atomic<long> sends{0};
  std::atomic<bool> sent{false};
};
inline std::atomic<Lies*> lies{nullptr};

/// Places of a send that lies may alter: headers and records begin there, data goes on behind.
inline constexpr std::size_t lie_bytes = 384;

using SendMessage = ssize_t (*)(int, const msghdr*, int);
inline ssize_t send_with_lies(SendMessage next, int fd, const msghdr& message, int flags) {
  Lies* const of = lies.load(std::memory_order_relaxed);
  if (of == nullptr) return next(fd, &message, flags);
  const Lie& lie = of->lie;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < message.msg_iovlen; ++i) bytes += message.msg_iov[i].iov_len;
  if (of->sends + 1 != lie.send || of->sent || lie.at + lie.width > bytes) {
    const ssize_t sent = next(fd, &message, flags);
    if (sent > 0) ++of->sends;
    return sent;
  }
  std::vector<std::byte> text;
  text.reserve(bytes);
  for (std::size_t i = 0; i < message.msg_iovlen; ++i) {
    const auto* const from = static_cast<const std::byte*>(message.msg_iov[i].iov_base);
    text.insert(text.end(), from, from + message.msg_iov[i].iov_len);
  }
  std::memcpy(text.data() + lie.at, &lie.value, lie.width);
  iovec whole{text.data(), text.size()};
  msghdr altered = message;
  altered.msg_iov = &whole;
  altered.msg_iovlen = 1;
  const ssize_t sent = next(fd, &altered, flags);
  if (sent > 0) ++of->sends;
  if (sent >= ssize_t(lie.at + lie.width)) of->sent = true;
  return sent;
}

}  // namespace ccl::test

extern "C" {
// The program's own functions precede those of the C library.
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static const auto next = reinterpret_cast<ccl::test::SendMessage>(::dlsym(RTLD_NEXT, "sendmsg"));
  return ccl::test::send_with_lies(next, fd, *message, flags);
}
ssize_t send(int fd, const void* data, std::size_t bytes, int flags) {
  iovec whole{const_cast<void*>(data), bytes};
  msghdr message{};
  message.msg_iov = &whole;
  message.msg_iovlen = 1;
  return sendmsg(fd, &message, flags);
}
}
