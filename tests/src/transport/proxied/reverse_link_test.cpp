#include "transport/proxied/reverse_link.hpp"

#include <atomic>
#include <memory>
#include <thread>

#include "support/catch.hpp"
#include "support/driver.hpp"

using namespace ccl;

namespace {

struct Link : detail::ReverseLink<Link> {
  Edge edge;
  TransportContext context;
  std::atomic<bool> closing{false};
  using detail::ReverseLink<Link>::enter;
};

/// Rank 0's end of the edge to rank 1, or of the edge back.
std::shared_ptr<Link> end_of(EdgeSide side) {
  auto link = std::make_shared<Link>();
  link->edge.self.rank = 0;
  link->edge.peer.rank = 1;
  link->edge.side = side;
  link->edge.id = side == EdgeSide::sender ? 1 : 1 << 20;
  link->enter();
  return link;
}

}  // namespace

TEST_CASE("the ends of an edge and of that back find each other, while both are there") {
  const auto out = end_of(EdgeSide::sender);
  CHECK(out->mate() == nullptr);
  auto in = end_of(EdgeSide::receiver);
  CHECK(out->mate() == in);
  CHECK(in->mate() == out);
  in.reset();
  CHECK(out->mate() == nullptr);
}

TEST_CASE("an end does not meet one of a connection that has closed, which tasks still hold") {
  const auto old = end_of(EdgeSide::receiver);
  old->closing = true;
  const auto out = end_of(EdgeSide::sender);
  CHECK(out->mate() == nullptr);
  CHECK(old->mate() == nullptr);
  const auto in = end_of(EdgeSide::receiver);
  CHECK(out->mate() == in);
}

TEST_CASE("an end may go while its mate comes") {
  struct Both {
    std::atomic<int> ended{0};
  };
  const auto both = std::make_shared<Both>();
  const auto come_and_go = [both](EdgeSide side) {
    for (int n = 0; n < 200'000; ++n) {
      const auto link = end_of(side);
      for (int late = n % 1000; late > 0; --late) {
        std::atomic_signal_fence(std::memory_order_seq_cst);  // or there is no loop
      }
    }
    ++both->ended;
  };
  for (const EdgeSide side : {EdgeSide::sender, EdgeSide::receiver})
    std::thread{come_and_go, side}.detach();
  CHECK(test::wait_until([&] { return both->ended == 2; }));
}
