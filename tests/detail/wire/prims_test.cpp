// The kernel for any alignment, whose steps are told at run time what they do, beside the others.
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>

#include <algorithm>
#include <vector>

#include "support/catch.hpp"
#include "support/thread_lanes.hpp"
#include "support/world.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
template <class Algo, class Proto, class T, int R>
void runs_alike() {
  using Group = detail::ThreadLanes<8>;
  World world{R, 2, 4, 2048};
  const detail::Reduction<Sum, T> sum{Sum{}, R};
  for (const Index count : {1, 7, 121, 4099}) {
    INFO(Algo::name << " " << Proto::name << " count " << count);
    std::vector<std::vector<T>> in(R), out(R, std::vector<T>(count + 2, T(9)));
    std::vector<T> want(count);
    for (int r = 0; r < R; ++r) {
      in[r].resize(count + 1);
      for (Index i = 0; i < count; ++i) {
        in[r][i + 1] = T((i * 7 + r * 13) % 5);
        want[i] = T(want[i] + in[r][i + 1]);
      }
    }
    const auto run = [&]<class Op>(Op, const auto& how, Layout layout, int root) {
      return world.template run<Op, Algo, Proto, Group, detail::any_align>(
          how, 1, Algo::wires == 2 ? 2 : 1, root, [&](int r, auto& w) {
            w.input = in[r].data() + 1, w.output = out[r].data() + r % 2, w.layout = layout;
          });
    };
    const auto check = [&](int r, const T* whole) {
      REQUIRE(std::equal(whole, whole + count, out[r].begin() + r % 2));
      REQUIRE(out[r][count + 1] == T(9));
      REQUIRE(out[r][r % 2 == 0 ? count : 0] == T(9));
    };
    REQUIRE(run(AllReduce{}, sum, {count, 0, 0, Algo::wires == 2}, 0));
    for (int r = 0; r < R; ++r) check(r, want.data());
    const Index bytes = count * Index{sizeof(T)};
    REQUIRE(run(Broadcast{}, detail::Bytes{}, {bytes, 0, 0, false}, 1));
    for (int r = 0; r < R; ++r) check(r, in[1].data() + 1);
    REQUIRE(run(Reduce{}, sum, {count, 0, 0, false}, 1));
    check(1, want.data());
  }
}
}  // namespace

TEST_CASE("steps that are known at run time talk to steps that the compiler knows") {
  runs_alike<Ring, LL, float, 2>();
  runs_alike<Ring, LL128, int16_t, 3>();
  runs_alike<Ring, Simple, float, 3>();
  runs_alike<Ring, Simple, int8_t, 2>();
  runs_alike<Tree, LL, float, 4>();
  runs_alike<Tree, Simple, double, 5>();
}
