#include <ccl/detail/runtime/host_id.hpp>
#include <ccl/types/peer_info.hpp>

#include <cstdlib>
#include <cstring>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;

TEST_CASE("ranks of one process say the same of their process and host") {
  const PeerInfo a = local_peer_info(0, -1).value(), b = local_peer_info(1, 3).value();
  CHECK(a.rank == 0);
  CHECK(b.device == 3);
  CHECK(a.host_hash == b.host_hash);
  CHECK(a.pid_hash == b.pid_hash);
  CHECK(a.host_hash != 0);
  CHECK(std::strlen(a.host) > 0);
  CHECK(a.pid == int(::getpid()));
}

TEST_CASE("a child is another process on the same host") {
  const PeerInfo mine = local_peer_info(0, -1).value();
  int fds[2];
  REQUIRE(::pipe(fds) == 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const PeerInfo child = local_peer_info(1, -1).value();
    ::_exit(::write(fds[1], &child, sizeof child) == ssize_t(sizeof child) ? 0 : 1);
  }
  PeerInfo theirs;
  CHECK(::read(fds[0], &theirs, sizeof theirs) == ssize_t(sizeof theirs));
  ::waitpid(pid, nullptr, 0);
  ::close(fds[0]);
  ::close(fds[1]);
  CHECK(theirs.host_hash == mine.host_hash);
  CHECK(theirs.pid_hash != mine.pid_hash);
}

TEST_CASE("ranks and rendezvous mean the same by a host, however it is named") {
  const auto agree = [] {
    const PeerInfo info = local_peer_info(0, -1).value();
    return info.host_hash == detail::host_hash() && info.pid_hash == detail::pid_hash();
  };
  CHECK(agree());
  const auto unnamed = detail::host_hash();
  const test::Environment nccl{"NCCL_HOSTID", "rack 6"};
  CHECK(agree());
  const auto by_nccl = detail::host_hash();
  const test::Environment own{"CCL_HOSTID", "rack 7"};
  CHECK(agree());
  CHECK(by_nccl != unnamed);
  CHECK(detail::host_hash() != by_nccl);
}

TEST_CASE("CCL_HOSTID names the host") {
  const PeerInfo before = local_peer_info(0, -1).value();
  REQUIRE(::setenv("CCL_HOSTID", "rack 7", 1) == 0);
  const PeerInfo named = local_peer_info(0, -1).value();
  REQUIRE(::setenv("CCL_HOSTID", "rack 8", 1) == 0);
  const PeerInfo other = local_peer_info(0, -1).value();
  ::unsetenv("CCL_HOSTID");
  CHECK(named.host_hash != before.host_hash);
  CHECK(named.host_hash != other.host_hash);
  CHECK(named.pid_hash != other.pid_hash);
}
