#include <ccl/algo/direct.hpp>
#include <ccl/algo/traits.hpp>
#include <ccl/detail/exec/host_executor.hpp>
#include <ccl/detail/peer/direct_body.hpp>
#include <ccl/detail/peer/direct_reduce.hpp>

#include <algorithm>
#include <memory>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "support/affine.hpp"
#include "support/catch.hpp"
#include "support/thread_lanes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
/// Elements that fill no word evenly.
struct Triple {
  int x = 0, y = 0, z = 0;
  friend bool operator==(const Triple&, const Triple&) = default;
  friend Triple operator+(const Triple& a, const Triple& b) {
    return {a.x + b.x, a.y + b.y, a.z + b.z};
  }
};
template <class T>
T element(int rank, Index i) {
  return T(int((i * 7 + rank * 13) % 9));
}
template <>
Affine element<Affine>(int rank, Index i) {
  return affine_of(rank, long(i));
}
template <>
Triple element<Triple>(int rank, Index i) {
  return {int(i), rank, int(i) * rank};
}

/// Buffer whose first element lies `offset` bytes after an aligned address, with a byte to each
/// side that nobody may change.
template <class T>
class Guarded {
 public:
  Guarded(Index count, int offset)
      : offset_{offset}, bytes_{std::size_t(count) * sizeof(T)}, memory_(bytes_ + 512, 0x5a) {}
  T* data() { return reinterpret_cast<T*>(base()); }
  char* base() { return aligned() + offset_; }
  Word aligned_word() { return reinterpret_cast<Word>(aligned()); }
  bool is_whole() { return base()[-1] == 0x5a && base()[bytes_] == 0x5a; }

 private:
  char* aligned() {
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.data()) + 1;
    return memory_.data() + 1 + (256 - at % 256) % 256;
  }
  int offset_;
  std::size_t bytes_;
  std::vector<char> memory_;
};

/// Ranks as threads whose buffers and scratch the others address.
class DirectWorld {
 public:
  static constexpr int max_channels = 6;
  DirectWorld(int ranks, Index half_packets) : ranks_{ranks}, half_packets_{half_packets} {
    for (int r = 0; r < ranks; ++r) {
      scratch_.emplace_back(std::size_t(2 * half_packets) + 8 +
                            detail::PeerView::max_ranks * sizeof(detail::Mailbox) / sizeof(Packet));
      epochs_.emplace_back(max_channels, launches);
      tables_.emplace_back(std::size_t(ranks) * detail::RemoteBuffer::slots, 0);
    }
  }
  static constexpr Word launches = 0xffff'fffe;  // before the first: the numbers' low half wraps

  struct Call {
    Index count;  // of the message, or of a share
    bool in_place;
    int max_rings;
    std::vector<int> offsets, channels;  // of each rank
    unsigned mapped;                     // bit from * ranks + to
    int root = 0;
  };
  /// Runs one launch of every rank, and says if all results are right.
  template <class Op, class Group, class R>
  bool run(const R& reduction, const Call& call) {
    using T = typename R::Type;
    constexpr bool for_root = std::is_same_v<Op, Reduce>;
    constexpr bool for_all = std::is_same_v<Op, AllReduce> || for_root;  // one message
    const Index in_count = for_all ? call.count : call.count * ranks_;
    std::vector<Guarded<T>> in, out;
    for (int r = 0; r < ranks_; ++r) {
      const int offset = 64 + call.offsets[std::size_t(r)];
      in.emplace_back(in_count, offset);
      out.emplace_back(call.count, offset);
    }
    for (int r = 0; r < ranks_; ++r) {
      for (Index i = 0; i < in_count; ++i) in[r].data()[i] = element<T>(r, i);
    }
    ++number_;
    const auto result = [&](int r) {
      return call.in_place ? in[r].data() + (for_all ? 0 : r * call.count) : out[r].data();
    };
    std::vector<std::thread> threads;
    std::vector<char> ok(ranks_, 0);
    for (int r = 0; r < ranks_; ++r) {
      threads.emplace_back([&, r] {
        detail::LaneFailure lane_failure;
        const Word stop = 0;
        detail::DirectWork<R> work{reduction};
        for (int p = 0; p < ranks_; ++p) {
          work.peers.scratch[p] = lines(scratch_[p].data());
          if (p == r || (call.mapped >> (r * ranks_ + p) % 32 & 1) == 0) continue;
          enter(r, p, 2 * number_, in[p].aligned_word());
          enter(r, p, 2 * number_ + 1, (call.in_place ? in[p] : out[p]).aligned_word());
        }
        const Word offset = Word(64 + call.offsets[std::size_t(r)]);
        work.where_input = detail::RemoteBuffer::where(2 * number_, offset);
        const bool receives = for_all && (!for_root || r == call.root);
        if (receives) work.where_output = detail::RemoteBuffer::where(2 * number_ + 1, offset);
        work.peers.half_packets = half_packets_;
        work.peers.rank = r;
        work.peers.ranks = ranks_;
        work.epoch = {epochs_[r].data(), max_channels};
        work.table = tables_[r].data();
        work.max_rings = call.max_rings;
        work.layout = {call.count, for_all ? 0 : call.count, 0, for_all};
        work.input = in[r].data();
        work.root = call.root;
        work.output = for_root && !receives ? nullptr : result(r);
        work.watch = {&stop, &lane_failure, Word{60} * 1'000'000'000};
        using Body = detail::DirectBody<Op, Direct, R>;
        if (!Body::template prepare<Group>(work)) return;
        work.channels = work.blocks = std::min(work.rings, call.channels[std::size_t(r)]);
        detail::HostExecutor::run<Group>(work.channels, Body{work});
        ok[r] = lane_failure.peer == 0;
      });
    }
    for (auto& t : threads) t.join();
    bool right = std::all_of(ok.begin(), ok.end(), [](char o) { return o != 0; });
    for (int r = 0; r < ranks_; ++r) {
      for (Index i = 0; i < call.count; ++i) {
        if (for_root && r != call.root) {  // its buffers stay as they were
          right &= in[r].data()[i] == element<T>(r, i);
          continue;
        }
        const Index at = for_all ? i : r * call.count + i;
        auto sum = reduction.prepare(element<T>(0, at));
        for (int p = 1; p < ranks_; ++p) {
          sum = reduction.combine(sum, reduction.prepare(element<T>(p, at)));
        }
        right &= result(r)[i] == reduction.finish(sum);
      }
      right &= in[r].is_whole() && out[r].is_whole();
    }
    return right;
  }

 private:
  void enter(int rank, int peer, Word id, Word base) {
    const int slot = detail::RemoteBuffer::slot(detail::RemoteBuffer::where(id, 0));
    tables_[rank][std::size_t(peer * detail::RemoteBuffer::slots + slot)] =
        detail::RemoteBuffer::entry(id, base);
  }
  static Packet* lines(Packet* p) {
    return p + (128 - reinterpret_cast<std::uintptr_t>(p) % 128) % 128 / sizeof(Packet);
  }
  int ranks_;
  Index half_packets_;
  Word number_ = 0;
  std::vector<std::vector<Packet>> scratch_;
  std::vector<std::vector<Word>> epochs_, tables_;
};

template <class G, class E, class F, int R>
struct Case {
  using Group = G;
  using T = E;
  using Op = F;
  static constexpr int ranks = R;
};
using Cases =
    std::tuple<Case<detail::SoloLane, float, Sum, 2>, Case<detail::SoloLane, int8_t, Sum, 5>,
               Case<detail::SoloLane, Affine, Then, 3>, Case<detail::SoloLane, Triple, Sum, 8>,
               Case<detail::SoloLane, float16, Avg, 4>,
               Case<detail::ThreadLanes<8>, int16_t, Max, 3>>;
}  // namespace

TEMPLATE_LIST_TEST_CASE("direct: reductions of peers' buffers that are mapped, or not, or some", "",
                        Cases) {
  using T = typename TestType::T;
  using Group = typename TestType::Group;
  constexpr int R = TestType::ranks;
  constexpr bool solo = Group::width == 1;
  const detail::Reduction<typename TestType::Op, T> reduction{{}, R};
  // Slots of few lines: messages of many rounds.
  constexpr int rings = 4;
  const Index slot = Index{sizeof(T)} * 128 * 2;
  DirectWorld world{R,
                    slot * R * rings * 2 * detail::Rings::slot_count / Index{sizeof(Packet)} / 2};
  std::mt19937 random{7};
  for (int turn = 0; turn < (solo ? 60 : 16); ++turn) {
    DirectWorld::Call call;
    call.count =
        turn % 4 == 0 ? 1 + Index(random() % 8) : 1 + Index(random() % (solo ? 20'000 : 4000));
    call.in_place = random() % 2 == 0;
    call.max_rings = 1 + int(random() % rings);
    // Mapped: all, none, or those of a pattern.
    call.mapped = turn % 3 == 0 ? ~0u : turn % 3 == 1 ? 0 : unsigned(random());
    for (int r = 0; r < R; ++r) {
      call.offsets.push_back(turn % 2 == 0 ? 0 : int(random() % 4) * int(alignof(T)));
      call.channels.push_back(1 + int(random() % (solo ? 4 : 2)));
    }
    INFO("turn " << turn << ", count " << call.count << ", mapped " << call.mapped);
    REQUIRE(world.run<AllReduce, Group>(reduction, call));
    REQUIRE(world.run<ReduceScatter, Group>(reduction, call));
    call.root = turn % R;
    REQUIRE(world.run<Reduce, Group>(reduction, call));
  }
}

TEST_CASE("direct: a reduction says if the scratch has no slot for each ring") {
  const detail::Reduction<Sum, float> sum{Sum{}, 2};
  detail::DirectWork<detail::Reduction<Sum, float>> work{sum};
  work.peers.ranks = 2;
  work.layout = {1000, 0, 0, true};
  work.max_rings = 32;
  using Body = detail::DirectBody<AllReduce, Direct, detail::Reduction<Sum, float>>;
  const Index least = 128 * 2 * 32 * 2 * detail::Rings::slot_count / Index{sizeof(Packet)} / 2;
  work.peers.half_packets = least;
  CHECK(Body::prepare<detail::SoloLane>(work));
  work.peers.half_packets = least - 1;
  CHECK(!Body::prepare<detail::SoloLane>(work));
  // Then half as many rings have slots.
  using Shares = detail::DirectShares<AllReduce, float>;
  CHECK(Shares::max_rings(work.peers, 32) == 16);
  CHECK(Shares::max_rings(work.peers, 1000) == 16);
  work.peers.half_packets = 1;
  CHECK(Shares::max_rings(work.peers, 32) == 0);
}

TEST_CASE("direct: a scalar that scales each rank's data is not for readers") {
  STATIC_REQUIRE(!detail::runs_reduction<Direct, Simple, PreMulSum, float>());
  STATIC_REQUIRE(detail::runs_reduction<Direct, Simple, Avg, float>());
}
