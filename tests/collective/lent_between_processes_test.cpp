// Calls whose long slices lie in the memory of the sender's process, which receivers read: results,
// and what becomes of calls whose peer cannot be read, gives up or dies.
#include <ccl/algo/bruck.hpp>
#include <ccl/algo/doubling.hpp>
#include <ccl/algo/halving.hpp>
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/pat.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/comm/unique_id.hpp>
#include <ccl/detail/transport/peer_process.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/shm.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/processes.hpp"
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace ccl;
using namespace ccl::test;
using detail::PeerProcess;

namespace {
/// Slices that this process has read from others.
std::atomic<Word> reads{0};
}  // namespace

/// The C library's, for the runtime as well. Counts reads of slices, not those of a word.
extern "C" ssize_t process_vm_readv(pid_t process, const iovec* to, unsigned long places,
                                    const iovec* from, unsigned long parts, unsigned long flags) {
  constexpr std::size_t least = 1024;  // bytes of a slice
  if (process != ::getpid() && from->iov_len >= least) ++reads;
  return ::syscall(SYS_process_vm_readv, process, to, places, from, parts, flags);
}

namespace {
using Number = std::uint32_t;
constexpr double limit_s = 120;  // of a job that hangs
constexpr int max_ranks = 4;

struct Board {
  UniqueId id;
  std::atomic<int> at{0};      // steps of a case, in order
  std::atomic<Word> reads{0};  // of all ranks
  std::atomic<int> code[max_ranks] = {}, peer[max_ranks] = {}, os_code[max_ranks] = {};
  char text[max_ranks][400] = {};
};

Number element(int rank, int call, Index i) {
  return Number(i) * 2654435761u + Number(call) * 40503u + Number(rank) * 977u;
}
Result<void> check(bool right, std::string_view what, int call, Index i) {
  if (right) return {};
  return fail(Errc::internal, fmt::format("{}: call {}, element {} is wrong", what, call, i));
}

/// Runs `body(comm, board)` on each rank, a process of its own. False if one does not end in time,
/// or ends otherwise than by `_exit(0)`; `except`: the rank that may.
template <class Body>
bool run(Shared<Board>& board, int ranks, const Body& body, int except = -1,
         double timeout_s = 60) {
  board->id = create_unique_id().value();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    pids.push_back(start_process([&, rank] {
      const auto done = [&]() -> Result<void> {
        Config config;
        config.device = Config::cpu;
        config.timeout_s = timeout_s;
        CCL_TRY(const auto comm, Communicator::create(board->id, rank, ranks, config));
        Result<void> ended = body(comm, *board);
        board->reads += reads;
        if (ended) return comm.finalize();  // others may still be in the last call
        return ended;
      }();
      if (done) return 0;
      board->code[rank] = int(done.error().code);
      board->peer[rank] = done.error().peer;
      board->os_code[rank] = done.error().os_code;
      done.error().message().copy(board->text[rank], sizeof board->text[rank] - 1);
      return 0;
    }));
  }
  return reap(pids, limit_s, except < 0 ? 0 : pids[std::size_t(except)]);
}
template <class Body>
Word reads_of(int ranks, const Body& body) {
  Shared<Board> board;
  CHECK(run(board, ranks, body));
  for (int rank = 0; rank < ranks; ++rank) {
    INFO(board->text[rank]);
    CHECK(Errc(board->code[rank].load()) == Errc::ok);
  }
  return board->reads;
}

/// True if this host lets a process read another one's memory.
bool may_read() {
  Shared<std::atomic<int>> found;
  static Word known = 0x1357'9bdf'0246'8aceu;
  const pid_t child = start_process([] { return ::pause(), 0; });
  int value = 0;
  const int there = 5;
  const iovec place{&value, sizeof value};
  const bool may = PeerProcess{int(child), &known, known}.read(&there, &place, 1) == 0;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return may;
}

void no_reads() {
  WARN("skipped: processes of this host may not read each other");
}

template <class Op, class Algo>
using Call = Collective<Op, Algo, Simple, ShmTransport>;

/// Elements around the least that is lent, of a slice, of many slices, and a prime.
constexpr Index counts[] = {1000, 4095, 4096, 4097, 16'384, 16'385, 70'001, 300'007};

template <class Algo>
Result<void> gathers(const Communicator& comm, Board&) {
  CCL_TRY(const auto gather, (Call<AllGather, Algo>::create(comm)));
  const int me = comm.rank(), ranks = comm.ranks();
  int call = 0;
  for (const Index n : counts) {
    for (const int shift : {0, 1, 3}) {
      std::vector<Number> in(std::size_t(n + 4)), out(std::size_t(n * ranks + 4));
      const bool in_place = shift == 3;
      Number* const to = out.data() + shift;
      Number* const from = in_place ? to + me * n : in.data() + shift;
      for (Index i = 0; i < n; ++i) from[i] = element(me, call, i);
      CCL_CHECK(gather(from, to, n));
      for (Index i = 0; i < n; ++i) from[i] = ~Number{0};  // nobody reads it any more
      for (int r = 0; r < ranks; ++r) {
        if (in_place && r == me) continue;
        for (Index i = 0; i < n; ++i)
          CCL_CHECK(check(to[r * n + i] == element(r, call, i), Algo::name, call, i));
      }
      ++call;
    }
  }
  return {};
}

template <class Algo>
Result<void> sums(const Communicator& comm, Board&) {
  CCL_TRY(const auto sum, (Call<AllReduce, Algo>::create(comm)));
  const int me = comm.rank(), ranks = comm.ranks();
  int call = 0;
  for (const Index n : counts) {
    for (const bool in_place : {false, true}) {
      std::vector<Number> in(std::size_t(n + 1)), out(std::size_t(n + 1));
      Number* const from = in.data() + 1;
      Number* const to = in_place ? from : out.data() + 1;
      for (Index i = 0; i < n; ++i) from[i] = element(me, call, i);
      CCL_CHECK(sum(from, to, n, Sum{}));
      for (Index i = 0; i < n; ++i) {
        Number all = 0;
        for (int r = 0; r < ranks; ++r) all += element(r, call, i);
        CCL_CHECK(check(to[i] == all, Algo::name, call, i));
      }
      for (Index i = 0; i < n; ++i) from[i] = to[i] = 0;
      ++call;
    }
  }
  return {};
}

template <class Algo>
Result<void> shares(const Communicator& comm, Board&) {
  CCL_TRY(const auto sum, (Call<ReduceScatter, Algo>::create(comm)));
  const int me = comm.rank(), ranks = comm.ranks();
  int call = 0;
  for (const Index n : counts) {
    const auto room = std::size_t(n * ranks);
    std::vector<Number> in(room), out(room);
    for (Index i = 0; i < n * ranks; ++i) in[std::size_t(i)] = element(me, call, i);
    CCL_CHECK(sum(in.data(), out.data(), n, Sum{}));
    std::fill(in.begin(), in.end(), 0u);
    for (Index i = 0; i < n; ++i) {
      Number all = 0;
      for (int r = 0; r < ranks; ++r) all += element(r, call, me * n + i);
      CCL_CHECK(check(out[std::size_t(i)] == all, Algo::name, call, i));
    }
    ++call;
  }
  return {};
}

template <class Algo>
Result<void> rooted(const Communicator& comm, Board&) {
  CCL_TRY(const auto broadcast, (Call<Broadcast, Algo>::create(comm)));
  CCL_TRY(const auto reduce, (Call<Reduce, Algo>::create(comm)));
  const int me = comm.rank(), ranks = comm.ranks();
  int call = 0;
  for (const Index n : counts) {
    for (int root = 0; root < ranks; ++root, ++call) {
      std::vector<Number> in(std::size_t(n + 1)), out(std::size_t(n + 1));
      Number *const from = in.data() + 1, *const to = out.data() + 1;
      for (Index i = 0; i < n; ++i) from[i] = element(me, call, i);
      CCL_CHECK(reduce(from, to, n, Sum{}, root));
      for (Index i = 0; i < n && me == root; ++i) {
        Number all = 0;
        for (int r = 0; r < ranks; ++r) all += element(r, call, i);
        CCL_CHECK(check(to[i] == all, Algo::name, call, i));
      }
      CCL_CHECK(broadcast(from, to, n, root));
      for (Index i = 0; i < n; ++i) from[i] = 0;
      for (Index i = 0; i < n; ++i)
        CCL_CHECK(check(to[i] == element(root, call, i), Algo::name, call, i));
    }
  }
  return {};
}

Result<void> exchanges(const Communicator& comm, Board&) {
  CCL_TRY(const auto all, (Call<AllToAll, Pairwise>::create(comm)));
  CCL_TRY(const auto one, (Call<SendRecv, Pairwise>::create(comm)));
  CCL_TRY(const auto gather, (Call<Gather, Pairwise>::create(comm)));
  CCL_TRY(const auto scatter, (Call<Scatter, Pairwise>::create(comm)));
  const int me = comm.rank(), ranks = comm.ranks();
  int call = 0;
  for (const Index n : counts) {
    std::vector<Number> in(std::size_t(n * ranks + 1)), out(std::size_t(n * ranks + 1));
    Number *const from = in.data() + 1, *const to = out.data() + 1;
    for (Index i = 0; i < n * ranks; ++i) from[i] = element(me, call, i);
    CCL_CHECK(all(from, to, n));
    for (int r = 0; r < ranks; ++r) {
      for (Index i = 0; i < n; ++i)
        CCL_CHECK(check(to[r * n + i] == element(r, call, me * n + i), "AllToAll", call, i));
    }
    const int next = (me + 1) % ranks, before = (me + ranks - 1) % ranks;
    CCL_CHECK(one(from, n, next, to, n, before));
    for (Index i = 0; i < n; ++i)
      CCL_CHECK(check(to[i] == element(before, call, i), "SendRecv", call, i));
    const int root = call % ranks;
    CCL_CHECK(gather(from, to, n, root));
    for (Index i = 0; i < n * ranks; ++i) from[i] = 0;
    for (int r = 0; r < ranks && me == root; ++r) {
      for (Index i = 0; i < n; ++i)
        CCL_CHECK(check(to[r * n + i] == element(r, call, i), "Gather", call, i));
    }
    if (me == root)
      for (Index i = 0; i < n * ranks; ++i) from[i] = element(root, call, i);
    CCL_CHECK(scatter(from, to, n, root));
    for (Index i = 0; i < n * ranks; ++i) from[i] = 0;
    for (Index i = 0; i < n; ++i)
      CCL_CHECK(check(to[i] == element(root, call, me * n + i), "Scatter", call, i));
    ++call;
  }
  return {};
}

void check_all(const char* setting, bool reads) {
  const Environment environment{"CCL_CMA_ENABLE", setting};
  const auto is_right = [&](Word number) { CHECK((number > 0) == reads); };
  for (const int ranks : {2, 3, 4}) {
    INFO(ranks << " ranks, CCL_CMA_ENABLE=" << setting);
    is_right(reads_of(ranks, gathers<Ring>));
    is_right(reads_of(ranks, gathers<Doubling>));
    is_right(reads_of(ranks, gathers<Bruck>));
    is_right(reads_of(ranks, gathers<Pat>));
    is_right(reads_of(ranks, sums<Ring>));
    is_right(reads_of(ranks, sums<Tree>));
    is_right(reads_of(ranks, shares<Ring>));
    is_right(reads_of(ranks, shares<Pat>));
    (void)reads_of(ranks, sums<Doubling>);
    (void)reads_of(ranks, shares<Halving>);
    is_right(reads_of(ranks, rooted<Ring>));
    (void)reads_of(ranks, rooted<Tree>);
    is_right(reads_of(ranks, exchanges));
  }
}

/// Messages from rank 0 to rank 1, from memory of the caller's choice.
class Sender {
 public:
  using Messages = Call<SendRecv, Pairwise>;
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
}  // namespace

TEST_CASE("results are right where every long slice is read from its sender") {
  if (!may_read()) return no_reads();
  check_all("2", true);
}

TEST_CASE("results are right where the time of copies decides") {
  const Environment environment{"CCL_CMA_ENABLE", "1"};
  (void)reads_of(2, gathers<Ring>);
  (void)reads_of(2, exchanges);
  (void)reads_of(4, sums<Ring>);
}

TEST_CASE("without the setting, or where one end lacks it, slices go through slots") {
  {
    const Environment environment{"CCL_CMA_ENABLE", "0"};
    CHECK(reads_of(2, gathers<Ring>) == 0);
    CHECK(reads_of(2, exchanges) == 0);
  }
  CHECK(reads_of(2, [](const Communicator& comm, Board& board) -> Result<void> {
          const Environment environment{"CCL_CMA_ENABLE", comm.rank() == 0 ? "2" : "0"};
          return gathers<Ring>(comm, board);
        }) == 0);
}

TEST_CASE("memory that cannot be read is an error of both ranks that names the sender") {
  if (!may_read()) return no_reads();
  const Environment environment{"CCL_CMA_ENABLE", "2"};
  for (const std::size_t bytes : {std::size_t{32} << 10, std::size_t{1} << 20}) {
    Shared<Board> board;
    CHECK(run(board, 2, [&](const Communicator& comm, Board&) -> Result<void> {
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
    CHECK(run(board, 2, [&](const Communicator& comm, Board&) -> Result<void> {
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
  CHECK(run(board, 2, [&](const Communicator& comm, Board&) -> Result<void> {
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
    CHECK(run(
        board, 2,
        [&](const Communicator& comm, Board& with) -> Result<void> {
          CCL_TRY(const auto send, Sender::create(comm));
          std::vector<char> data(bytes, 'x');
          if (comm.rank() == 0) {
            std::thread killer{[] {
              sleep_s(0.05);
              ::kill(::getpid(), SIGKILL);
            }};
            killer.detach();
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
    CHECK(run(
        board, 2,
        [&](const Communicator& comm, Board&) -> Result<void> {
          CCL_TRY(const auto send, Sender::create(comm));
          std::vector<char> data(std::size_t{8} << 20, 'x');
          if (comm.rank() == 1) {
            std::thread killer{[run_number] {
              sleep_s(0.002 * (run_number + 1));
              ::kill(::getpid(), SIGKILL);
            }};
            killer.detach();
          }
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
  CHECK(run(
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
