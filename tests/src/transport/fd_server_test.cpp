#include "transport/fd_server.hpp"

#include <chrono>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <thread>
#include <utility>
#include <vector>

#include "base/io/mapping.hpp"
#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/lent.hpp"
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;
using namespace ccl::detail;

namespace {

double cpu_s() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

/// Uses up the descriptors of this process.
std::vector<Fd> take_all_descriptors() {
  std::vector<Fd> all;
  for (;;) {
    Fd one{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
    if (!one) return all;
    all.push_back(std::move(one));
  }
}

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator{"/proc/self/fd"}, {});
}

/// Reply of a server, as `FdServer` sends it.
struct Reply {
  int found = 1;
  WireShape shape{1, 2, 128};
};

/// Answers one caller with `count` descriptors of the memory, as a server that goes wrong would.
void answer_with(int listener, const Fd& memory, int count) {
  const Fd caller{::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)};
  Proof proof;
  (void)::recv(caller.get(), &proof, sizeof proof, MSG_WAITALL);
  Reply reply;
  iovec data{&reply, sizeof reply};
  alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(std::size_t(count) * sizeof(int));
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(std::size_t(count) * sizeof(int));
  const int fd = memory.get();
  for (int n = 0; n < count; ++n) {
    std::memcpy(CMSG_DATA(head) + std::size_t(n) * sizeof fd, &fd, sizeof fd);
  }
  (void)::sendmsg(caller.get(), &message, MSG_NOSIGNAL);
}

}  // namespace

TEST_CASE("a reply with more than one descriptor is refused, and leaves none open") {
  const int count = GENERATE(1, 2, 3, 8);
  CAPTURE(count);
  UnixName name;
  name.address.sun_family = AF_UNIX;
  name.bytes = sizeof name.address;
  auto* const at = reinterpret_cast<sockaddr*>(&name.address);
  const Fd listener{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  REQUIRE(::bind(listener.get(), at, sizeof(sa_family_t)) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  REQUIRE(::getsockname(listener.get(), at, &name.bytes) == 0);
  const Fd memory = shareable_memory("test", 4096).value();
  test::Lent lent;
  Edge edge;
  edge.shape = Reply{}.shape;
  const auto before = open_descriptors();
  {
    std::thread server{[&] { answer_with(listener.get(), memory, count); }};
    const auto fetched = fetch_fd(lent.context, edge, "shm", name, Proof{});
    server.join();
    CHECK(fetched.has_value() == (count == 1));
    if (!fetched) {
      CHECK(fetched.error().code == Errc::refused);
      CHECK(test::mentions(fetched.error().what, "more than one descriptor"));
    }
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("a caller that finds no descriptor waits without using up a core") {
  const pid_t child = ::fork();  // whose descriptors are few
  if (child == 0) {
    ::alarm(20);
    const rlimit few{64, 64};
    ::setrlimit(RLIMIT_NOFILE, &few);
    auto memory = shareable_memory("test", 4096);
    auto offer = FdOffer::make(Proof{}, {}, *std::move(memory));
    if (!offer) ::_exit(2);
    const Fd caller{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    auto taken = take_all_descriptors();
    const UnixName& name = offer->name();
    if (::connect(caller.get(), reinterpret_cast<const sockaddr*>(&name.address), name.bytes) != 0)
      ::_exit(3);
    const double before_s = cpu_s();
    std::this_thread::sleep_for(std::chrono::seconds{1});
    const double used_s = cpu_s() - before_s;
    taken.clear();  // the caller is accepted now: a request without a proof is answered
    const Proof other{std::byte{1}};
    if (::write(caller.get(), &other, sizeof other) != sizeof other) ::_exit(4);
    pollfd answer{caller.get(), POLLIN, 0};
    if (::poll(&answer, 1, 5000) != 1) ::_exit(5);
    ::_exit(used_s < 0.2 ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK((WIFEXITED(status) ? WEXITSTATUS(status) : 99) == 0);
}
