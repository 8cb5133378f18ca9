// Calls whose long slices lie in the memory of the sender's process: what becomes of them if its
// peer cannot read there, gives up or dies.
#include <ccl/algo/pairwise.hpp>
#include <ccl/collective.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/shm.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/lent_job.hpp"
#include "support/processes.hpp"
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace ccl;
using namespace ccl::test;
using Board = LentBoard;

namespace {
/// Messages from rank 0 to rank 1, from memory of the caller's choice.
class Sender {
 public:
  using Messages = Collective<SendRecv, Pairwise, Simple, ShmTransport>;
  /// Sends a first message, which connects the ranks.
  static Result<Sender> create(const Communicator& comm) {
    CCL_TRY(auto messages, Messages::create(comm));
    Sender sender{comm, std::move(messages)};
    std::vector<char> data(100'000, 'a');
    CCL_CHECK(sender(data.data(), data));
    return sender;
  }
  Result<void> operator()(const void* from, std::vector<char>& to) const {
    const Index n = Index(to.size());
    if (comm_.rank() == 0)
      return messages_(static_cast<const char*>(from), n, 1, static_cast<char*>(nullptr), 0, 1);
    return messages_(static_cast<const char*>(nullptr), 0, 0, to.data(), n, 0);
  }

 private:
  Sender(const Communicator& comm, Messages messages)
      : comm_{comm}, messages_{std::move(messages)} {}
  Communicator comm_;
  Messages messages_;
};
/// Memory whose third page cannot be read, which a sender that lends it does not notice.
void* unreadable(std::size_t bytes) {
  constexpr std::size_t page = 4096;
  void* const at =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(at != MAP_FAILED);
  REQUIRE(::mprotect(static_cast<char*>(at) + 2 * page, page, PROT_NONE) == 0);
  return at;
}
/// Memory that no other process can read, as that of devices; null if the system has none.
char* secret(std::size_t bytes) {
#ifdef SYS_memfd_secret
  const int fd = int(::syscall(SYS_memfd_secret, 0));
  if (fd < 0 || ::ftruncate(fd, off_t(bytes)) != 0) return nullptr;
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<char*>(at);
#else
  return nullptr;
#endif
}
/// Has this process killed after `seconds`, whatever it does then.
void end_after(double seconds) {
  std::thread{[seconds] {
    sleep_s(seconds);
    ::kill(::getpid(), SIGKILL);
  }}.detach();
}
}  // namespace

TEST_CASE("memory that cannot be read is an error of both ranks that names the sender") {
  if (!may_read()) return no_reads();
  const Environment environment{"CCL_CMA_ENABLE", "2"};
  for (const std::size_t bytes : {std::size_t{32} << 10, std::size_t{1} << 20}) {
    Shared<Board> board;
    CHECK(run_lending(board, 2, [&](const Communicator& comm, Board&) -> Result<void> {
      CCL_TRY(const auto send, Sender::create(comm));
      std::vector<char> to(bytes, 'x');
      return send(comm.rank() == 0 ? unreadable(bytes) : nullptr, to);
    }));
    INFO(board->text[0] << board->text[1]);
    CHECK(Errc(board->code[1].load()) == Errc::system);
    CHECK(board->peer[1] == 0);
    CHECK(Errc(board->code[0].load()) == Errc::aborted);  // which names rank 1 and its error
    CHECK(board->peer[0] == 1);
    CHECK(std::strstr(board->text[0], "memory that rank 0 sends") != nullptr);
    CHECK(board->os_code[1] == EFAULT);
    CHECK(std::strstr(board->text[1], "memory that rank 0 sends") != nullptr);
  }
}

TEST_CASE("memory that no other process can read goes through slots") {
  if (!may_read()) return no_reads();
  const Environment environment{"CCL_CMA_ENABLE", "2"};
  for (const std::size_t bytes : {std::size_t{32} << 10, std::size_t{1} << 20}) {
    Shared<Board> board;
    CHECK(run_lending(board, 2, [&](const Communicator& comm, Board&) -> Result<void> {
      CCL_TRY(const auto send, Sender::create(comm));
      std::vector<char> to(bytes, 'x');
      char* const from = comm.rank() == 0 ? secret(bytes) : nullptr;
      if (comm.rank() == 0 && from == nullptr) {
        WARN("this system has no memory of one process (memfd_secret)");
        std::fill(to.begin(), to.end(), 's');
        return send(to.data(), to);
      }
      if (from != nullptr) std::fill_n(from, bytes, 's');
      CCL_CHECK(send(from, to));
      const bool right = comm.rank() == 0 || to == std::vector<char>(bytes, 's');
      return right ? Result<void>{} : fail(Errc::internal, "wrong bytes");
    }));
    INFO(board->text[0] << board->text[1]);
    CHECK(board->code[0] == 0);
    CHECK(board->code[1] == 0);
  }
}

TEST_CASE("a rank that receives another number of bytes fails with mismatch") {
  if (!may_read()) return no_reads();
  const Environment environment{"CCL_CMA_ENABLE", "2"};
  Shared<Board> board;
  CHECK(run_lending(board, 2, [&](const Communicator& comm, Board&) -> Result<void> {
    CCL_TRY(const auto send, Sender::create(comm));
    std::vector<char> data(comm.rank() == 0 ? 40'000 : 50'000, 'x');
    return send(data.data(), data);
  }));
  INFO(board->text[1]);
  CHECK(Errc(board->code[1].load()) == Errc::mismatch);
  CHECK(board->peer[1] == 0);
  CHECK(Errc(board->code[0].load()) == Errc::mismatch);
}

TEST_CASE("a sender that is killed while it waits for its reader is lost for it") {
  if (!may_read()) return no_reads();
  const Environment environment{"CCL_CMA_ENABLE", "2"};
  for (const std::size_t bytes : {std::size_t{32} << 10, std::size_t{8} << 20}) {
    Shared<Board> board;
    CHECK(run_lending(
        board, 2,
        [&](const Communicator& comm, Board& with) -> Result<void> {
          CCL_TRY(const auto send, Sender::create(comm));
          std::vector<char> data(bytes, 'x');
          if (comm.rank() == 0) {
            end_after(0.05);
            with.at = 1;
          } else {
            sleep_s(0.3);  // the sender has lent, and is gone
          }
          return send(data.data(), data);
        },
        0));
    INFO(board->text[1]);
    CHECK(Errc(board->code[1].load()) == Errc::peer_lost);
    CHECK(board->peer[1] == 0);
  }
}

TEST_CASE("a reader that is killed is lost for the sender that waits for it") {
  if (!may_read()) return no_reads();
  const Environment environment{"CCL_CMA_ENABLE", "2"};
  for (int run_number = 0; run_number < 5; ++run_number) {
    Shared<Board> board;
    CHECK(run_lending(
        board, 2,
        [&](const Communicator& comm, Board&) -> Result<void> {
          CCL_TRY(const auto send, Sender::create(comm));
          std::vector<char> data(std::size_t{8} << 20, 'x');
          if (comm.rank() == 1) end_after(0.002 * (run_number + 1));
          while (true) CCL_CHECK(send(data.data(), data));
        },
        1));
    INFO(board->text[0]);
    CHECK(Errc(board->code[0].load()) == Errc::peer_lost);
    CHECK(board->peer[0] == 1);
  }
}

TEST_CASE("after the sender has given up, its reader gets an error and never other data") {
  if (!may_read()) return no_reads();
  const Environment environment{"CCL_CMA_ENABLE", "2"};
  Shared<Board> board;
  CHECK(run_lending(
      board, 2,
      [&](const Communicator& comm, Board& with) -> Result<void> {
        CCL_TRY(const auto send, Sender::create(comm));
        std::vector<char> data(std::size_t{32} << 10, 'x');
        if (comm.rank() == 0) {
          auto ended = send(data.data(), data);
          std::fill(data.begin(), data.end(), 'y');
          with.at = 1;
          return ended;
        }
        (void)wait_until([&] { return with.at == 1; }, 60);
        std::fill(data.begin(), data.end(), 'z');
        CCL_CHECK(send(data.data(), data));
        return fail(Errc::internal, "it went well");
      },
      -1, 1));
  INFO(board->text[0] << board->text[1]);
  CHECK(Errc(board->code[0].load()) == Errc::timed_out);
  // By the error of rank 0, or because its memory is not what it was.
  const Errc code = Errc(board->code[1].load());
  CHECK((code == Errc::timed_out || code == Errc::peer_lost));
  CHECK(board->peer[0] == 1);
}
