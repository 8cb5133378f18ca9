#include <ccl/algo/pat.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>

#include <algorithm>
#include <tuple>

#include "catch.hpp"
#include "world.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
template <class P, class G>
struct Case {
  using Proto = P;
  using Group = G;
};
using Cases = std::tuple<Case<LL, SoloLane>, Case<LL128, SoloLane>, Case<Simple, SoloLane>,
                         Case<LL128, ThreadLanes<8>>>;
}  // namespace

TEMPLATE_LIST_TEST_CASE("pat: all-gather and reduce-scatter at every rank count", "", Cases) {
  using Proto = typename TestType::Proto;
  using Group = typename TestType::Group;
  const int most = Group::width == 1 ? 9 : 3;
  for (int ranks = 2; ranks <= most; ++ranks) {
    World world{ranks, 2, 4, 512};
    std::rotate(world.order().begin(), world.order().begin() + 1, world.order().end());
    const Reduction<Sum, int> sum{Sum{}, ranks};
    for (const Index count : {0, 1, 63, 2501}) {
      for (const int chunk_steps : {1, 2}) {
        const bool in_place = (count + chunk_steps) % 2 == 0;
        INFO(Proto::name << " ranks " << ranks << " count " << count << " in place " << in_place);
        std::vector<std::vector<int>> in(ranks, std::vector<int>(ranks * count)), out = in;
        std::vector<int> gathered(ranks * count), sums(ranks * count);
        for (int r = 0; r < ranks; ++r) {
          for (Index i = 0; i < ranks * count; ++i) {
            sums[i] += in[r][i] = int(i * 3 + r * 1000);
            if (i < count) gathered[r * count + i] = in[r][i];
          }
        }
        REQUIRE(world.run<ReduceScatter, Pat, Proto, Group>(
            sum, 1, chunk_steps, 0, [&](int r, auto& w) {
              w.input = in[r].data();
              w.output = in_place ? in[r].data() + r * count : out[r].data();
              w.layout = {count, count, 0, false};
            }));
        for (int r = 0; r < ranks; ++r) {
          const int* const got = in_place ? in[r].data() + r * count : out[r].data();
          REQUIRE(std::equal(got, got + count, sums.begin() + r * count));
          for (Index i = 0; i < count; ++i) in[r][i] = int(i * 3 + r * 1000);
          if (in_place) std::copy_n(in[r].begin(), count, out[r].begin() + r * count);
        }
        const Index bytes = count * Index{sizeof(int)};
        REQUIRE(world.run<AllGather, Pat, Proto, Group>(
            Bytes{}, 1, chunk_steps, 0, [&](int r, auto& w) {
              w.input = in_place ? out[r].data() + r * count : in[r].data();
              w.output = out[r].data();
              w.layout = {bytes, 0, bytes, false};
            }));
        for (int r = 0; r < ranks; ++r) REQUIRE(out[r] == gathered);
      }
    }
  }
}

TEMPLATE_LIST_TEST_CASE("pat: broadcast and reduce at every rank count", "", Cases) {
  using Proto = typename TestType::Proto;
  using Group = typename TestType::Group;
  const int most = Group::width == 1 ? 9 : 3;
  for (int ranks = 2; ranks <= most; ++ranks) {
    World world{ranks, 2, 8, 512};
    std::rotate(world.order().begin(), world.order().begin() + 1, world.order().end());
    const Reduction<Sum, int> sum{Sum{}, ranks};
    for (const Index count : {0, 1, 63, 5001}) {
      INFO(Proto::name << " ranks " << ranks << " count " << count);
      std::vector<std::vector<int>> in(ranks, std::vector<int>(count)), out = in;
      std::vector<int> want(count);
      for (int r = 0; r < ranks; ++r) {
        for (Index i = 0; i < count; ++i) want[i] += in[r][i] = int(i * 3 + r * 1000);
      }
      const auto buffers = [&](int r, auto& w) {
        w.input = in[r].data();
        w.output = out[r].data();
        w.layout = {count, 0, 0, false};
      };
      for (const int root : {0, ranks - 1, int(count) % ranks}) {
        for (auto& o : out) o.assign(count, -1);
        REQUIRE(world.run<Reduce, Pat, Proto, Group>(sum, 1, 1, root, buffers));
        for (int r = 0; r < ranks; ++r) {
          REQUIRE(out[r] == (r == root ? want : std::vector<int>(count, -1)));
        }
        REQUIRE(world.run<Broadcast, Pat, Proto, Group>(Bytes{}, 1, 1, root, [&](int r, auto& w) {
          buffers(r, w);
          w.layout.count *= 4;
        }));
        for (int r = 0; r < ranks; ++r) REQUIRE(out[r] == in[root]);
      }
    }
  }
}

TEST_CASE("pat: the bits of a sum that rounds depend on nothing but the ranks") {
  for (int ranks = 3; ranks <= 8; ++ranks) {
    World narrow{ranks, 1, 2, 128}, wide{ranks, 2, 8, 4096};
    const Reduction<Sum, float> sum{Sum{}, ranks};
    const Index count = 700;
    std::vector<std::vector<float>> in(ranks), a(ranks, std::vector<float>(count)), b = a;
    for (int r = 0; r < ranks; ++r) {
      for (Index i = 0; i < ranks * count; ++i)
        in[r].push_back(1.f / float(1 + i * 7 + r * r * 31));
    }
    for (auto* world : {&narrow, &wide}) {
      REQUIRE(world->run<ReduceScatter, Pat, Simple, SoloLane>(sum, 1, 1, 0, [&](int r, auto& w) {
        w.input = in[r].data();
        w.output = (world == &narrow ? a : b)[r].data();
        w.layout = {count, count, 0, false};
      }));
    }
    REQUIRE(a == b);
  }
}
