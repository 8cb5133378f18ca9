// Collectives of one slice on CPU ranks, beside ranks that take the general way for the same call.
#include "launch/short_context.hpp"

#include <ccl/algo/bruck.hpp>
#include <ccl/algo/doubling.hpp>
#include <ccl/algo/halving.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/collective/all_gather.hpp>
#include <ccl/collective/all_reduce.hpp>
#include <ccl/collective/broadcast.hpp>
#include <ccl/collective/reduce.hpp>
#include <ccl/collective/reduce_scatter.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/element/reduce_op.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/shm.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/state.hpp"
#include "support/brief.hpp"
#include "support/catch.hpp"
#include "support/on_ranks.hpp"
#include "support/processes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

Config limited(double timeout_s) {
  Config config;
  config.timeout_s = timeout_s;
  return config;
}

/// Element `i` of a rank's input in a round. Sums of few ranks are exact in every type.
template <class T>
T input_of(int rank, int round, Index i) {
  return T((rank + 1) * 3 + round % 5 + int(i % 7));
}

/// What a rank passes and gets, for `n` elements of each share.
template <class Op>
struct Shape {
  static Index in(Index n, int ranks) { return std::is_same_v<Op, ReduceScatter> ? n * ranks : n; }
  static Index out(Index n, int ranks) { return std::is_same_v<Op, AllGather> ? n * ranks : n; }
};

template <class Op, class T>
T expected(int me, int ranks, int root, int round, Index n, Index i) {
  if constexpr (std::is_same_v<Op, AllGather>) return input_of<T>(int(i / n), round, i % n);
  if constexpr (std::is_same_v<Op, Broadcast>) return input_of<T>(root, round, i);
  T sum{};
  for (int r = 0; r < ranks; ++r) {
    const Index at = std::is_same_v<Op, ReduceScatter> ? me * n + i : i;
    sum = T(sum + input_of<T>(r, round, at));
  }
  return sum;
}

template <class Op, class Call, class T>
Result<void> call(const Call& collective, const T* in, T* out, Index n, int root, Stream stream) {
  if constexpr (std::is_same_v<Op, Broadcast>) return collective(in, out, n, root, stream);
  if constexpr (std::is_same_v<Op, Reduce>) return collective(in, out, n, Sum{}, root, stream);
  if constexpr (std::is_same_v<Op, AllGather>) return collective(in, out, n, stream);
  if constexpr (is_one_of<Op, AllReduce, ReduceScatter>) {
    return collective(in, out, n, Sum{}, stream);
  }
}

/// Lets the calls of a rank take the general way, as those whose phases are noted do.
class Ways {
 public:
  explicit Ways(const Communicator& comm)
      : calls_{detail::Access::state(comm)->observers.compositions().back()->calls()} {}
  ~Ways() { take(false); }
  void take(bool general) { calls_.watch.phases = general ? log_.get() : nullptr; }

 private:
  detail::CallState& calls_;
  std::unique_ptr<detail::PhaseLog> log_ = std::make_unique<detail::PhaseLog>();
};

/// Ranks take turns with the general way, and with calls on a stream.
template <class Op, class Algo, class T>
Result<void> play(const Communicator& comm) {
  CCL_TRY(const auto collective, (Collective<Op, Algo, Simple, ShmTransport>::create(comm)));
  Ways ways{comm};
  HostStream stream;
  const int me = comm.rank(), ranks = comm.ranks();
  const Index lengths[] = {1, 2, 0, 15, 16, 30, 31, 60, 61, 120, 121, 200, 1000, 5000, 300'000};
  for (int round = 0; round < (brief ? 15 : 45); ++round) {
    const Index n = lengths[round % 15];
    const int root = round / 4 % ranks;
    const bool queued = (round * 5 + me) % 7 == 0;
    ways.take((round * 7 + me * 3) % 5 < 2);
    std::vector<T> in(std::size_t(Shape<Op>::in(n, ranks)) + 1);
    std::vector<T> out(std::size_t(Shape<Op>::out(n, ranks)) + 1);
    for (std::size_t i = 0; i + 1 < in.size(); ++i) in[i] = input_of<T>(me, round, Index(i));
    CCL_CHECK(
        (call<Op>(collective, in.data(), out.data(), n, root, queued ? Stream{stream} : Stream{})));
    if (queued) CCL_CHECK(stream.synchronize());
    if (std::is_same_v<Op, Reduce> && me != root) continue;
    for (std::size_t i = 0; i + 1 < out.size(); ++i) {
      const T right = expected<Op, T>(me, ranks, root, round, n, Index(i));
      if (out[i] != right) {
        return fail(Errc::internal, "round " + std::to_string(round) + ", element " +
                                        std::to_string(i) + " of " + std::to_string(n));
      }
    }
    if (out.back() != T{}) return fail(Errc::internal, "it writes behind the buffer");
  }
  return comm.finalize();
}

template <class Op, class Algo, class T = int>
void check() {
  for (const int ranks : {2, 3, 5}) {
    INFO(Op::name << " by " << Algo::name << ", " << ranks << " ranks, " << sizeof(T) << " bytes");
    check_well(on_ranks(ranks, limited(30), play<Op, Algo, T>));
  }
}

}  // namespace

TEST_CASE("short collectives that move data agree with the general way") {
  check<Broadcast, Ring>();
  check<AllGather, Ring>();
  check<AllGather, Doubling>();
  check<AllGather, Bruck, std::uint8_t>();
}

TEST_CASE("short collectives that reduce agree with the general way") {
  check<Reduce, Ring>();
  check<AllReduce, Ring>();
  check<AllReduce, Doubling>();
  check<AllReduce, Doubling, std::int16_t>();
  check<ReduceScatter, Ring, std::int64_t>();
  check<ReduceScatter, Halving>();
}

TEST_CASE("a rank may be many short collectives ahead of another") {
  for (const bool general : {false, true}) {
    std::atomic<bool> ahead{false};
    const auto body = [&](const Communicator& comm) -> Result<void> {
      CCL_TRY(const auto copies, (Collective<Broadcast, Ring, Simple, ShmTransport>::create(comm)));
      Ways ways{comm};
      std::vector<int> data(20'000);
      const auto run = [&](int round, Index n) -> Result<void> {
        std::fill_n(data.begin(), n, comm.rank() == 0 ? round : -1);
        CCL_CHECK(copies(data.data(), data.data(), n, 0));
        const bool right = std::count(data.begin(), data.begin() + n, round) == n;
        return right ? Result<void>{} : fail(Errc::internal, "round " + std::to_string(round));
      };
      CCL_CHECK(run(0, 1));
      constexpr int rounds = 300, max_ahead = 100;
      ways.take(general && comm.rank() == 1);
      for (int round = 1; round < rounds; ++round) {
        if (round == max_ahead && comm.rank() == 0) ahead = true;
        if (round == 1 && comm.rank() == 1 && !wait_until([&] { return ahead.load(); }, 20)) {
          return fail(Errc::internal, "rank 0 waits for rank 1");
        }
        const bool is_long = round > max_ahead && round % 7 == 0;
        CCL_CHECK(run(round, is_long ? 20'000 : 1 + round % 30));
      }
      return comm.finalize();
    };
    INFO((general ? "the general way receives" : "the short way receives"));
    check_well(on_ranks(2, limited(30), body));
  }
}

TEST_CASE("a short collective whose peer does not call fails at its deadline and names it") {
  const auto results = on_ranks(2, limited(0.3), [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto sum, (Collective<AllReduce, Doubling, Simple, ShmTransport>::create(comm)));
    int data = comm.rank();
    CCL_CHECK(sum(&data, &data, 1));
    return comm.rank() == 1 ? sum(&data, &data, 1) : Result<void>{};
  });
  REQUIRE(!results[1]);
  CHECK(results[1].error().code == Errc::timed_out);
  CHECK(results[1].error().peer == 0);
  CHECK(results[1].error().what.find("in all_reduce/Doubling/Simple") != std::string::npos);
}
