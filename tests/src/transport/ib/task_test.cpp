// Control messages of a peer at the extremes of each field, on an emulated device.
#include "transport/ib/task.hpp"

#include <functional>

#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/fake_verbs.hpp"
#include "support/lone_end.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail;

namespace {

constexpr WireShape shape{1, 4, 4096};

IbPortCard card() {
  IbPortCard one{};
  one.mtu = 3;
  std::string_view{"fake_0 port 1"}.copy(one.where, sizeof one.where);
  return one;
}

struct End : LoneEnd<IbLink, IbControlType, make_ib_receiver, make_ib_sender> {
  explicit End(EdgeSide side) : LoneEnd{side, shape} {}
};

struct Offer {
  std::int32_t qps = 1, split = 0;
  std::vector<IbPortCard> cards{card()};
  std::vector<std::int32_t> nics{0};
  std::vector<IbBadPath> bad;
};
Error after_offer(const std::function<void(Offer&)>& damage) {
  Offer offer;
  damage(offer);
  ControlWriter body;
  body.put(std::uint32_t{1});
  body.put(std::uint64_t{0x1000});
  body.put(offer.qps);
  body.put(offer.split);
  body.put_all(offer.cards);
  body.put_all(offer.nics);
  body.put_all(offer.bad);
  return End{EdgeSide::receiver}.after(IbControlType::offer, body);
}

}  // namespace

TEST_CASE("a receiver refuses an offer that does not fit") {
  const FakeVerbs fabric{1};
  const auto refused = [](const std::function<void(Offer&)>& damage, const char* why) {
    const Error error = after_offer(damage);
    INFO(error.message() << "\nexpected: " << why);
    CHECK(error.code == Errc::mismatch);
    CHECK(error.rank == 1);
    CHECK(error.peer == 0);
    CHECK(mentions(error.what, "the sender's offer is not one of ib"));
    CHECK(mentions(error.what, why));
  };
  refused([](Offer& o) { o.qps = 0; }, "queue pairs of a port is 0, not from 1 to 64");
  refused([](Offer& o) { o.qps = 65; }, "queue pairs of a port is 65");
  refused([](Offer& o) { o.split = 2; }, "split of steps is 2, not from 0 to 1");
  refused([](Offer& o) { o.cards.clear(); }, "number of ports is 0, not from 1 to 8");
  refused([](Offer& o) { o.cards.assign(9, card()); }, "number of ports is 9");
  refused([](Offer& o) { o.cards[0].mtu = 0; }, "MTU of a port is 0, not from 1 to 5");
  refused([](Offer& o) { o.cards[0].mtu = 255; }, "MTU of a port is 255");
  refused([](Offer& o) { o.cards[0].infiniband = 2; }, "kind of a port is 2");
  refused([](Offer& o) { std::memset(o.cards[0].where, 'x', sizeof o.cards[0].where); },
          "name of a port has no end within its 44 bytes");
  refused([](Offer& o) { o.nics.clear(); }, "number of NICs is 0, not 1");
  refused([](Offer& o) { o.nics = {0, 1}; }, "number of NICs is 2, not 1");
  refused([](Offer& o) { o.bad.resize(65); }, "number of bad paths is 65");
  refused([](Offer& o) { std::memset(&o.bad.emplace_back(), 'x', sizeof(IbBadPath)); },
          "sender's port has no end");
}

TEST_CASE("a sender refuses a plan and a report that do not fit") {
  const FakeVerbs fabric{1};
  const auto plan = [](std::uint32_t pairs, std::uint32_t parts, std::uint32_t port) {
    ControlWriter body;
    body.put(std::uint32_t{1});
    body.put_all(std::vector{card()});
    body.put_all(std::vector{IbChannelPlan{pairs, parts, 0}});
    body.put_all(std::vector{IbPair{port, 0, 17, 5}});
    return body;
  };
  for (const ControlWriter& body :
       {plan(0, 1, 0), plan(1, 0, 0), plan(~0u, 1, 0), plan(1, 1, ~0u), plan(1, 2, 0)}) {
    End end{EdgeSide::sender};
    const Error error = end.after(IbControlType::plan, body);
    INFO(error.message());
    CHECK(error.code == Errc::mismatch);
    CHECK(mentions(error.what, "the receiver's plan is not one of ib"));
  }
  ControlWriter broken;
  broken.put(std::uint32_t{1});
  broken.put(std::uint32_t{1u << 30});
  const Error error = End{EdgeSide::sender}.after(IbControlType::broken, broken);
  CHECK(error.code == Errc::mismatch);
  CHECK(mentions(error.what, "the end of a report is missing"));
  CHECK(mentions(error.what, "sent rank 0 on"));
}

TEST_CASE("a sender refuses a second plan for its offer") {
  FakeVerbs fabric{1};
  End end{EdgeSide::sender};
  ControlWriter plan;
  plan.put(std::uint32_t{1});
  plan.put_all(std::vector{card()});
  plan.put_all(std::vector{IbChannelPlan{1, 1, 0}});
  plan.put_all(std::vector{IbPair{0, 0, 17, 5}});
  end.send(IbControlType::plan, plan);
  for (int turn = 0; turn < 300; ++turn) (void)end.task->progress(end.counters);
  INFO(end.link->error().message());
  REQUIRE(end.link->state() == IbLink::State::connecting);
  const int held = fabric.held();
  const Error error = end.after(IbControlType::plan, plan);
  INFO(error.message());
  CHECK(error.code == Errc::mismatch);
  CHECK(mentions(error.what, "the receiver has sent a second plan of ib"));
  CHECK(fabric.held() < held);
}

TEST_CASE("the rank that another end names is a rank") {
  const FakeVerbs fabric{1};
  const auto after = [](std::int32_t at_fault) {
    ControlWriter body;
    body.put(std::int32_t(Errc::timed_out));
    body.put(at_fault);
    body.put_all(std::vector<char>{'x'});
    return End{EdgeSide::sender}.after(IbControlType::refused, body);
  };
  CHECK(after(5).code == Errc::timed_out);
  CHECK(after(5).peer == 5);
  for (const std::int32_t wrong : {-2, 1 << 20, 0x7fff'ffff}) {
    const Error error = after(wrong);
    INFO(error.message());
    CHECK(error.code == Errc::mismatch);
    CHECK(error.peer == 1);
    CHECK(mentions(error.what, "rank at fault is"));
  }
}

TEST_CASE("an end whose connection does not come to rest refuses such a message") {
  const FakeVerbs fabric{1};
  ControlWriter request;
  request.put(std::uint32_t{1});
  request.put_all(std::vector<Word>{0});
  for (const EdgeSide side : {EdgeSide::sender, EdgeSide::receiver}) {
    const Error error = End{side}.after(IbControlType::rest, request);
    INFO(error.message());
    CHECK(error.code == Errc::mismatch);
    CHECK(mentions(error.what, side == EdgeSide::sender ? "it rests without being asked to"
                                                        : "its request to rest is not one of ib"));
  }
}

TEST_CASE("a message of no type ends the connection, and the error names both ends") {
  const FakeVerbs fabric{1};
  const Error error = End{EdgeSide::receiver}.after(IbControlType(77), {});
  INFO(error.message());
  CHECK(error.code == Errc::mismatch);
  CHECK(mentions(error.what, "rank 0 on"));
  CHECK(mentions(error.what, "sent rank 1 on"));
  CHECK(mentions(error.what, "type of a control message is 77, not from 1 to 8"));
}
