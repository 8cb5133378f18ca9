// Handshakes that are none of the socket transport, at the extremes of each field.
#include <ccl/transport/socket.hpp>

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "net/address.hpp"
#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/lent.hpp"
#include "transport/handshake_fields.hpp"
#include "transport/proof.hpp"
#include "transport/socket/stream.hpp"

using namespace ccl;
using namespace ccl::test;
using ccl::detail::HandshakeCursor;

namespace {

struct Fields {
  std::size_t listeners = 1;
  detail::net::WireAddress at = detail::net::Address::parse("127.0.0.1:9").value().wire();
  int streams = 1, both_ways = 0;
  std::uint8_t near = 0;
};
/// The error of a sender that gets this handshake.
Error error_of(const Fields& fields) {
  Handshake theirs{};
  HandshakeCursor cursor;
  cursor.put(theirs, detail::Nonce{});
  cursor.put(theirs, fields.listeners);
  cursor.put(theirs, fields.at);
  cursor.put(theirs, fields.streams);
  cursor.put(theirs, fields.both_ways);
  std::array<std::uint8_t, 32> near{};
  near.back() = fields.near;
  cursor.put(theirs, near);
  Lent lent;
  lent.context.deadline_s = 0.01;
  Edge edge;
  edge.self.rank = 0;
  edge.peer.rank = 1;
  edge.shape = {1, 2, 128};
  auto end = SocketTransport::setup(lent.context, edge);
  REQUIRE(end.has_value());
  const auto made = end->connect(theirs);
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error().peer == 1);
  return made.error();
}
void refused(const Fields& fields, const char* why) {
  const Error error = error_of(fields);
  INFO(error.message() << "\nexpected: " << why);
  CHECK(error.code == Errc::mismatch);
  CHECK(mentions(error.what, "handshake is not one of the socket transport"));
  CHECK(mentions(error.what, why));
}

}  // namespace

TEST_CASE("a handshake that does not fit is refused before anything is opened") {
  constexpr int biggest = std::numeric_limits<int>::max();
  Fields fields;
  for (const std::size_t listeners : {std::size_t{0}, std::size_t{5}, ~std::size_t{0}}) {
    refused({.listeners = listeners}, "");
  }
  fields.at.family = 77;
  refused(fields, "");
  fields = {};
  fields.at.port = 0;
  refused(fields, "");
  for (const int streams : {0, -1, 257, biggest}) {
    refused({.streams = streams}, "number of streams is");
  }
  refused({.both_ways = 2}, "offer of both directions is 2, not from 0 to 1");
  refused({.both_ways = -1}, "offer of both directions is -1");
  refused({.near = 4}, "listener is 4, not from 0 to 3");
  CHECK(error_of({}).code == Errc::timed_out);  // it fits, and nothing listens there
}

TEST_CASE("each channel's small steps take the interface that the topology chose for it") {
  detail::SocketLink receiver, sender;
  for (const char* const name : {"eth0", "eth1", "eth2"}) receiver.nics.push_back({name, {}});
  receiver.edge.shape = sender.edge.shape = {4, 2, 128};
  receiver.edge.self.rank = sender.edge.peer.rank = 1;
  receiver.edge.peer.rank = sender.edge.self.rank = 0;
  receiver.streams = 3;
  receiver.edge.nics = {{"eth2", "eth0:1", "eth7"}, {0, 1, -1, 2}};
  receiver.choose_listeners();
  Handshake offer{};
  HandshakeCursor out, in;
  receiver.write_fields(offer, out);
  REQUIRE(sender.read_fields(offer, in));
  CHECK(sender.streams == 3);
  std::vector<std::size_t> first;
  for (std::size_t c = 0; c < 4; ++c) first.push_back(sender.listener_of(3 * c) % 3);
  // Channels 2 and 3 have no interface that is in use: they take turns.
  CHECK(first == std::vector<std::size_t>{2, 0, 0, 1});
  for (std::size_t stream = 0; stream < 3; ++stream) {
    CHECK(sender.listener_of(stream) % 3 == (2 + stream) % 3);
  }
}

TEST_CASE("channels of interfaces that count as one NIC take these in turn") {
  detail::SocketLink link;
  for (const char* const name : {"eth0", "eth1", "eth10", "eth2"}) link.nics.push_back({name, {}});
  link.edge.nics = {{"eth2", "eth1+eth2", "eth7+eth8"}, {1, 0, 1, 1, 2}};
  link.choose_listeners();
  CHECK(std::vector(link.near.begin(), link.near.begin() + 5) ==
        std::vector<std::uint8_t>{1, 3, 3, 1, link.near.back()});
}
