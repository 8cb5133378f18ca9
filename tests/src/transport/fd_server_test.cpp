#include "transport/fd_server.hpp"

#include <chrono>
#include <ctime>
#include <thread>
#include <utility>
#include <vector>

#include "base/io/mapping.hpp"
#include "support/catch.hpp"
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

}  // namespace

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
