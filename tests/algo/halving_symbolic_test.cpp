// Proves Halving at compile time for 2 to 17 ranks: complete, nothing counted twice, no deadlock.
// More ranks at run time.
#include <ccl/algo/halving.hpp>

#include <set>
#include <vector>

#include "algo/symbolic.hpp"
#include "catch.hpp"

using namespace ccl;
using namespace ccl::test;

template <int Ranks>
constexpr bool proved =
    plays<ReduceScatter, Halving>(Ranks, 2) && plays<ReduceScatter, Halving>(Ranks, 8);
static_assert(proved<2> && proved<3> && proved<4> && proved<5> && proved<6>);
static_assert(proved<7> && proved<8> && proved<9> && proved<10> && proved<11>);
static_assert(proved<12> && proved<13> && proved<14>);
static_assert(proved<15> && proved<16> && proved<17>);

// A rank that receives and sends in one step needs a second slot.
static_assert(!plays<ReduceScatter, Halving>(6, 1));

TEST_CASE("halving: plays to the end at more ranks, over wires of two chunks and of more") {
  for (int ranks = 2; ranks <= 31; ++ranks) {
    for (const int slots : {2, 4, 8, 16}) {
      INFO(ranks << " ranks, wires of " << slots);
      CHECK(plays<ReduceScatter, Halving>(ranks, slots));
    }
  }
}

TEST_CASE("halving: who is sent to expects it, and few are") {
  struct Sink {
    std::vector<int>& order;
    int place;
    std::set<int> in{}, out{};
    RingSeat ring() const { return {place, int(order.size()), order.data()}; }
    void from(int peer) { in.insert(peer); }
    void to(int peer) { out.insert(peer); }
  };
  for (int ranks = 2; ranks <= 140; ++ranks) {
    std::vector<int> order;
    for (int i = 0; i < ranks; ++i) order.push_back((i + 3) % ranks);
    std::vector<Sink> sinks;
    for (int place = 0; place < ranks; ++place) {
      sinks.push_back({order, place});
      Halving::peers(sinks.back());
    }
    for (const Sink& sink : sinks) {
      INFO(ranks << " ranks, place " << sink.place);
      CHECK(int(sink.in.size()) <= Halving::most_wires(ranks));
      CHECK(sink.in == sink.out);
      CHECK(sink.in.count(order[std::size_t(sink.place)]) == 0);
      for (const int peer : sink.out) {
        const int place = (peer + 3 * ranks - 3) % ranks;
        REQUIRE(sinks[std::size_t(place)].in.count(order[std::size_t(sink.place)]) == 1);
      }
    }
  }
}
