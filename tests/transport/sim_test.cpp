#include <ccl/transport/sim.hpp>

#include "support/catch.hpp"

using namespace ccl;

TEST_CASE("sim: a piece takes what its narrowest link takes") {
  SimTransport net;
  const int wide = net.add_link(100), narrow = net.add_link(10);
  const int way = net.add_route(std::vector{wide, narrow, wide});
  CHECK(net.carry(way, 1e6, 5) == Approx(5 + 100));
  CHECK(net.carry(net.add_route({}), 1e6, 7) == Approx(7));
}

TEST_CASE("sim: what shares a link goes one after the other, and holds no other link") {
  SimTransport net;
  const int shared = net.add_link(10), first = net.add_link(10), second = net.add_link(10);
  const int a = net.add_route(std::vector{first, shared});
  const int b = net.add_route(std::vector{second, shared});
  const int c = net.add_route(std::vector{second});
  CHECK(net.carry(a, 1e6, 0) == Approx(100));
  CHECK(net.carry(b, 1e6, 0) == Approx(200));  // waits for `shared`, in its buffer
  CHECK(net.carry(c, 1e6, 0) == Approx(200));  // `second` was free again at 100
  CHECK(net.carry(a, 1e6, 150) == Approx(300));
  CHECK(net.carry(a, 1e6, 1000) == Approx(1100));
}

TEST_CASE("sim: links and routes are numbered as they were added") {
  SimTransport net;
  CHECK(net.add_link(8) == 0);
  CHECK(net.add_link(4) == 1);
  CHECK(net.link_count() == 2);
  CHECK(net.us_per_byte(1) == Approx(0.25e-3));
  const std::vector<int> links{1, 0};
  CHECK(net.add_route(links) == 0);
  CHECK(net.add_route(std::vector{0}) == 1);
  CHECK(std::vector<int>(net.route(0).begin(), net.route(0).end()) == links);
}
