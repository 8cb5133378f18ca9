#include <ccl/algo/bruck.hpp>

#include "every_protocol.hpp"

using namespace ccl;
using namespace ccl::test;

TEMPLATE_LIST_TEST_CASE("bruck: all-gather at every rank count", "", EveryProtocol) {
  using Proto = typename TestType::Proto;
  using Group = typename TestType::Group;
  for (int ranks = 2; ranks <= TestType::most_ranks; ++ranks) {
    World world{ranks, 2, 2, 512};  // a wire holds less than the shares of a round
    for (const Index count : {0, 1, 63, 5001}) {
      for (const bool in_place : {false, true}) {
        INFO(Proto::name << " ranks " << ranks << " count " << count << " in place " << in_place);
        std::vector<std::vector<char>> in(ranks, std::vector<char>(count)),
            out(ranks, std::vector<char>(ranks * count, 'x'));
        std::vector<char> want(ranks * count);
        for (int r = 0; r < ranks; ++r) {
          for (Index i = 0; i < count; ++i) {
            want[r * count + i] = in[r][i] = char(i * 3 + r * 50);
            if (in_place) out[r][r * count + i] = in[r][i];
          }
        }
        REQUIRE(world.run<AllGather, Bruck, Proto, Group>(Bytes{}, 1, 1, 0, [&](int r, auto& w) {
          w.input = in_place ? out[r].data() + r * count : in[r].data();
          w.output = out[r].data();
          w.layout = {count, 0, count, false};
        }));
        for (int r = 0; r < ranks; ++r) REQUIRE(out[r] == want);
      }
    }
  }
}
