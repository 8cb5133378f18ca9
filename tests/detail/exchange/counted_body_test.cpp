#include <ccl/algo/one_shot.hpp>
#include <ccl/detail/exchange/counted_body.hpp>
#include <ccl/detail/exec/host_executor.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>

#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "support/catch.hpp"
#include "support/thread_lanes.hpp"

using namespace ccl;

namespace {

using Counts = std::vector<std::vector<int>>;  // [from][to], rows

/// Ranks as threads that exchange rows over each other's scratch.
class CountedWorld {
 public:
  static constexpr int max_channels = 5;

  CountedWorld(int ranks, Index half_packets) : ranks_{ranks}, half_packets_{half_packets} {
    const std::size_t bytes = std::size_t(2 * half_packets) * sizeof(Packet) +
                              detail::PeerExchangeWork::max_ranks * sizeof(detail::Mailbox);
    for (int r = 0; r < ranks; ++r) {
      scratch_.push_back(lines(bytes));
      states_.emplace_back(max_channels * detail::PeerExchangeWork::state_words, 0);
    }
  }

  struct Shape {
    Index row_bytes;
    int send_stride, recv_stride;
    bool listed;                             // rows lie anywhere, by a list
    int offset;                              // of the buffers, from an aligned address
    Index side_bytes = 0;                    // that go with each row
    std::vector<int> own_send_strides = {};  // of each rank; none: `send_stride`
    int stride_of(std::size_t rank) const {
      return own_send_strides.empty() ? send_stride : own_send_strides[rank];
    }
  };
  struct Outcome {
    bool right = true;  // every row that was counted arrived, and nothing else was written
    std::vector<detail::LaneFailure> lane_failure;
    int launches = 0;
  };

  template <class Body, class Group, class Exchange>
  Outcome run(const Counts& counts, const Shape& shape, const std::vector<int>& channels) {
    const auto R = std::size_t(ranks_);
    const Index received = Index(R) * shape.recv_stride;
    std::mt19937 random{++turn_};
    std::vector<std::vector<char>> in(R), out(R), want(R), in_side(R), out_side(R), want_side(R);
    std::vector<std::vector<int>> rows(R), got(R, std::vector<int>(R, -7));
    std::vector<std::vector<int>> want_counts(R, std::vector<int>(R, -7));
    for (std::size_t r = 0; r < R; ++r) {
      const Index sent = Index(R) * shape.stride_of(r);
      in[r].resize(std::size_t(sent * shape.row_bytes + shape.offset));
      for (char& c : in[r]) c = char(random());
      out[r].assign(std::size_t((received + 2) * shape.row_bytes + shape.offset), 0x5a);
      want[r] = out[r];
      in_side[r].resize(std::size_t(sent * shape.side_bytes));
      for (char& c : in_side[r]) c = char(random());
      out_side[r].assign(std::size_t(received * shape.side_bytes), 0x5a);
      want_side[r] = out_side[r];
      for (Index i = 0; i < sent; ++i) rows[r].push_back(int(random() % unsigned(sent)));
    }
    for (std::size_t r = 0; r < R; ++r) {
      for (std::size_t p = 0; p < R; ++p) {
        const int n = counts[p][r];
        want_counts[r][p] = n;
        for (int i = 0; i < n && i < shape.recv_stride && i < shape.stride_of(p); ++i) {
          const Index at = Index(r) * shape.stride_of(p) + i;
          const Index row = shape.listed ? rows[p][std::size_t(at)] : at;
          std::memcpy(
              want[r].data() + shape.offset + (Index(p) * shape.recv_stride + i) * shape.row_bytes,
              in[p].data() + shape.offset + row * shape.row_bytes, std::size_t(shape.row_bytes));
          if (shape.side_bytes == 0) continue;
          std::memcpy(want_side[r].data() + (Index(p) * shape.recv_stride + i) * shape.side_bytes,
                      in_side[p].data() + row * shape.side_bytes, std::size_t(shape.side_bytes));
        }
      }
    }
    Outcome outcome;
    outcome.lane_failure.resize(R);
    std::atomic<int> launches{0};
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < R; ++r) {
      threads.emplace_back([&, r] {
        const Word stop = 0;
        detail::CountedWork work;
        for (std::size_t p = 0; p < R; ++p) {
          work.peers.scratch[p] = reinterpret_cast<Packet*>(scratch_[p].get());
        }
        work.peers.half_packets = half_packets_;
        work.peers.rank = int(r);
        work.peers.ranks = ranks_;
        work.state = {states_[r].data(), max_channels};
        work.send = in[r].data() + shape.offset;
        work.recv = out[r].data() + shape.offset;
        work.send_counts = counts[r].data();
        work.recv_counts = got[r].data();
        work.send_rows = shape.listed ? rows[r].data() : nullptr;
        work.row_bytes = shape.row_bytes;
        work.send_stride = shape.stride_of(r);
        work.recv_stride = shape.recv_stride;
        work.channels = work.blocks = channels[r];
        work.send_side = in_side[r].data();
        work.recv_side = out_side[r].data();
        work.side_bytes = shape.side_bytes;
        work.watch = {&stop, &outcome.lane_failure[r], Word{60} * 1'000'000'000};
        Exchange::Division::assign_tiles(work);
        work.most = Exchange::Division::max_rows(work);
        for (work.first = 0; work.first < work.recv_stride; work.first += work.most) {
          detail::HostExecutor::run<Group>(work.channels, Body{work});
          ++launches;
        }
      });
    }
    for (auto& t : threads) t.join();
    outcome.launches = launches;
    for (std::size_t r = 0; r < R; ++r) {
      outcome.right &= out[r] == want[r] && got[r] == want_counts[r] && out_side[r] == want_side[r];
      written_past_ |= !std::equal(out[r].end() - 2 * shape.row_bytes, out[r].end(),
                                   want[r].end() - 2 * shape.row_bytes);
      for (std::size_t p = 0; p < R; ++p) {  // behind what fits, nothing
        const Index from = shape.offset + Index(p) * shape.recv_stride * shape.row_bytes;
        const Index fits = std::min(std::max(counts[p][r], 0), shape.recv_stride);
        for (Index i = fits * shape.row_bytes; i < shape.recv_stride * shape.row_bytes; ++i) {
          written_past_ |= out[r][std::size_t(from + i)] != 0x5a;
        }
      }
    }
    return outcome;
  }
  bool written_past() const { return written_past_; }

 private:
  struct Free {
    void operator()(char* p) const { ::operator delete[](p, std::align_val_t{256}); }
  };
  static std::unique_ptr<char[], Free> lines(std::size_t bytes) {
    std::unique_ptr<char[], Free> m{new (std::align_val_t{256}) char[bytes]};
    std::memset(m.get(), 0, bytes);
    return m;
  }
  int ranks_;
  Index half_packets_;
  unsigned turn_ = 0;
  bool written_past_ = false;
  std::vector<std::unique_ptr<char[], Free>> scratch_;
  std::vector<std::vector<Word>> states_;
};

template <class P, class G, int R>
struct Case {
  using Proto = P;
  using Group = G;
  static constexpr int ranks = R;
};
using Cases = std::tuple<Case<LL, detail::SoloLane, 2>, Case<LL128, detail::SoloLane, 5>,
                         Case<LL128, detail::SoloLane, 8>, Case<LL128, detail::ThreadLanes<8>, 3>,
                         Case<LL, detail::SoloLane, 1>>;

Counts random_counts(int ranks, std::mt19937& random, int most) {
  const auto R = static_cast<std::size_t>(ranks);
  Counts counts{R, std::vector<int>(R)};
  for (auto& of : counts) {
    for (int& n : of) n = random() % 4 == 0 ? 0 : int(random() % unsigned(most + 1));
  }
  return counts;
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("counted: rows of any size, counts that nobody else knows", "", Cases) {
  using Group = typename TestType::Group;
  using Exchange = detail::CountedExchange<Group, typename TestType::Proto, 1>;
  using Body = detail::CountedBody<OneShot, typename TestType::Proto, 1>;
  constexpr int R = TestType::ranks;
  const bool solo = Group::width == 1;
  CountedWorld world{R, Index{R} * 2048};
  std::mt19937 random{9};
  int several = 0;
  for (int turn = 0; turn < (solo ? 40 : 12); ++turn) {
    const bool apart = turn % 3 == 0;
    CountedWorld::Shape shape;
    shape.row_bytes = apart ? 2048 + turn * 40 : 1 + Index(random() % 700);
    shape.recv_stride = 1 + int(random() % (apart ? 12 : 40));
    shape.send_stride = shape.recv_stride + int(random() % 3);
    shape.listed = apart && turn % 2 == 0;
    shape.offset = turn % 2 * 3;
    shape.side_bytes = apart && turn % 4 < 2 ? 1 + turn * 17 : 0;
    std::vector<int> channels(R);
    for (int& c : channels) c = 1 + int(random() % (solo ? 4 : 2));
    const auto outcome = world.run<Body, Group, Exchange>(
        random_counts(R, random, shape.recv_stride), shape, channels);
    INFO("turn " << turn);
    REQUIRE(outcome.right);
    for (const detail::LaneFailure& g : outcome.lane_failure) REQUIRE(g.peer == 0);
    several += outcome.launches > R;
  }
  if (solo && R > 1) REQUIRE(several > 0);  // where the longest runs are longer than a box
  REQUIRE(!world.written_past());
}

TEST_CASE("counted: a count beyond the stride is found, reported and not written") {
  using Exchange = detail::CountedExchange<detail::SoloLane, LL128, 1>;
  using Body = detail::CountedBody<OneShot, LL128, 1>;
  for (const int bad : {6, 1 << 30, -1}) {
    CountedWorld world{3, 3 * 2048};
    Counts counts(3, std::vector<int>{1, 2, 3});
    REQUIRE(world.run<Body, detail::SoloLane, Exchange>(counts, {100, 5, 5, false, 0, 0}, {1, 2, 3})
                .right);
    counts[1][2] = bad;
    const auto outcome =
        world.run<Body, detail::SoloLane, Exchange>(counts, {100, 5, 5, false, 0, 0}, {2, 1, 2});
    REQUIRE(!world.written_past());
    const auto& [zero, one, two] =
        std::tuple{outcome.lane_failure[0], outcome.lane_failure[1], outcome.lane_failure[2]};
    CHECK(one.peer == 2 + 1);
    CHECK(one.why == detail::LaneFailure::too_many);
    CHECK(int(unsigned(one.count)) == bad);
    CHECK(one.stride == 5);
    CHECK(one.sends == 1);
    CHECK(two.peer == 1 + 1);
    CHECK(two.why == (bad == -1 ? detail::LaneFailure::refused : detail::LaneFailure::too_many));
    CHECK(zero.peer == 1 + 1);
    CHECK(zero.why == detail::LaneFailure::refused);
  }
}

TEST_CASE("counted: ranks whose runs of what they send are of different lengths") {
  using Exchange = detail::CountedExchange<detail::SoloLane, LL128, 1>;
  using Body = detail::CountedBody<OneShot, LL128, 1>;
  CountedWorld world{3, 3 * 256};
  // Rank 0 has nothing to send, and room for all that the others have, in several launches.
  const Counts counts{{0, 0, 0}, {17, 2, 1}, {40, 5, 0}};
  const auto outcome = world.run<Body, detail::SoloLane, Exchange>(
      counts, {300, 0, 40, false, 0, 0, {0, 17, 50}}, {1, 2, 1});
  for (const detail::LaneFailure& g : outcome.lane_failure) CHECK(g.peer == 0);
  CHECK(outcome.right);
  CHECK(outcome.launches > 3);
}

TEST_CASE("counted: a count beyond the sender's stride that its peer has room for") {
  using Exchange = detail::CountedExchange<detail::SoloLane, LL128, 1>;
  using Body = detail::CountedBody<OneShot, LL128, 1>;
  CountedWorld world{3, 3 * 2048};
  const Counts counts{{1, 1, 1}, {1, 1, 7}, {1, 1, 1}};
  const auto outcome = world.run<Body, detail::SoloLane, Exchange>(
      counts, {100, 0, 8, false, 0, 0, {8, 5, 8}}, {1, 1, 1});
  CHECK(outcome.lane_failure[1].why == detail::LaneFailure::too_many);
  CHECK(outcome.lane_failure[1].stride == 5);
  for (const std::size_t r : {0u, 2u}) {  // reported at once
    CHECK(outcome.lane_failure[r].peer == 1 + 1);
    CHECK(outcome.lane_failure[r].why == detail::LaneFailure::refused);
  }
  CHECK(!world.written_past());
}
