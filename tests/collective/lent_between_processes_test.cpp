// Calls whose long slices lie in the memory of the sender's process, which receivers read: results.
#include <ccl/algo/bruck.hpp>
#include <ccl/algo/doubling.hpp>
#include <ccl/algo/halving.hpp>
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/pat.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/shm.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/lent_job.hpp"
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

using namespace ccl;
using namespace ccl::test;
using Board = LentBoard;

namespace {
/// Slices that this process has read from others.
std::atomic<Word> reads{0};
}  // namespace

/// The C library's, for the runtime as well. Counts reads of slices, not those of a word.
extern "C" ssize_t process_vm_readv(pid_t process, const iovec* to, unsigned long places,
                                    const iovec* from, unsigned long parts,
                                    unsigned long flags) noexcept {
  constexpr std::size_t least = 1024;  // bytes of a slice
  if (process != ::getpid() && from->iov_len >= least) ++reads;
  return ::syscall(SYS_process_vm_readv, process, to, places, from, parts, flags);
}

namespace {
using Number = std::uint32_t;

Number element(int rank, int call, Index i) {
  return Number(i) * 2654435761u + Number(call) * 40503u + Number(rank) * 977u;
}
Result<void> check(bool right, std::string_view what, int call, Index i) {
  if (right) return {};
  return fail(Errc::internal, fmt::format("{}: call {}, element {} is wrong", what, call, i));
}

template <class Body>
Word reads_of(int ranks, const Body& body) {
  Shared<Board> board;
  CHECK(run_lending(board, ranks, [&](const Communicator& comm, Board& with) -> Result<void> {
    Result<void> ended = body(comm, with);
    with.reads += reads;
    return ended;
  }));
  for (int rank = 0; rank < ranks; ++rank) {
    INFO(board->text[rank]);
    CHECK(Errc(board->code[rank].load()) == Errc::ok);
  }
  return board->reads;
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
