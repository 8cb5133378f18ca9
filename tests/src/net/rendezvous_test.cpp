// Texts of errors about ranks that are lost.
#include "net/rendezvous.hpp"

#include <cerrno>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

TEST_CASE("the loss of a host is told from that of a process") {
  net::Member lost;
  lost.rank = 3;
  const auto contains = [&](int os_code, const char* what) {
    const Error error = net::lost_error(lost, os_code);
    CHECK((error.code == Errc::peer_lost && error.peer == 3));
    return error.what.find(what) != std::string::npos;
  };
  for (const int silent : {ETIMEDOUT, EHOSTUNREACH, ENETUNREACH})
    CHECK(contains(silent, "its host does not answer any more"));
  for (const int closed : {0, ECONNRESET, EPIPE})
    CHECK(contains(closed, "its connections closed without a goodbye"));
}
