#include <ccl/detail/copy/bodies.hpp>
#include <ccl/detail/exec/host_executor.hpp>

#include <cstring>
#include <thread>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;

namespace {

/// Scratch of several ranks, and what each keeps.
struct Peers {
  explicit Peers(int ranks) : scratch(std::size_t(ranks)), counts(std::size_t(ranks)) {
    for (auto& s : scratch)
      s.resize(8 + detail::PeerView::max_ranks * sizeof(detail::Mailbox) / sizeof(Packet));
    for (auto& c : counts) c.assign(detail::CopySync::count_words, 0);
  }
  detail::CopySync sync(int rank, const Word* stop, detail::LaneFailure* lane_failure,
                        Word deadline_ns) {
    detail::CopySync work;
    for (std::size_t p = 0; p < scratch.size(); ++p) {
      const auto at = reinterpret_cast<std::uintptr_t>(scratch[p].data());
      work.peers.scratch[p] = scratch[p].data() + (128 - at % 128) % 128 / sizeof(Packet);
    }
    work.peers.rank = rank;
    work.peers.ranks = int(scratch.size());
    work.counts = counts[std::size_t(rank)].data();
    work.watch = {stop, lane_failure, deadline_ns};
    return work;
  }
  std::vector<std::vector<Packet>> scratch;
  std::vector<std::vector<Word>> counts;
};

template <class T, class F, bool Wide>
std::vector<T> reduced(const std::vector<std::vector<T>>& pieces, F op, int channels,
                       std::vector<T>& also) {
  using R = detail::Reduction<F, T>;
  detail::CopyReduction<R> work{R{op, int(pieces.size())}};
  std::vector<T> result(pieces[0].size());
  also = result;
  for (std::size_t r = 0; r < pieces.size(); ++r) work.piece[r] = pieces[r].data();
  work.ranks = int(pieces.size());
  work.output = result.data();
  work.also = also.data();
  work.count = Index(result.size());
  work.channels = channels;
  detail::HostExecutor::run<detail::SoloLane>(channels, detail::CopyReduceBody<R, Wide>{work});
  return result;
}

struct Odd {  // neither 4 nor 8 bytes
  unsigned char byte[3];
  bool operator==(const Odd& other) const { return std::memcmp(byte, other.byte, 3) == 0; }
};
struct AddOdd {
  static constexpr bool commutative = true;
  Odd operator()(Odd a, Odd b) const {
    for (int i = 0; i < 3; ++i) a.byte[i] = static_cast<unsigned char>(a.byte[i] + b.byte[i]);
    return a;
  }
};

}  // namespace

TEST_CASE("a sync ends when the peers have posted as often, and counts from launch to launch") {
  constexpr int ranks = 3;
  Peers peers{ranks};
  const Word stop = 0;
  detail::LaneFailure lane_failure[ranks];
  int seen[ranks] = {};
  std::vector<std::thread> threads;
  std::atomic<int> arrived{0};
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      for (int round = 0; round < 50; ++round) {
        arrived.fetch_add(1);
        auto work = peers.sync(r, &stop, &lane_failure[r], Word{60} * 1'000'000'000);
        work.post[detail::CopySync::filled] = work.await[detail::CopySync::filled] =
            7u & ~(1u << r);
        if (round % 3 == 0) {  // the other kind, between two of them only
          const unsigned pair = r == 0 ? 2u : r == 1 ? 1u : 0u;
          work.post[detail::CopySync::emptied] = work.await[detail::CopySync::emptied] = pair;
        }
        detail::HostExecutor::run<detail::SoloLane>(1, detail::CopySyncBody{work});
        seen[r] += int(arrived.load() >= ranks * (round + 1));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (int r = 0; r < ranks; ++r) {
    CHECK(lane_failure[r].peer == 0);
    CHECK(seen[r] == 50);
  }
}

TEST_CASE("a sync gives up by its deadline, and at once when all is to stop") {
  Peers peers{2};
  Word stop = 0;
  detail::LaneFailure lane_failure;
  auto work = peers.sync(0, &stop, &lane_failure, 20'000'000);
  work.await[detail::CopySync::filled] = 2;
  detail::HostExecutor::run<detail::SoloLane>(1, detail::CopySyncBody{work});
  CHECK(lane_failure.peer == 2);
  lane_failure = {};
  stop = 1;
  work = peers.sync(0, &stop, &lane_failure, 0);
  work.await[detail::CopySync::emptied] = 2;
  detail::HostExecutor::run<detail::SoloLane>(1, detail::CopySyncBody{work});
  CHECK(lane_failure.peer == 0);
}

TEST_CASE("what follows a sync that gave up is not posted") {
  for (const bool aborted : {false, true}) {
    Peers peers{2};
    Word stop = 0;
    detail::LaneFailure lane_failure;
    auto work = peers.sync(0, &stop, &lane_failure, 20'000'000);
    const detail::Mailbox* const theirs = detail::mailbox(work.peers, 1, 0);
    work.post[detail::CopySync::filled] = work.await[detail::CopySync::filled] = 2;
    if (aborted) {
      stop = 1;
    } else {
      detail::HostExecutor::run<detail::SoloLane>(1, detail::CopySyncBody{work});
      REQUIRE(lane_failure.peer == 2);
      CHECK(theirs->reported[0] == 1);  // completed before the wait
    }
    const Word reported = theirs->reported[0];
    detail::HostExecutor::run<detail::SoloLane>(1, detail::CopySyncBody{work});
    CHECK(theirs->reported[0] == reported);
  }
}

TEST_CASE("pieces are reduced in the order of the ranks, for all types and counts") {
  for (const std::size_t n : {1u, 2u, 7u, 64u, 1001u}) {
    std::vector<std::vector<float>> floats(3, std::vector<float>(n));
    std::vector<std::vector<Odd>> odds(3, std::vector<Odd>(n));
    std::vector<std::vector<__nv_bfloat16>> halves(3, std::vector<__nv_bfloat16>(n));
    std::vector<float> sum(n), mean(n);
    std::vector<Odd> odd_sum(n);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t r = 0; r < 3; ++r) {
        floats[r][i] = r == 0 ? 1e8f : r == 1 ? -1e8f : float(i % 100) / 7;  // order matters
        odds[r][i] = {{static_cast<unsigned char>(i), static_cast<unsigned char>(r), 9}};
        halves[r][i] = __float2bfloat16(float(r + i % 4));
      }
      sum[i] = (floats[0][i] + floats[1][i]) + floats[2][i];
      mean[i] = float(i % 4) + 1;
      odd_sum[i] = {{static_cast<unsigned char>(3 * i), 3, 27}};
    }
    for (const int channels : {1, 3}) {
      std::vector<float> also;
      CHECK((reduced<float, Sum, true>(floats, Sum{}, channels, also) == sum));
      CHECK(also == sum);
      CHECK((reduced<float, Sum, false>(floats, Sum{}, channels, also) == sum));
      std::vector<Odd> odd_also;
      CHECK((reduced<Odd, AddOdd, true>(odds, AddOdd{}, channels, odd_also) == odd_sum));
      std::vector<__nv_bfloat16> half_also;
      const auto got = reduced<__nv_bfloat16, Avg, true>(halves, Avg{}, channels, half_also);
      for (std::size_t i = 0; i < n; ++i) CHECK(__bfloat162float(got[i]) == mean[i]);
    }
  }
}

TEST_CASE("runs of any length and address are copied whole") {
  std::vector<char> from(5000), to(5000, 'x');
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = char(i * 7);
  detail::CopyRuns work;
  work.run[work.count++] = {to.data() + 1, from.data() + 3, 2000};
  work.run[work.count++] = {to.data() + 2001, from.data() + 2001, 1};
  work.run[work.count++] = {to.data() + 2100, from.data() + 2100, 2345};
  work.channels = 4;
  detail::HostExecutor::run<detail::SoloLane>(work.channels, detail::CopyRunsBody{work});
  CHECK(std::memcmp(to.data() + 1, from.data() + 3, 2000) == 0);
  CHECK((to[0] == 'x' && to[2001] == from[2001] && to[2002] == 'x'));
  CHECK(std::memcmp(to.data() + 2100, from.data() + 2100, 2345) == 0);
  CHECK(to[2100 + 2345] == 'x');
}
