// Launches whose buffers lie in windows, over a model of memory. The program writes its send buffer
// before each launch and reads its receive buffer behind, always the same ones. No execution that
// release and acquire allow shows a rank old data, or changes data that another rank still reads.
// Then the same code runs with an order or a wait removed, which the model must detect.
#include <ccl/algo/nvls.hpp>

#include <array>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/multicast_model.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr int max_launches = 3;

/// Launches among some ranks.
struct Shape {
  int ranks = 2;
  std::vector<int> heads{};
  int launches = 1;
  bool sends = true, receives = true;  // lie in windows
  bool in_place = false;
  int odd_launch = -1;  // in which rank 0 has its buffers elsewhere
  int parts = 1;        // of a message that is copied
};

Word input_of(int launch, int rank, Index element) {
  return 0x1000 + Word(launch) * 0x100 + Word(rank) * 0x80 + Word(element);
}

template <class Op, class Algo, int Width, Promises P>
class World {
 public:
  using R = std::conditional_t<Op::reduces, detail::Reduction<Sum, std::uint64_t>, detail::Bytes>;
  using Lanes = ModelLanes<Width, P>;
  using Body =
      detail::MulticastBody<Op, Algo, Simple, ModelMulticast<P>, 16, R, detail::WindowBuffers>;
  static constexpr bool sums = std::is_same_v<Op, AllReduce>;
  static constexpr bool gathers = std::is_same_v<Op, AllGather>;
  static constexpr bool scatters = std::is_same_v<Op, ReduceScatter>;

  explicit World(Shape shape) : shape_{std::move(shape)} {}

  /// Returns the number of executions.
  long explore() {
    MemoryModel checker;
    const auto prepare = [&] {
      clear();
      for (int i = 0; i < shape_.ranks * Width; ++i) {
        checker.add([this, r = i / Width, lane = i % Width] {
          for (int n = 0; n < shape_.launches; ++n) launch(r, lane, n);
        });
      }
    };
    return checker.explore(prepare, [&] { check(checker); });
  }

 private:
  int shares() const { return sums ? int(shape_.heads.size()) : shape_.ranks; }
  Index each() const { return Index{16} * shape_.parts; }  // words of a share
  Index sent() const { return (gathers ? 1 : shares()) * each(); }
  Index received() const { return (scatters ? 1 : shares()) * each(); }
  bool in_windows(int n) const { return n != shape_.odd_launch; }
  bool stores(int n) const { return !scatters && shape_.receives && in_windows(n); }
  Index half_packets() const { return (sums ? 2 : 1) * shares() * 8; }

  void clear() {
    reductions().clear();
    launch_counts = {counts_.data(), counts_.data() + counts_.size()};
    gates_ = {};
    counts_ = {};
    for (int r = 0; r < shape_.ranks; ++r) {
      scratch_[r].assign(std::size_t(2 * half_packets()) + 8 * sizeof(detail::Mailbox) / 16 + 8,
                         {});
      auto* const begin = scratch_[r].data();
      table_[r] = begin + (128 - reinterpret_cast<std::uintptr_t>(begin) % 128) % 128 / 16;
      send_[r].assign(std::size_t(sent()), {});
      recv_[r].assign(std::size_t(received()), {});
      sends_[r] = send_[r].data();
      recvs_[r] = shape_.in_place ? send_[r].data() : recv_[r].data();
      for (int n = 0; n < shape_.launches; ++n) {
        in_[r][n].clear();
        for (Index i = 0; i < sent(); ++i) in_[r][n].push_back(input_of(n, r, i));
        out_[r][n].assign(std::size_t(received()), 0);
      }
    }
  }
  static detail::BoundBuffer bound(Word place, Packet* const* table, int rank, int ranks) {
    detail::BoundBuffer buffer;
    buffer.place = place;
    buffer.windows.set_table(table);
    buffer.windows.rank = rank;
    buffer.windows.ranks = ranks;
    return buffer;
  }
  void launch(int rank, int lane, int n) {
    detail::MulticastWork<R> work{reduction()};
    work.peers.set_table(table_.data());
    work.peers.half_packets = half_packets();
    work.peers.rank = rank;
    work.peers.ranks = shape_.ranks;
    work.epoch = {&counts_[rank][lane], 1};  // each lane counts for itself
    work.watch = {&stop_, &failure_, 0, nullptr, 0};
    for (const int head : shape_.heads) work.add_head(head);
    const bool elsewhere = rank == 0 && !in_windows(n);
    const Word place = elsewhere ? detail::WindowPlaceWord::in_no_window : 100;
    work.send = bound(shape_.sends ? place : 1, sends_.data(), rank, shape_.ranks);
    work.recv = bound(shape_.receives ? place : 1, recvs_.data(), rank, shape_.ranks);
    // What is copied is in memory that the model does not see.
    work.input = in_[rank][n].data();
    work.output = out_[rank][n].data();
    constexpr Index unit = Op::reduces ? 1 : sizeof(Word);  // what is only moved counts bytes
    const Index count = (sums ? sent() : each()) * unit;
    work.layout = {count, scatters ? count : 0, gathers ? count : 0, sums};
    if (!Body::template divide<Lanes>(work)) throw OrderError{"no room in the scratch"};
    const Lanes group{gates_[rank], lane};
    auto* const send = reinterpret_cast<Word*>(send_[rank].data());
    if (lane == 0 && shape_.sends && !gathers) {
      for (Index i = 0; i < sent(); ++i) model().store_data(&send[i], input_of(n, rank, i), false);
    }
    group.sync();
    const Body body{work};
    const Word left = body(group, 0);
    group.sync();
    counts_[rank][lane] = left >> 1;
    if (lane == 0 && stores(n)) {
      auto* const recv = reinterpret_cast<Word*>(recvs_[rank]);
      for (Index i = 0; i < received(); ++i) {
        out_[rank][n][std::size_t(i)] = model().load_data(&recv[i], false);
      }
    }
    group.sync();
  }
  R reduction() const {
    if constexpr (Op::reduces) {
      return R{Sum{}, shape_.ranks};
    } else {
      return {};
    }
  }

  void check(const MemoryModel& checker) const {
    const auto wrong = [](bool is) {
      if (is) throw OrderError{"a wrong word"};
    };
    for (int r = 0; r < shape_.ranks; ++r) {
      for (int n = 0; n < shape_.launches; ++n) {
        for (Index i = 0; i < received(); ++i) {
          const Word got = checker.value_of(out_[r][n][std::size_t(i)]);
          if constexpr (Op::reduces) {
            wrong(got / 2 == 0 || got / 2 > reductions().size());
            const Reduced& sum = reductions()[std::size_t(got / 2 - 1)];
            for (int p = 0; p < shape_.ranks; ++p) {
              const Word summand = checker.value_of(sum.from[std::size_t(p)].word[got % 2]);
              wrong(summand != input_of(n, p, scatters ? r * each() + i : i));
            }
          } else {
            wrong(got != input_of(n, int(i / each()), i % each()));
          }
        }
      }
    }
  }

  const Shape shape_;
  std::vector<Packet> scratch_[max_model_ranks], send_[max_model_ranks], recv_[max_model_ranks];
  std::array<Packet*, max_view_ranks> table_{}, sends_{}, recvs_{};
  std::array<MemoryModel::StartGate, max_model_ranks> gates_{};
  std::array<std::array<Word, 8>, max_model_ranks> counts_{};
  std::vector<Word> in_[max_model_ranks][max_launches], out_[max_model_ranks][max_launches];
  Word stop_ = 0;
  detail::LaneFailure failure_;
};

template <class Op, class Algo = Nvls, int Width = 1, Promises P = Promises{}>
long explore(const Shape& shape) {
  return World<Op, Algo, Width, P>{shape}.explore();
}

// Algorithms that lack something.
struct SendersDoNotWait : Nvls {
  template <class Prims>
  static void run(ReduceScatter, Prims& prims) {
    const auto tiles = prims.tiles();
    for (Index t = tiles.first; t < tiles.last; t += tiles.step) {
      prims.store(0, t, prims.reduced(prims.own_share(), t));
    }
  }
};
struct ReceiversDoNotWait : Nvls {
  template <class Prims>
  static void run(AllReduce, Prims& prims) {
    const auto tiles = prims.tiles();
    if (const int own = prims.own_share(); own >= 0) {
      for (Index t = tiles.first; t < tiles.last; t += tiles.step) {
        prims.spread(own, t, prims.reduced(own, t));
      }
      prims.arrive(Prims::spread_out);
    }
  }
  template <class Prims>
  static void run(AllGather, Prims& prims) {
    const auto tiles = prims.tiles();
    for (Index t = tiles.first; t < tiles.last; t += tiles.step) {
      prims.spread(prims.own_share(), t, prims.load(0, t));
    }
  }
};
/// Loads from windows and stores to the scratch, part by part, without asking who has taken what.
struct PartsDoNotWait : Nvls {
  template <class Prims>
  static void run(AllReduce, Prims& prims) {
    const auto tiles = prims.tiles();
    if (const int own = prims.own_share(); own >= 0) {
      for (Index t = tiles.first; t < tiles.last; t += tiles.step) {
        prims.spread(own, t, prims.reduced(own, t));
      }
      prims.arrive(Prims::spread_out);
    }
    if (prims.await_heads(Prims::spread_out)) take_all(prims);
  }
};
}  // namespace

TEST_CASE("launches in windows are ordered in all executions") {
  long runs = 0;
  for (const bool in_place : {false, true}) {
    runs += explore<AllReduce>({.heads = {1}, .launches = 3, .in_place = in_place});
    runs += explore<AllReduce>({.heads = {0, 1}, .launches = 2, .in_place = in_place});
  }
  runs += explore<ReduceScatter>({.launches = 2});
  runs += explore<AllGather>({.launches = 2});
  runs += explore<AllReduce, Nvls, 2>({.heads = {0}, .launches = 1});
  WARN(runs << " executions");
}

TEST_CASE("launches of which one side is in windows, and parts of messages that are copied") {
  long runs = explore<AllReduce>({.heads = {1}, .launches = 2, .receives = false});
  runs += explore<AllReduce>({.heads = {1}, .launches = 2, .sends = false});
  runs += explore<AllReduce>({.heads = {1}, .receives = false, .parts = 3});
  runs += explore<AllReduce>({.heads = {1}, .sends = false, .parts = 3});
  runs += explore<AllReduce>({.heads = {1}, .sends = false, .receives = false, .parts = 3});
  runs += explore<ReduceScatter>({.sends = false, .parts = 2});
  runs += explore<AllGather>({.receives = false, .parts = 2});
  WARN(runs << " executions");
}

TEST_CASE("ranks decide alike if one has its buffers elsewhere in one launch") {
  long runs = 0;
  for (const int odd : {0, 1}) {
    runs += explore<AllReduce>({.heads = {1}, .launches = 2, .odd_launch = odd});
    runs += explore<AllReduce>({.heads = {0}, .launches = 2, .odd_launch = odd});
    runs += explore<ReduceScatter>({.launches = 2, .odd_launch = odd});
    runs += explore<AllGather>({.launches = 2, .odd_launch = odd});
  }
  WARN(runs << " executions");
}

TEST_CASE("the model detects an order that windows need and that is missing") {
  constexpr Promises no_release{.release = false}, no_acquire{.acquire = false},
      one_less{.ranks_less = 1}, one_place{.places = false};
  const Shape once{.heads = {1}};
  CHECK(defect([&] { explore<AllReduce, Nvls, 1, no_release>(once); }) != "");
  CHECK(defect([&] { explore<AllReduce, Nvls, 1, no_acquire>(once); }) != "");
  CHECK(defect([&] { explore<AllReduce, Nvls, 1, one_less>(once); }) != "");
  CHECK(defect([&] { explore<ReduceScatter, Nvls, 1, no_acquire>(once); }) != "");
  CHECK(defect([&] { explore<AllGather, Nvls, 1, no_release>(once); }) != "");
  // Rank 0 is in the second launch, elsewhere, while rank 1 looks for its place in the first.
  const Shape changed{.heads = {0}, .launches = 2, .odd_launch = 1};
  CHECK(defect([&] { explore<AllReduce, Nvls, 1, one_place>(changed); }) != "");
}

TEST_CASE("the model detects a wait that windows need and that is missing") {
  const Shape twice{.heads = {1}, .launches = 2};
  CHECK(defect([&] { explore<ReduceScatter, SendersDoNotWait>(twice); }) != "");
  CHECK(defect([&] { explore<AllReduce, ReceiversDoNotWait>(twice); }) != "");
  CHECK(defect([&] { explore<AllGather, ReceiversDoNotWait>(twice); }) != "");
  const Shape parts{.heads = {1}, .receives = false, .parts = 3};
  CHECK(defect([&] { explore<AllReduce, PartsDoNotWait>(parts); }) != "");
}
