#include "transport/proxied/control_socket.hpp"

#include <cerrno>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include <sys/socket.h>

using namespace ccl;
using namespace ccl::detail;
using ccl::test::mentions;

namespace {

struct Head {
  std::uint32_t say, bytes;
};
enum class Say : std::uint32_t { first = 1, go = 4, close_notify = 7 };
using Line = ControlSocket<Say>;

/// What the socket makes of these bytes, which come in one piece.
Line after(const void* data, std::size_t bytes) {
  int both[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) == 0);
  const Fd far{both[1]};
  Line line{net::SecureSocket{Fd{both[0]}}};
  REQUIRE(::send(far.get(), data, bytes, 0) == ssize_t(bytes));
  return line;
}
std::string fault_of(const Head& head) {
  Line line = after(&head, sizeof head);
  CHECK_FALSE(line.receive().has_value());
  CHECK(line.broken());
  CHECK(line.os_code() == EPROTO);
  return line.fault();
}

}  // namespace

TEST_CASE("a control message of no type, or too long, ends the connection with the reason") {
  CHECK(mentions(fault_of({0, 0}), "type of a control message is 0, not from 1 to 7"));
  CHECK(mentions(fault_of({8, 0}), "type of a control message is 8"));
  CHECK(mentions(fault_of({~0u, 0}), "type of a control message is 4294967295"));
  CHECK(mentions(fault_of({1, (1u << 20) + 1}), "length of a control message is 1048577"));
  CHECK(mentions(fault_of({7, ~0u}), "length of a control message is 4294967295"));
}

TEST_CASE("a control message that fits arrives whole") {
  const struct {
    Head head{std::uint32_t(Say::go), 4};
    std::uint32_t round = 3;
  } sent;
  Line line = after(&sent, sizeof sent);
  const auto message = line.receive();
  REQUIRE(message.has_value());
  CHECK(message->say == Say::go);
  ControlReader body{message->body};
  CHECK(body.get<std::uint32_t>() == 3);
  CHECK(body.good());
  CHECK(body.get<std::uint32_t>() == 0);
  CHECK_FALSE(body.good());
}

TEST_CASE("a list that claims more entries than bytes is none") {
  ControlWriter body;
  body.put(std::uint32_t{1u << 31});
  body.put(std::uint32_t{7});
  ControlReader reader{body.body};
  CHECK(reader.get_all<std::uint32_t>().empty());
  CHECK_FALSE(reader.good());
}
