#include <ccl/algo/doubling.hpp>

#include "every_protocol.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
struct Sink {
  int r, n;
  std::vector<int> in{}, out{};
  int rank() const { return r; }
  int ranks() const { return n; }
  std::vector<int> order{};
  RingSeat ring() {
    for (int i = int(order.size()); i < n; ++i) order.push_back(i);
    return {r, n, order.data()};
  }
  void from(int peer) { in.push_back(peer); }
  void to(int peer) { out.push_back(peer); }
};
}  // namespace

TEMPLATE_LIST_TEST_CASE("doubling: all-reduce at every rank count", "", EveryProtocol) {
  using Proto = typename TestType::Proto;
  using Group = typename TestType::Group;
  for (int ranks = 2; ranks <= TestType::most_ranks; ++ranks) {
    World world{ranks, 2, 8, 512};
    const Reduction<Sum, int> sum{Sum{}, ranks};
    for (const Index count : {0, 1, 63, 5001}) {
      INFO(Proto::name << " ranks " << ranks << " count " << count);
      std::vector<std::vector<int>> in(ranks, std::vector<int>(count)), out = in;
      std::vector<int> want(count);
      for (int r = 0; r < ranks; ++r) {
        for (Index i = 0; i < count; ++i) want[i] += in[r][i] = int(i * 3 + r * 1000);
      }
      for (const bool in_place : {false, true}) {
        REQUIRE(world.run<AllReduce, Doubling, Proto, Group>(sum, 1, 1, 0, [&](int r, auto& w) {
          w.input = in[r].data();
          w.output = in_place ? in[r].data() : out[r].data();
          w.layout = {count, 0, 0, false};
        }));
        for (int r = 0; r < ranks; ++r) REQUIRE((in_place ? in : out)[r] == want);
      }
    }
  }
}

TEMPLATE_LIST_TEST_CASE("doubling: all-gather at every rank count", "", EveryProtocol) {
  using Proto = typename TestType::Proto;
  using Group = typename TestType::Group;
  for (int ranks = 2; ranks <= TestType::most_ranks; ++ranks) {
    World world{ranks, 2, 4, 512};
    std::rotate(world.order().begin(), world.order().begin() + 1, world.order().end());
    for (const Index count : {0, 1, 63, 5001}) {
      for (const bool in_place : {false, true}) {
        INFO(Proto::name << " ranks " << ranks << " count " << count << " in place " << in_place);
        std::vector<std::vector<char>> in(ranks, std::vector<char>(count)),
            out(ranks, std::vector<char>(ranks * count, -1));
        std::vector<char> want;
        for (int r = 0; r < ranks; ++r) {
          for (Index i = 0; i < count; ++i) in[r][i] = char(i * 3 + r * 11);
          want.insert(want.end(), in[r].begin(), in[r].end());
          if (in_place) std::copy(in[r].begin(), in[r].end(), out[r].begin() + r * count);
        }
        REQUIRE(world.run<AllGather, Doubling, Proto, Group>(Bytes{}, 1, 1, 0, [&](int r, auto& w) {
          w.input = in_place ? out[r].data() + r * count : in[r].data();
          w.output = out[r].data();
          w.layout = {count, 0, count, false};
        }));
        for (int r = 0; r < ranks; ++r) REQUIRE(out[r] == want);
      }
    }
  }
}

TEST_CASE("doubling: all ranks get the same bits of a sum that rounds") {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    World world{ranks, 1, 8, 512};
    const Reduction<Sum, float> sum{Sum{}, ranks};
    const Index count = 500;
    std::vector<std::vector<float>> in(ranks, std::vector<float>(count)), out = in;
    for (int r = 0; r < ranks; ++r) {
      for (Index i = 0; i < count; ++i) in[r][i] = 1.0f / float(1 + i * ranks + r * r);
    }
    REQUIRE(world.run<AllReduce, Doubling, Simple, SoloLane>(sum, 1, 1, 0, [&](int r, auto& w) {
      w.input = in[r].data();
      w.output = out[r].data();
      w.layout = {count, 0, 0, false};
    }));
    for (int r = 1; r < ranks; ++r) REQUIRE(out[r] == out[0]);
  }
}

TEST_CASE("doubling: who is sent to expects it") {
  for (int ranks = 2; ranks <= 33; ++ranks) {
    std::vector<Sink> seats;
    for (int r = 0; r < ranks; ++r) {
      seats.push_back({r, ranks});
      Doubling::peers(seats.back());
    }
    for (const Sink& seat : seats) {
      for (const int peer : seat.out) {
        INFO(seat.r << " to " << peer << " of " << ranks);
        REQUIRE((peer >= 0 && peer < ranks && peer != seat.r));
        const auto& in = seats[peer].in;
        REQUIRE(std::count(in.begin(), in.end(), seat.r) == 1);
      }
    }
  }
  STATIC_REQUIRE(Doubling::takes<Sum>);
  STATIC_REQUIRE(!Doubling::takes<Avg>);
  STATIC_REQUIRE(!Doubling::takes<PreMulSum>);
}
