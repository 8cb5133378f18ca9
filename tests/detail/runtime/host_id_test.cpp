#include <ccl/detail/runtime/host_id.hpp>

#include <cstdlib>

#include "support/catch.hpp"
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;

TEST_CASE("processes of a host share its hash and differ in theirs") {
  const auto host = detail::host_hash(), pid = detail::pid_hash();
  CHECK_FALSE(detail::host_name().empty());
  CHECK(detail::host_hash() == host);
  CHECK(detail::pid_hash() == pid);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(detail::host_hash() == host && detail::pid_hash() != pid ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("CCL_HOSTID decides what a host is") {
  const auto host = detail::host_hash();
  ::setenv("CCL_HOSTID", "a", 1);
  const auto a = detail::host_hash();
  ::setenv("CCL_HOSTID", "b", 1);
  const auto b = detail::host_hash();
  ::unsetenv("CCL_HOSTID");
  CHECK(a != b);
  CHECK(a != host);
}
