// Limits of connections whose other end falls silent.
#include "net/socket.hpp"

#include "support/catch.hpp"
#include "support/environment.hpp"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

using namespace ccl;
using namespace ccl::detail;
using namespace ccl::test;

namespace {
int option(int fd, int level, int name) {
  int value = -1;
  socklen_t bytes = sizeof value;
  CHECK(::getsockopt(fd, level, name, &value, &bytes) == 0);
  return value;
}
}  // namespace

TEST_CASE("a host may stand still for a while before it is lost") {
  struct Limits {
    const char* setting;
    int silence_s, probes_s;
  };
  for (const Limits& wanted : {Limits{"", 20, 10}, Limits{"60", 60, 30}, Limits{"2", 2, 2}}) {
    const Environment keep_alive{"CCL_BOOTSTRAP_KEEPALIVE", wanted.setting};
    auto listener = net::listen_at(net::Address::parse("127.0.0.1:0").value());
    REQUIRE(listener);
    const auto where = net::bound_address(listener->get());
    REQUIRE(where);
    auto made = net::connect_once(*where, net::Deadline::after(10), nullptr);
    REQUIRE(made);
    const int fd = made->get();
    CHECK(option(fd, SOL_SOCKET, SO_KEEPALIVE) == 1);
    CHECK(option(fd, IPPROTO_TCP, TCP_KEEPIDLE) == wanted.silence_s);
    CHECK(option(fd, IPPROTO_TCP, TCP_KEEPINTVL) == 1);
    CHECK(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT) == 1000 * (wanted.silence_s + wanted.probes_s));
  }
}
