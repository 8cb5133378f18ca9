// Rows through OneShot and TwoShot on CPU lanes: the input of epilogues and prologues.
#include <ccl/epilogue/add_rms_norm.hpp>
#include <ccl/epilogue/plain_rows.hpp>
#include <ccl/epilogue/store_rows.hpp>

#include <cmath>

#include "support/catch.hpp"
#include "support/peer_world.hpp"
#include "support/thread_lanes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
float round_to(bfloat16, float x) {
  return Element<bfloat16>::widen(Element<bfloat16>::narrow(x));
}
float round_to(float, float x) {
  return x;
}
float widen(bfloat16 x) {
  return Element<bfloat16>::widen(x);
}
float widen(float x) {
  return x;
}
template <class T>
T narrow(float x) {
  return Element<T>::narrow(x);
}

/// Matrix in the layout for GPUs: rows aligned to 16 bytes.
template <class T>
struct Matrix {
  explicit Matrix(Index count) : base(std::size_t(count) + 32 / sizeof(T)), data{base.data()} {
    while (reinterpret_cast<std::uintptr_t>(data) % 16 != 0) ++data;
  }
  Matrix(Matrix&&) = default;  // `data` stays where it is
  std::vector<T> base;
  T* data;
};
template <class T>
std::vector<Matrix<T>> matrices(int n, Index count) {
  std::vector<Matrix<T>> all;
  for (int i = 0; i < n; ++i) all.emplace_back(count);
  return all;
}

/// A prologue of a user: twice the value, and something of its place.
template <class T>
struct Doubled : AsIs<T> {
  float operator()(float value, Index row, int column) const {
    return 2 * value + float(row % 3) + float(column % 2);
  }
};

/// Values that need rounding when they are added up.
float value(int rank, Index row, int column, int turn) {
  const int n = int((row * 31 + column * 7 + rank * 13 + turn * 5) % 97) - 48;
  return float(n) * 0.171875f;
}

/// `K`: number of ranks for which the kernel is compiled.
template <class T, class Algo, class Proto, class Group, int R, int K = R, class P>
void run(const P& prologue) {
  constexpr int tiles = 24;
  using Body = detail::RowBody<AllReduceRows, Algo, Proto, P, AddRmsNorm<T>, K, tiles>;
  using Prims = typename Body::template Prims<Group>;
  PeerWorld<R, K> world{Prims::row_packets(264, R) * 7};
  int turn = 0;
  for (const int length : {8, 40, 264}) {
    if (Prims::tiles_of(length) > tiles) continue;
    for (const int rows : {1, 2, 7}) {
      const int channels = 1 + turn++ % 3;
      INFO(Algo::name << " rows " << rows << " length " << length << " channels " << channels);
      const Index count = Index{rows} * length;
      auto in = matrices<T>(R, count), res = matrices<T>(R, count), out = matrices<T>(R, count + 8);
      Matrix<T> weight{length};
      std::vector<float> want(count), sums(count), weights(length);
      for (int i = 0; i < length; ++i) {
        weight.data[i] = narrow<T>(0.5f + float(i % 5) * 0.25f);
        weights[i] = widen(weight.data[i]);
      }
      for (int row = 0; row < rows; ++row) {
        float squares = 0;
        for (int i = 0; i < length; ++i) {
          const Index at = Index{row} * length + i;
          float sum = 0;
          for (int r = 0; r < R; ++r) {
            in[r].data[at] = narrow<T>(value(r, row, i, turn));
            float own = widen(in[r].data[at]);
            if constexpr (detail::MapsValues<P>) own = round_to(T{}, prologue(own, row, i));
            sum = r == 0 ? own : sum + own;
            res[r].data[at] = narrow<T>(value(9, row, i, turn));
          }
          sums[at] = round_to(T{}, round_to(T{}, sum) + widen(res[0].data[at]));
          squares += sums[at] * sums[at];
        }
        const float scale = 1 / std::sqrt(squares / float(length) + 1e-5f);
        for (int i = 0; i < length; ++i) {
          want[Index{row} * length + i] = sums[Index{row} * length + i] * scale * weights[i];
        }
      }
      for (int r = 0; r < R; ++r) out[r].data[count] = narrow<T>(77);
      REQUIRE(world.template run_rows<Algo, Proto, Group, tiles>(
          prologue,
          [&](int r) {
            return AddRmsNorm<T>{res[r].data, res[r].data, out[r].data, weight.data, 1e-5f};
          },
          channels,
          [&](int r, auto& w) { w.input = in[r].data, w.rows = rows, w.length = length; }));
      for (int r = 0; r < R; ++r) {
        long wrong = 0;
        for (Index i = 0; i < count; ++i) {
          wrong += widen(res[r].data[i]) != sums[i];
          // The squares may be added up in another order; then a result may round the other way.
          const float last = std::abs(want[i]) * (sizeof(T) == 2 ? 0x1p-7f : 0x1p-20f) + 1e-30f;
          wrong += !(std::abs(widen(out[r].data[i]) - want[i]) <= last);
          wrong += widen(out[r].data[i]) != widen(out[0].data[i]);
        }
        REQUIRE(wrong == 0);
        REQUIRE(widen(out[r].data[count]) == 77);
      }
      // A call in place that stores only the sum.
      for (int r = 0; r < R; ++r) {
        for (Index i = 0; i < count; ++i) in[r].data[i] = narrow<T>(float(r + 1));
      }
      REQUIRE(world.template run_rows<Algo, Proto, Group, tiles>(
          AsIs<T>{}, [&](int r) { return StoreRows<T>{in[r].data}; }, channels,
          [&](int r, auto& w) { w.input = in[r].data, w.rows = rows, w.length = length; }));
      for (int r = 0; r < R; ++r) {
        long wrong = 0;
        for (Index i = 0; i < count; ++i) wrong += widen(in[r].data[i]) != float(R * (R + 1) / 2);
        REQUIRE(wrong == 0);
      }
    }
  }
}
}  // namespace

TEST_CASE("rows reduced, added to the residual and normalized on CPU lanes") {
  run<bfloat16, OneShot, LL128, detail::SoloLane, 4>(AsIs<bfloat16>{});
  run<bfloat16, TwoShot, LL128, detail::SoloLane, 3>(AsIs<bfloat16>{});
  run<bfloat16, TwoShot, LL128, detail::ThreadLanes<8>, 2>(Doubled<bfloat16>{});
  run<float, OneShot, LL, detail::ThreadLanes<4>, 2>(Doubled<float>{});
  run<float, TwoShot, LL, detail::SoloLane, 8>(AsIs<float>{});
}

TEST_CASE("rows: a kernel runs fewer ranks than those for which it is compiled") {
  run<bfloat16, OneShot, LL128, detail::SoloLane, 3, 4>(AsIs<bfloat16>{});
  run<bfloat16, TwoShot, LL128, detail::SoloLane, 5, 8>(AsIs<bfloat16>{});
  run<float, TwoShot, LL, detail::ThreadLanes<4>, 6, 8>(Doubled<float>{});
  run<float, OneShot, LL, detail::SoloLane, 7, 8>(AsIs<float>{});
}
