// Multicast algorithms over emulated multicast memory, on CPU lanes.
#include <ccl/algo/nvls.hpp>

#include <cstdint>

#include "support/catch.hpp"
#include "support/multicast_world.hpp"
#include "support/thread_lanes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
constexpr Index room = 8192;  // packets
template <class T>
using Buffers = std::vector<std::vector<T>>;

/// Returns the input of every rank, small enough that sums are exact in all types.
template <class T>
Buffers<T> inputs(int ranks, Index count) {
  Buffers<T> in{size_t(ranks)};
  for (int r = 0; r < ranks; ++r) {
    for (Index i = 0; i < count; ++i) {
      in[size_t(r)].push_back(Element<T>::narrow(accumulate_t<T>((i * 7 + r * 3) % 5 * 2)));
    }
  }
  return in;
}
template <class T, class F>
std::vector<T> reduced(const Buffers<T>& in, const F& op) {
  const detail::Reduction<F, T> how{op, int(in.size())};
  std::vector<T> want;
  for (size_t i = 0; i < in[0].size(); ++i) {
    auto sum = how.prepare(in[0][i]);
    for (size_t r = 1; r < in.size(); ++r) sum = how.combine(sum, how.prepare(in[r][i]));
    want.push_back(how.finish(sum));
  }
  return want;
}
template <class T>
bool same(const T* a, const T* b, Index count) {
  return std::memcmp(a, b, size_t(count) * sizeof(T)) == 0;
}

template <class F, class T, class Group>
void reduces(int ranks, const F& op) {
  MulticastWorld world{ranks, room};
  const detail::Reduction<F, T> how{op, ranks};
  int turn = 0;
  for (const Index count : {1, 7, 130, 1100}) {
    const int channels = 1 + turn++ % 3;
    INFO(F::name << ", " << sizeof(T) << " bytes, " << ranks << " ranks, count " << count);
    const T guard = Element<T>::narrow(9);
    Buffers<T> in = inputs<T>(ranks, count);
    Buffers<T> out(size_t(ranks), std::vector<T>(size_t(count) + 1, guard));
    const std::vector<T> want = reduced(in, op);
    const auto sums = [&](int r, auto& work) {
      work.input = in[r].data(), work.output = out[r].data(), work.layout = {count, 0, 0, true};
    };
    REQUIRE(world.run<AllReduce, Group>(how, channels, sums));
    for (const auto& o : out) {
      REQUIRE(same(o.data(), want.data(), count));
      REQUIRE(same(&o[count], &guard, 1));
    }
    const int root = turn % ranks;
    out.assign(size_t(ranks), std::vector<T>(size_t(count) + 1, guard));
    MulticastWorld rooted{ranks, room};
    for (int again = 0; again < 3; ++again) {  // no rank waits for the others but the root
      REQUIRE(rooted.run<Reduce, Group>(how, channels, [&](int r, auto& work) {
        work.input = in[r].data(), work.output = out[r].data(), work.layout = {count, 0, 0, false};
        work.root = root;
      }));
    }
    for (int r = 0; r < ranks; ++r) {
      REQUIRE(same(out[r].data(), r == root ? want.data() : std::vector<T>(count, guard).data(),
                   count));
      REQUIRE(same(&out[r][count], &guard, 1));
    }
    // In place.
    REQUIRE(world.run<AllReduce, Group>(how, channels, [&](int r, auto& work) {
      work.input = work.output = in[r].data(), work.layout = {count, 0, 0, true};
    }));
    for (const auto& i : in) REQUIRE(same(i.data(), want.data(), count));

    const Buffers<T> whole = inputs<T>(ranks, count * ranks);
    const std::vector<T> all = reduced(whole, op);
    MulticastWorld scatter{ranks, room};
    REQUIRE(scatter.run<ReduceScatter, Group>(how, channels, [&](int r, auto& work) {
      work.input = whole[r].data(), work.output = out[r].data();
      work.layout = {count, count, 0, false};
    }));
    for (int r = 0; r < ranks; ++r) {
      REQUIRE(same(out[r].data(), all.data() + r * count, count));
      REQUIRE(same(&out[r][count], &guard, 1));
    }
  }
}
template <class Group>
void moves(int ranks) {
  MulticastWorld gather{ranks, room}, broadcast{ranks, room};
  for (const Index count : {1, 33, 500, 4099}) {
    INFO(ranks << " ranks, " << count << " bytes");
    const auto in = [&] {
      Buffers<char> bytes{size_t(ranks)};
      for (int r = 0; r < ranks; ++r) {
        for (Index i = 0; i < count; ++i) bytes[r].push_back(char(i * 5 + r));
      }
      return bytes;
    }();
    Buffers<char> out(size_t(ranks), std::vector<char>(size_t(count * ranks) + 1, 9));
    REQUIRE(gather.run<AllGather, Group>(detail::Bytes{}, 3, [&](int r, auto& work) {
      work.input = in[r].data(), work.output = out[r].data();
      work.layout = {count, 0, count, false};
    }));
    for (const auto& o : out) {
      for (int r = 0; r < ranks; ++r) REQUIRE(same(o.data() + r * count, in[r].data(), count));
      REQUIRE(o.back() == 9);
    }
    for (int root = 0; root < ranks; ++root) {
      out.assign(size_t(ranks), std::vector<char>(size_t(count) + 1, 9));
      REQUIRE(broadcast.run<Broadcast, Group>(detail::Bytes{}, 1 + root % 3, [&](int r, auto& w) {
        w.input = in[r].data(), w.output = out[r].data(), w.layout = {count, 0, 0, false};
        w.root = root;
      }));
      for (const auto& o : out) {
        REQUIRE(same(o.data(), in[root].data(), count));
        REQUIRE(o.back() == 9);
      }
    }
  }
}
}  // namespace

TEST_CASE("reductions of switches by multicast, emulated") {
  reduces<Sum, float, detail::SoloLane>(2, {});
  reduces<Sum, double, detail::SoloLane>(5, {});
  reduces<Sum, float16, detail::SoloLane>(3, {});
  reduces<Sum, bfloat16, detail::ThreadLanes<8>>(3, {});
  reduces<Sum, std::int32_t, detail::ThreadLanes<8>>(2, {});
  reduces<Sum, std::int64_t, detail::SoloLane>(8, {});
  reduces<Min, std::int32_t, detail::SoloLane>(4, {});
  reduces<Max, std::uint64_t, detail::SoloLane>(3, {});
  reduces<Min, bfloat16, detail::SoloLane>(4, {});
  reduces<Max, float16, detail::SoloLane>(2, {});
  reduces<Avg, float, detail::SoloLane>(4, {});
  reduces<Avg, float16, detail::SoloLane>(4, {});
  reduces<Avg, std::int32_t, detail::SoloLane>(3, {});
  reduces<PreMulSum, float, detail::SoloLane>(3, PreMulSum{0.5});
}

TEST_CASE("all-gather and broadcast by multicast, emulated") {
  moves<detail::SoloLane>(2);
  moves<detail::SoloLane>(5);
  moves<detail::ThreadLanes<8>>(3);
}

TEST_CASE("each rank's value is in each sum once, for 2 to 17 ranks") {
  // Three bits for each rank: a value that is missing, or there twice, has another sum.
  constexpr Index count = 200;
  using Number = std::uint64_t;
  for (int ranks = 2; ranks <= 17; ++ranks) {
    INFO(ranks << " ranks");
    Buffers<Number> in(ranks), out(ranks, std::vector<Number>(count));
    Number all = 0;
    for (int r = 0; r < ranks; ++r) {
      in[r].assign(size_t(count * ranks), Number{1} << (3 * r));
      all += Number{1} << (3 * r);
    }
    const detail::Reduction<Sum, Number> sum{{}, ranks};
    MulticastWorld reduce{ranks, room}, scatter{ranks, room};
    reduce.set_heads(ranks == 2 ? std::vector<int>{1} : std::vector<int>{0, ranks / 2, ranks - 1});
    if (ranks > 12) {
      std::vector<int> every;
      for (int r = 0; r < ranks; ++r) every.push_back(r);
      reduce.set_heads(every);
    }
    REQUIRE(reduce.run<AllReduce, detail::SoloLane>(sum, 2, [&](int r, auto& work) {
      work.input = in[r].data(), work.output = out[r].data(), work.layout = {count, 0, 0, true};
    }));
    for (auto& o : out) REQUIRE(o == std::vector<Number>(count, all));
    out.assign(size_t(ranks), std::vector<Number>(count));
    REQUIRE(scatter.run<ReduceScatter, detail::SoloLane>(sum, 1, [&](int r, auto& work) {
      work.input = in[r].data(), work.output = out[r].data();
      work.layout = {count, count, 0, false};
    }));
    for (auto& o : out) REQUIRE(o == std::vector<Number>(count, all));
  }
}
