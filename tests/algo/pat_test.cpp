#include <ccl/algo/pat.hpp>

#include <algorithm>

#include "every_protocol.hpp"

using namespace ccl;
using namespace ccl::test;

TEMPLATE_LIST_TEST_CASE("pat: all-gather and reduce-scatter at every rank count", "",
                        EveryProtocol) {
  using Proto = typename TestType::Proto;
  using Group = typename TestType::Group;
  for (int ranks = 2; ranks <= TestType::most_ranks; ++ranks) {
    World world{ranks, 2, 4, 512};
    std::rotate(world.order().begin(), world.order().begin() + 1, world.order().end());
    for (const Index count : {0, 1, 63, 2501}) {
      for (const int steps : {1, 2}) {
        const bool in_place = (count + steps) % 2 == 0;
        check_reduce_scatter<Pat, Proto, Group>(world, count, steps, in_place);
        INFO(Proto::name << " ranks " << ranks << " count " << count << " in place " << in_place);
        std::vector<std::vector<int>> in(ranks, std::vector<int>(count)),
            out(ranks, std::vector<int>(ranks * count));
        std::vector<int> gathered;
        for (int r = 0; r < ranks; ++r) {
          for (Index i = 0; i < count; ++i) in[r][i] = int(i * 3 + r * 1000);
          gathered.insert(gathered.end(), in[r].begin(), in[r].end());
          if (in_place) std::copy(in[r].begin(), in[r].end(), out[r].begin() + r * count);
        }
        const Index bytes = count * Index{sizeof(int)};
        REQUIRE(world.run<AllGather, Pat, Proto, Group>(Bytes{}, 1, steps, 0, [&](int r, auto& w) {
          w.input = in_place ? out[r].data() + r * count : in[r].data();
          w.output = out[r].data();
          w.layout = {bytes, 0, bytes, false};
        }));
        for (int r = 0; r < ranks; ++r) REQUIRE(out[r] == gathered);
      }
    }
  }
}

TEMPLATE_LIST_TEST_CASE("pat: broadcast and reduce at every rank count", "", EveryProtocol) {
  using Proto = typename TestType::Proto;
  using Group = typename TestType::Group;
  for (int ranks = 2; ranks <= TestType::most_ranks; ++ranks) {
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
