#include <ccl/algo/tree.hpp>
#include <ccl/detail/wire/context.hpp>
#include <ccl/element/reduce_op.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>

#include <tuple>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

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

/// It does not fill its cells, and cannot be made of nothing.
struct Triple {
  explicit Triple(int a) : x{a, -a, 2 * a} {}
  int x[3];
};
struct AddTriples {
  Triple operator()(const Triple& a, const Triple& b) const { return Triple{a.x[0] + b.x[0]}; }
};
}  // namespace

TEMPLATE_LIST_TEST_CASE("a rank that only sends cuts a message as its receivers do", "",
                        Protocols) {
  const int ranks = 3;
  const Index count = 5000;  // many chunks
  World world{ranks, 2, 4, 512};
  std::vector<std::vector<float>> data(ranks, std::vector<float>(std::size_t(count)));
  for (Index i = 0; i < count; ++i) data[0][std::size_t(i)] = float(i);
  REQUIRE(world.run<Broadcast, Star, TestType, detail::SoloLane>(
      detail::Reduction<Sum, float>{Sum{}, ranks}, 1, 2, 0, [&](int r, auto& work) {
        for (int w = 0; w < work.channels * ranks; ++w) {
          const_cast<Wire*>(r == 0 ? work.in : work.out)[w] = {};
        }
        work.layout = {count, 0, 0, true};
        work.input = work.output = data[std::size_t(r)].data();
      }));
  for (const auto& of_rank : data) CHECK(of_rank == data[0]);
}

TEMPLATE_TEST_CASE("elements that cannot be made of nothing are reduced by every protocol", "",
                   Simple, LL, LL128) {
  const int ranks = 3;
  const Index count = 101;
  World world{ranks, 1, 4, 512};
  std::vector<std::vector<Triple>> data;
  for (int r = 0; r < ranks; ++r) data.emplace_back(std::size_t(count), Triple{1 << r});
  REQUIRE(world.run<AllReduce, Tree, TestType, detail::SoloLane>(
      detail::Reduction<AddTriples, Triple>{AddTriples{}, ranks}, 1, 2, 0, [&](int r, auto& work) {
        work.input = work.output = reinterpret_cast<char*>(data[std::size_t(r)].data());
        work.layout = {count, 0, 0, true};
      }));
  for (const auto& of_rank : data) {
    for (const Triple& t : of_rank) REQUIRE((t.x[0] == 7 && t.x[1] == -7 && t.x[2] == 14));
  }
}
