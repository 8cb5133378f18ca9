#include <ccl/detail/transport/peer_process.hpp>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "support/driver.hpp"
#include <sys/mman.h>
#include <unistd.h>

using namespace ccl;
using detail::PeerProcess;

namespace {
Word known = 0x1234'5678'9abc'def0u;  // a child has it at the same address

PeerProcess process(pid_t id) {
  return {int(id), &known, 0x1234'5678'9abc'def0u};
}
}  // namespace

TEST_CASE("pieces are filled in order with memory of another process") {
  std::vector<char> mine(100'000, 'm');
  const std::string problem = test::alone_with_child(
      [&](int fd) -> std::string {
        for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = char(i % 101);
        char word = 1;
        if (::write(fd, &word, 1) != 1 || ::read(fd, &word, 1) != 1) return "no parent";
        return "";
      },
      [&](int fd, pid_t child) -> std::string {
        char word = 0;
        if (::read(fd, &word, 1) != 1) return "no child";
        std::vector<char> a(70'000), b(30'000);
        const iovec to[] = {{a.data(), a.size()}, {b.data(), b.size()}};
        const int failed = process(child).read(mine.data(), to, 2);
        if (::write(fd, &word, 1) != 1) return "no child at the end";
        if (failed == EPERM) return "";  // the host forbids it
        if (failed != 0) return std::strerror(failed);
        for (std::size_t i = 0; i < mine.size(); ++i) {
          const char got = i < a.size() ? a[i] : b[i - a.size()];
          if (got != char(i % 101)) return "wrong at " + std::to_string(i);
        }
        return "";
      });
  CHECK(problem == "");
}

TEST_CASE("this process may be read, too") {
  int from = 5, to = 0;
  const iovec place{&to, sizeof to};
  CHECK(process(::getpid()).read(&from, &place, 1) == 0);
  CHECK(to == 5);
}

TEST_CASE("a process without the word is another one") {
  int from = 5, to = 0;
  const iovec place{&to, sizeof to};
  PeerProcess other = process(::getpid());
  other.value += 1;
  CHECK(other.read(&from, &place, 1) == ESRCH);
  other = process(::getpid());
  other.word = nullptr;
  CHECK(other.read(&from, &place, 1) == EFAULT);
}

TEST_CASE("a process that has ended, and memory that is not there") {
  int from = 5, to = 0;
  const iovec place{&to, sizeof to};
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  CHECK(process(child).read(&from, &place, 1) == ESRCH);
  CHECK(process(::getpid()).read(nullptr, &place, 1) == EFAULT);

  // The second page is not there: half a read is none.
  const auto page = std::size_t(::sysconf(_SC_PAGESIZE));
  void* const two =
      ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(two != MAP_FAILED);
  ::munmap(static_cast<char*>(two) + page, page);
  std::vector<char> room(2 * page);
  const iovec long_place{room.data(), room.size()};
  CHECK(process(::getpid()).read(two, &long_place, 1) == EFAULT);
  ::munmap(two, page);
}

TEST_CASE("a read has at least one piece, and as many as there is room for") {
  const PeerProcess self = process(::getpid());
  int value = 0;
  std::vector<iovec> places(PeerProcess::max_pieces + 1, iovec{&value, sizeof value});
  std::vector<int> from(places.size(), 7);
  CHECK(self.read(from.data(), places.data(), 0) == EINVAL);
  CHECK(self.read(from.data(), places.data(), PeerProcess::max_pieces + 1) == EINVAL);
  CHECK(self.read(from.data(), places.data(), PeerProcess::max_pieces) == 0);
  CHECK(value == 7);
}

TEST_CASE("memory that others can read at its ends") {
  constexpr std::size_t page = 4096;
  auto* const three = static_cast<char*>(
      ::mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(three != MAP_FAILED);
  CHECK(PeerProcess::others_can_read(three, 1));
  CHECK(PeerProcess::others_can_read(three, 3 * page));
  REQUIRE(::mprotect(three + 2 * page, page, PROT_NONE) == 0);
  CHECK(PeerProcess::others_can_read(three, 2 * page));
  CHECK_FALSE(PeerProcess::others_can_read(three, 2 * page + 1));
  CHECK_FALSE(PeerProcess::others_can_read(three + 2 * page, page));
  ::munmap(three, 3 * page);
}
