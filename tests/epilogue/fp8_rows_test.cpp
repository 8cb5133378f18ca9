// Rows that are sent as fp8: every element is within the bound that the header states.
#include <ccl/epilogue/fp8_rows.hpp>
#include <ccl/epilogue/store_rows.hpp>

#include <cmath>
#include <cstring>

#include "support/catch.hpp"
#include "support/peer_world.hpp"
#include "support/thread_lanes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
/// Returns values of a wide range, with a row of zeros.
float value(int rank, int row, int column) {
  if (row == 1) return 0;
  const int n = (row * 37 + column * 11 + rank * 29) % 101 - 50;
  return std::ldexp(float(n), (column * 5 + rank) % 23 - 11);
}
/// Returns the largest error of one quantization of `v` in a block with maximum magnitude `most`.
double bound(double v, double most) {
  return std::max(std::abs(v) / 16, most / 458752) * (1 + 1e-5);
}

template <class Algo, class Group, int R>
void run() {
  constexpr int tiles = 4, length = 272;
  using P = QuantizeFp8<float>;
  using Body = detail::RowBody<AllReduceRows, Algo, LL128, P, StoreRows<float>, R, tiles>;
  using Prims = typename Body::template Prims<Group>;
  constexpr int block = Prims::tile_elements;
  constexpr int rows = 5;
  PeerWorld<R> world{Prims::row_packets(length) * rows};
  std::vector<std::vector<float>> in(R, std::vector<float>(rows * length)), out = in;
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < rows * length; ++i) in[r][i] = value(r, i / length, i % length);
  }
  for (int turn = 0; turn < 2; ++turn) {
    REQUIRE(world.template run_rows<Algo, LL128, Group, tiles>(
        P{}, [&](int r) { return StoreRows<float>{out[r].data()}; }, 1 + turn,
        [&](int r, auto& w) { w.input = in[r].data(), w.rows = rows, w.length = length; }));
    double worst = 0;
    for (int row = 0; row < rows; ++row) {
      for (int begin = 0; begin < length; begin += block) {
        const int end = std::min(length, begin + block);
        const auto at = [&](int i) { return row * length + i; };
        double most[R] = {}, max_sum = 0;
        std::vector<double> sums(length), slack(length);
        for (int i = begin; i < end; ++i) {
          for (int r = 0; r < R; ++r) most[r] = std::max(most[r], std::abs(double(in[r][at(i)])));
        }
        for (int i = begin; i < end; ++i) {
          for (int r = 0; r < R; ++r) {
            sums[i] += in[r][at(i)];
            slack[i] += bound(in[r][at(i)], most[r]);
          }
          max_sum = std::max(max_sum, std::abs(sums[i]) + slack[i]);
        }
        for (int i = begin; i < end; ++i) {
          double may = slack[i];
          if (Algo::splits) may += bound(std::abs(sums[i]) + slack[i], max_sum);
          const double error = std::abs(out[0][at(i)] - sums[i]);
          if (may > 0) worst = std::max(worst, error / may);
          REQUIRE(error <= may);
        }
      }
    }
    REQUIRE(worst > 0.05);  // otherwise nothing was quantized
    for (int r = 1; r < R; ++r) {
      REQUIRE(std::memcmp(out[r].data(), out[0].data(), out[0].size() * sizeof(float)) == 0);
    }
  }
}
}  // namespace

TEST_CASE("rows that travel as fp8") {
  run<OneShot, detail::SoloLane, 4>();
  run<TwoShot, detail::SoloLane, 3>();
  run<OneShot, detail::ThreadLanes<8>, 2>();
  run<TwoShot, detail::ThreadLanes<8>, 2>();
}
