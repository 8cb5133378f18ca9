#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/shm.hpp>

#include <functional>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

std::function<void(Connection&, EdgeSide)> spoil;  // what the transport does wrong

/// A program's own transport, whose `connect` makes a mistake.
struct Spoiled : ShmTransport {
  static constexpr const char* name = "spoiled";
  class End {
   public:
    End(ShmTransport::End end, EdgeSide side) : end_{std::move(end)}, side_{side} {}
    Handshake handshake() const { return end_.handshake(); }
    Result<Connection> connect(const Handshake& theirs) {
      CCL_TRY(Connection made, end_.connect(theirs));
      spoil(made, side_);
      made.transport = name;
      return made;
    }

   private:
    ShmTransport::End end_;
    EdgeSide side_;
  };
  static Result<End> setup(TransportContext& context, const Edge& edge) {
    CCL_TRY(auto end, ShmTransport::setup(context, edge));
    return End{std::move(end), edge.side};
  }
};
static_assert(Transport<Spoiled>);

Answer sum(const Communicator& comm) {
  CCL_TRY(const auto made,
          (Collective<AllReduce, Tree, Simple, Spoiled>::create(comm, Plan{2, 2, 256, 1, 1})));
  int value = 1;
  CCL_CHECK(made(&value, &value, 1, Sum{}));
  return value == comm.ranks() ? "right" : "wrong";
}
/// Whose wires are made by the first call that needs them.
Answer pass_on(const Communicator& comm) {
  CCL_TRY(const auto made, (Collective<SendRecv, Pairwise, Simple, Spoiled>::create(comm)));
  const int peer = 1 - comm.rank(), value = comm.rank();
  int got = -1;
  CCL_CHECK(made(&value, 1, peer, &got, 1, peer));
  return got == peer ? "right" : "wrong";
}

struct Mistake {
  std::string sentence;
  std::function<void(Connection&, EdgeSide)> make;
};

}  // namespace

TEST_CASE("wires that are not what was asked for are refused, with what is wrong with them") {
  const auto each = [](auto change) {
    return [change](Connection& made, EdgeSide) {
      for (Wire& wire : made.wires) change(wire);
    };
  };
  const std::vector<Mistake> mistakes{
      {"0 wires for", [](Connection& made, EdgeSide) { made.wires.clear(); }},
      {"3 wires for 2", [](Connection& made, EdgeSide) { made.wires.resize(3); }},
      {"slots of 128 bytes where", each([](Wire& wire) { wire.slot_packets = 8; })},
      {"a wire of 0 slots", each([](Wire& wire) { wire.slot_count = 0; })},
      {"a wire without slots", each([](Wire& wire) { wire.slots = nullptr; })},
      {"a wire without `posted`", each([](Wire& wire) { wire.posted = nullptr; })},
      {"a wire without `drained`", each([](Wire& wire) { wire.drained = nullptr; })},
      {"a wire without `sizes`", each([](Wire& wire) { wire.proxied = true; })},
      {"begin on a line", each([](Wire& wire) { ++wire.slots; })},
      {"without `sent`",
       [](Connection& made, EdgeSide side) {
         if (side == EdgeSide::sender) made.wires[0].sent = nullptr;
       }},
      {"without `received`",
       [](Connection& made, EdgeSide side) {
         if (side == EdgeSide::receiver) made.wires[0].received = nullptr;
       }},
  };
  for (const Mistake& mistake : mistakes) {
    INFO(mistake.sentence);
    spoil = mistake.make;
    for (const std::string& said : run(
             2, [](int) {}, sum, false)) {
      INFO(said);
      CHECK(mentions(said, "invalid_argument"));
      CHECK(mentions(said, mistake.sentence.c_str()));
      CHECK(mentions(said, "transport spoiled"));
      CHECK(mentions(said, "see docs/guide/own_transport.md"));
    }
  }
  spoil = [](Connection&, EdgeSide) {};
  for (const std::string& said : run(
           2, [](int) {}, sum))
    CHECK(said == "right");
}

TEST_CASE("so are those that a call makes") {
  spoil = [](Connection& made, EdgeSide) { made.wires.clear(); };
  for (const std::string& said : run(
           2, [](int) {}, pass_on, false)) {
    INFO(said);
    CHECK(mentions(said, "0 wires for"));
  }
  spoil = [](Connection&, EdgeSide) {};
  for (const std::string& said : run(
           2, [](int) {}, pass_on))
    CHECK(said == "right");
}
