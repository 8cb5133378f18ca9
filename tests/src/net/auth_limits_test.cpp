// Callers of a listener that have not proved the secret: many, silent and slow ones, and a process
// without descriptors.
#include <fmt/format.h>

#include <cerrno>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "net/auth.hpp"
#include "net/callers.hpp"
#include "support/catch.hpp"
#include "support/growing_limit.hpp"
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;
using namespace ccl::detail::net;
using ccl::detail::Fd;

namespace {

Address loopback() {
  return Address::parse("127.0.0.1:0").value();
}
Secret secret_of(int n) {
  Secret s{};
  s[0] = std::byte(n);
  return s;
}

// Process that holds `count` connections to `where`. A slow one sends a byte of a claim each 50 ms.
pid_t start_flood(const Address& where, int count, bool slow) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::alarm(60);
  for (int fd = 3; fd < 1024; ++fd) ::close(fd);
  std::vector<int> open;
  for (int byte = 0;; ++byte) {
    while (int(open.size()) < count) {
      const int fd = ::socket(where.family(), SOCK_STREAM, 0);
      if (fd < 0 || ::connect(fd, where.data(), where.bytes()) != 0) break;
      open.push_back(fd);
    }
    for (const int fd : open) {
      if (slow && byte < 4) (void)::send(fd, &"ccl\2"[byte], 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    ::usleep(50'000);
  }
}
// Process that makes `count` connections to `where` and keeps them. It is there when the listener
// has answered all of them.
class Strangers {
 public:
  Strangers(const Address& where, int count) {
    int ready[2];
    REQUIRE(::pipe2(ready, O_CLOEXEC) == 0);
    pid_ = ::fork();
    if (pid_ == 0) come(where, count, ready[1]);
    ::close(ready[1]);
    char done = 0;
    came_ = ::read(ready[0], &done, 1) == 1;
    ::close(ready[0]);
  }
  ~Strangers() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Strangers(const Strangers&) = delete;
  bool came() const { return came_; }

 private:
  [[noreturn]] static void come(const Address& where, int count, int ready) {
    ::alarm(60);
    for (int fd = 3; fd < 1024; ++fd) {
      if (fd != ready) ::close(fd);
    }
    const rlimit most{1024, 1024};
    ::setrlimit(RLIMIT_NOFILE, &most);
    std::vector<int> open;
    for (int i = 0; i < count; ++i) {
      open.push_back(::socket(where.family(), SOCK_STREAM, 0));
      if (::connect(open.back(), where.data(), where.bytes()) != 0) ::_exit(1);
    }
    char first = 0;
    for (const int fd : open) (void)::recv(fd, &first, 1, 0);
    if (::write(ready, &first, 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  pid_t pid_ = -1;
  bool came_ = false;
};

// Proves the secret on a connection whose greeting has come.
bool prove(const Fd& fd, const Greeting& greeting, const Secret& secret) {
  Claim claim;
  claim.terms = Terms::own(secret).value();
  fill_random(claim.nonce);
  const CpaceShare share = handshake_share(secret, claim.terms.mode, greeting.nonce);
  claim.share = share.share;
  const auto keys = handshake_keys(secret, HandshakeSide::caller, share, greeting, claim, {});
  const auto soon = Deadline::after(20);
  Digest answer{};
  return keys && send_all(fd.get(), &claim, sizeof claim, soon, nullptr) &&
         send_all(fd.get(), keys->caller_tag.data(), sizeof(Digest), soon, nullptr) &&
         recv_all(fd.get(), answer.data(), sizeof answer, soon, nullptr) &&
         same_digest(answer, keys->listener_tag);
}

// Exit status of `body` in a forked process that may open `descriptors` files.
template <class Body>
int in_process(rlim_t descriptors, Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    const rlimit limit{descriptors, 1024};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    ::_exit(body());
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

}  // namespace

TEST_CASE("400 later callers do not push out one that is between greeting and claim") {
  CHECK(in_process(256, [] {
          auto listener = AuthListener::listen(loopback(), secret_of(1)).value();
          for (int attempt = 0; attempt < 20; ++attempt) {
            const auto start = Clock::now();
            const Fd rank =
                std::move(*connect_once(listener.address(), Deadline::after(20), nullptr));
            Greeting greeting;
            if (!recv_all(rank.get(), &greeting, sizeof greeting, Deadline::after(20), nullptr)) {
              ::usleep(100'000);  // the strangers of the last attempt are still there
              continue;
            }
            const Strangers strangers{listener.address(), 400};
            if (!strangers.came()) return 1;
            const bool in_time = Clock::now() - start < CallerTable::grace;
            if (prove(rank, greeting, secret_of(1))) return 0;
            if (in_time) return 2;
          }
          return 3;  // this machine is too slow to tell
        }) == 0);
}

TEST_CASE("a caller that has begun its claim keeps its place before silent ones") {
  CHECK(in_process(64, [] {  // 16 callers, and 8 from one address
          auto listener = AuthListener::listen(loopback(), secret_of(1)).value();
          const auto soon = Deadline::after(20);
          const auto come = [&] {
            Fd fd = std::move(*connect_once(listener.address(), soon, nullptr));
            Greeting greeting;
            if (!recv_all(fd.get(), &greeting, sizeof greeting, soon, nullptr)) fd.reset();
            return fd;
          };
          const Fd spoken = come();
          if (!send_all(spoken.get(), handshake_magic.data(), 4, soon, nullptr)) return 1;
          std::vector<Fd> silent;
          for (int n = 0; n < 7; ++n) silent.push_back(come());
          std::this_thread::sleep_for(CallerTable::grace + std::chrono::milliseconds{200});
          const Fd last = come();
          char byte = 0;
          const bool kept = ::recv(spoken.get(), &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
          const bool evicted = ::recv(silent[0].get(), &byte, 1, MSG_DONTWAIT) >= 0;
          return last && kept && evicted ? 0 : 2;
        }) == 0);
}

// It shows that a listener serves while it turns callers away. It would pass without limits of
// callers, too: the newest is served at once, and only older ones lose their places.
TEST_CASE("a listener serves ranks, newest callers, beside 2,000 silent and 2,000 slow ones") {
  CHECK(in_process(1024, [] {
          auto listener = AuthListener::listen(loopback(), secret_of(1)).value();
          std::vector<pid_t> flood;
          for (int i = 0; i < 8; ++i) {
            flood.push_back(start_flood(listener.address(), 500, i % 2 == 1));
          }
          int failed = 0;
          for (int i = 0; i < 40; ++i) {
            const auto soon = Deadline::after(30);
            const auto fd = auth_connect(listener.address(), secret_of(1), {}, soon, nullptr);
            if (!fd) std::printf("%s\n", fd.error().message().c_str());
            if (!fd || !listener.accept(soon, nullptr)) ++failed;
            ::usleep(20'000);
          }
          for (const pid_t pid : flood) ::kill(pid, SIGKILL);
          for (const pid_t pid : flood) ::waitpid(pid, nullptr, 0);
          std::fflush(nullptr);
          return failed;
        }) == 0);
}

TEST_CASE("a caller that is turned away for others comes again") {
  const Fd busy{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const Address any = loopback();
  const int on = 1;
  ::setsockopt(busy.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
  REQUIRE(::bind(busy.get(), any.data(), any.bytes()) == 0);
  REQUIRE(::listen(busy.get(), 16) == 0);
  const Address at = bound_address(busy.get()).value();
  const auto call = [&](double limit_s) -> std::string {
    std::promise<Errc> code;
    std::jthread caller{[&] {
      const auto fd = auth_connect(at, secret_of(1), {}, Deadline::after(limit_s), nullptr);
      code.set_value(fd ? Errc::ok : fd.error().code);
    }};
    for (int times = 0; times < 6; ++times) {
      pollfd one{busy.get(), POLLIN, 0};
      if (::poll(&one, 1, int(2000 * limit_s)) != 1) {
        return fmt::format("it came {} times in {} s", times, limit_s);
      }
      const Fd fd{::accept(busy.get(), nullptr, nullptr)};
      char notice[32] = {'c', 'c', 'l', 'b'};
      CHECK(::send(fd.get(), notice, sizeof notice, MSG_NOSIGNAL) == sizeof notice);
    }
    const Errc end = code.get_future().get();
    return end == Errc::timed_out ? "" : fmt::format("it ended as {}", name(end));
  };
  CHECK(test::with_growing_limit(1, call) == "");
}

TEST_CASE("a process without descriptors does not spin, and turns callers away") {
  CHECK(in_process(1024, [] {
          auto listener = AuthListener::listen(loopback(), secret_of(1)).value();
          while (::open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) continue;
          const pid_t flood = start_flood(listener.address(), 20, false);
          ::usleep(200'000);
          rusage before{}, after{};
          ::getrusage(RUSAGE_SELF, &before);
          ::usleep(1'000'000);
          ::getrusage(RUSAGE_SELF, &after);
          const auto us = [](const rusage& r) {
            return double(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1e6 +
                   double(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
          };
          const double spent_us = us(after) - us(before);
          ::kill(flood, SIGKILL);
          ::waitpid(flood, nullptr, 0);
          if (spent_us > 100'000) std::printf("%g us of CPU in a second\n", spent_us);
          std::fflush(nullptr);
          return spent_us > 100'000 ? 1 : 0;
        }) == 0);
}
