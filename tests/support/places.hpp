#pragma once

// Counts the places of a process at which something can happen to it: its allocations and its
// system calls. Exactly one source of a program includes it.
#include <atomic>

#include "support/replaced_new.hpp"
#include <dlfcn.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

namespace ccl::test {

/// Counter of places, and the place at which `act` is called, in the thread that is there.
struct Places {
  std::atomic<long> passed{0};
  std::atomic<long> acts_at{0};  // 0: never
  void (*act)() = nullptr;
};
/// Places of this process. Null: none is counted.
inline std::atomic<Places*> places{nullptr};

inline bool pass_place() noexcept {
  Places* const of = places.load(std::memory_order_relaxed);
  if (of == nullptr) return true;
  const long now = of->passed.fetch_add(1, std::memory_order_relaxed) + 1;
  if (now == of->acts_at.load(std::memory_order_relaxed)) of->act();
  return true;
}
/// Counts from here on.
inline void count_places(Places& in) {
  places = &in;
  allocation_hook = &pass_place;
}

template <class Call>
Call next_function(const char* name) {
  return reinterpret_cast<Call>(::dlsym(RTLD_NEXT, name));
}

}  // namespace ccl::test

// The program's own functions precede those of the C library. These are found before `main`: a
// child must not wait for a search, or for the guard of a constant, that a thread of its parent
// was in.
#define CCL_TEST_PLACE(name, returned, parameters, arguments, ...)                              \
  namespace ccl::test::next {                                                                   \
  inline constinit std::atomic<returned(*) parameters> name{nullptr};                           \
  inline const bool name##_found = (name = next_function<returned(*) parameters>(#name), true); \
  }                                                                                             \
  extern "C" returned name parameters __VA_ARGS__ {                                             \
    auto next = ccl::test::next::name.load(std::memory_order_relaxed);                          \
    if (next == nullptr) next = ccl::test::next_function<returned(*) parameters>(#name);        \
    ccl::test::pass_place();                                                                    \
    return next arguments;                                                                      \
  }
CCL_TEST_PLACE(socket, int, (int domain, int type, int protocol), (domain, type, protocol),
               noexcept)
CCL_TEST_PLACE(connect, int, (int fd, const sockaddr* to, socklen_t bytes), (fd, to, bytes))
CCL_TEST_PLACE(listen, int, (int fd, int queue), (fd, queue), noexcept)
CCL_TEST_PLACE(accept4, int, (int fd, sockaddr* from, socklen_t* bytes, int flags),
               (fd, from, bytes, flags))
CCL_TEST_PLACE(send, ssize_t, (int fd, const void* data, std::size_t bytes, int flags),
               (fd, data, bytes, flags))
CCL_TEST_PLACE(sendmsg, ssize_t, (int fd, const msghdr* message, int flags), (fd, message, flags))
CCL_TEST_PLACE(recv, ssize_t, (int fd, void* to, std::size_t bytes, int flags),
               (fd, to, bytes, flags))
CCL_TEST_PLACE(recvmsg, ssize_t, (int fd, msghdr* message, int flags), (fd, message, flags))
CCL_TEST_PLACE(epoll_create1, int, (int flags), (flags), noexcept)
CCL_TEST_PLACE(epoll_ctl, int, (int set, int what, int fd, epoll_event* event),
               (set, what, fd, event), noexcept)
CCL_TEST_PLACE(epoll_wait, int, (int set, epoll_event* events, int count, int ms),
               (set, events, count, ms))
CCL_TEST_PLACE(eventfd, int, (unsigned count, int flags), (count, flags), noexcept)
CCL_TEST_PLACE(memfd_create, int, (const char* name, unsigned flags), (name, flags), noexcept)
CCL_TEST_PLACE(ftruncate, int, (int fd, off_t bytes), (fd, bytes), noexcept)
CCL_TEST_PLACE(mmap, void*,
               (void* at, std::size_t bytes, int protection, int flags, int fd, off_t offset),
               (at, bytes, protection, flags, fd, offset), noexcept)
CCL_TEST_PLACE(munmap, int, (void* at, std::size_t bytes), (at, bytes), noexcept)
CCL_TEST_PLACE(close, int, (int fd), (fd))
CCL_TEST_PLACE(pthread_create, int,
               (pthread_t * thread, const pthread_attr_t* attributes, void* (*body)(void*),
                void* argument),
               (thread, attributes, body, argument), noexcept)
#undef CCL_TEST_PLACE
