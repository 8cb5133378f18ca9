// Handshakes that are none of the socket transport, at the extremes of each field.
#include <ccl/transport/socket.hpp>

#include <limits>

#include "net/address.hpp"
#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/lent.hpp"
#include "transport/handshake_fields.hpp"
#include "transport/proof.hpp"

using namespace ccl;
using namespace ccl::test;
using ccl::detail::HandshakeCursor;

namespace {

struct Fields {
  std::size_t listeners = 1;
  detail::net::WireAddress at = detail::net::Address::parse("127.0.0.1:9").value().wire();
  int streams = 1, both_ways = 0;
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
  CHECK(error_of({}).code == Errc::timed_out);  // it fits, and nothing listens there
}
