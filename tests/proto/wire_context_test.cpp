#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/proto/wire_context.hpp>
#include <ccl/reduce_op.hpp>

#include <tuple>
#include <vector>

#include "catch.hpp"
#include "world.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
/// A broadcast whose root has wires out alone, and the others wires in.
struct Star {
  static constexpr int wires = 4;
  template <class Context>
  CCL_HD static constexpr void run(Broadcast, Context& context) {
    const bool is_root = context.rank() == context.root();
    for (int p = 0; p < context.ranks(); ++p) {
      if (p == context.root() || (!is_root && p != context.rank())) continue;
      auto prims =
          context.template prims<1, 1>({is_root ? -1 : context.root()}, {is_root ? p : -1});
      for (auto chunks = context.chunks(1); chunks.next();) {
        if (is_root) {
          prims.send(chunks.all());
        } else {
          prims.recv(chunks.all());
        }
      }
    }
  }
};
using Protocols = std::tuple<Simple, LL128>;
}  // namespace

TEMPLATE_LIST_TEST_CASE("a rank that only sends cuts a message as its receivers do", "",
                        Protocols) {
  const int ranks = 3;
  const Index count = 5000;  // many chunks
  World world{ranks, 2, 4, 512};
  std::vector<std::vector<float>> data(ranks, std::vector<float>(std::size_t(count)));
  for (Index i = 0; i < count; ++i) data[0][std::size_t(i)] = float(i);
  REQUIRE(world.run<Broadcast, Star, TestType, SoloLane>(
      Reduction<Sum, float>{Sum{}, ranks}, 1, 2, 0, [&](int r, auto& work) {
        for (int w = 0; w < work.channels * ranks; ++w) {
          const_cast<Wire*>(r == 0 ? work.in : work.out)[w] = {};
        }
        work.layout = {count, 0, 0, true};
        work.input = work.output = data[std::size_t(r)].data();
      }));
  for (const auto& of_rank : data) CHECK(of_rank == data[0]);
}
