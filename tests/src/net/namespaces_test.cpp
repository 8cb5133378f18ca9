// Several hosts on one machine: network namespaces on a bridge. Needs root and iproute2.
#include <ccl/detail/runtime/bootstrap.hpp>
#include <ccl/detail/runtime/host_id.hpp>

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "net/socket.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/lan.hpp"
#include "support/lost_time.hpp"
#include "support/skip.hpp"
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr int hosts = 3;

pid_t start(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  return pid;
}
int end_of(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}
int complain(const Error& e, int code) {
  std::fprintf(stderr, "%s\n", e.message().c_str());
  return code;
}

}  // namespace

TEST_CASE("ranks of three hosts meet, while a scanner knocks at every port") {
  const Lan lan;
  if (!lan.good()) return skip(no_lan);
  constexpr int ranks = 7;
  const UniqueId id = unique_id_at("10.99.0.1:4711", "namespaces").value();
  const pid_t scanner = start([&] {
    lan.enter(2);
    for (;;) {
      for (int h = 1; h <= hosts; ++h) {
        for (int port = 4711; port < 61000; port = port == 4711 ? 32768 : port + 1) {
          auto at = detail::net::Address::parse(fmt::format("10.99.0.{}:{}", h, port)).value();
          auto fd = detail::net::connect_once(at, detail::net::Deadline::after(0.05), nullptr);
          if (fd)
            (void)detail::net::send_all(fd->get(), "\x16\x03\x01\x02", 4,
                                        detail::net::Deadline::after(0), nullptr);
        }
      }
    }
    return 0;
  });
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    pids.push_back(start([&] {
      lan.enter(rank % hosts);
      if (rank == 5) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      if (rank == 0 && !start_root(id, 0)) return 11;
      auto b = detail::Bootstrap::join({&id, 1}, rank, ranks, {20, nullptr});
      if (!b) return complain(b.error(), 12);
      for (int r = 0; r < ranks; ++r) {
        if (((*b)->place(r).host_hash == detail::host_hash()) != (r % hosts == rank % hosts))
          return 13;
      }
      for (int round = 0; round < 50; ++round) {
        std::vector<int> all(ranks, -1), same;
        all[size_t(rank)] = 10 * rank + round;
        same = all;
        if (!(*b)->all_gather(all.data(), sizeof(int))) return 14;
        if (!(*b)->all_gather_hosts(same.data(), sizeof(int))) return 15;
        for (int r = 0; r < ranks; ++r) {
          if (all[size_t(r)] != 10 * r + round || same[size_t(r)] != 10 * r + round) return 16;
        }
      }
      auto half = (*b)->split(rank % 2, 0);
      if (!half) return complain(half.error(), 17);
      if (!(*half)->barrier() || !(*half)->finalize() || !(*b)->finalize()) return 18;
      return 0;
    }));
  }
  for (const pid_t pid : pids) CHECK(end_of(pid) == 0);
  ::kill(scanner, SIGKILL);
  end_of(scanner);
}

TEST_CASE("hosts of IPv6 alone meet at a link-local address, whatever they call their interface") {
  const Lan lan;
  if (!lan.good()) return skip(no_lan);
  for (const bool others : {true, false}) {  // addresses besides
    for (int h = 0; h < 2; ++h) {
      REQUIRE(lan.in(h, fmt::format("ip addr flush dev eth0 && {} ip addr add fe80::{}/64 dev eth0 "
                                    "nodad && ip link property add dev eth0 altname wan{}{}",
                                    others ? fmt::format("ip addr add fd00:99::{}/64 dev eth0 "
                                                         "nodad &&",
                                                         h + 1)
                                           : "",
                                    h + 1, h, int(others))));
    }
    std::vector<pid_t> pids;
    for (int rank = 0; rank < 3; ++rank) {
      pids.push_back(start([&] {
        const int host = rank % 2;
        lan.enter(host);
        const auto id =
            unique_id_at(fmt::format("[fe80::1%wan{}{}]:4713", host, int(others)), "link-local");
        if (!id) return complain(id.error(), 11);
        if (rank == 0 && !start_root(*id, 0)) return 12;
        auto b = detail::Bootstrap::join({&*id, 1}, rank, 3, {20, nullptr});
        if (!b) return complain(b.error(), b.error().code == Errc::network ? 13 : 14);
        return (*b)->barrier() && (*b)->finalize() ? 0 : 15;
      }));
    }
    // A rank that cannot be reached says so to the others.
    for (const pid_t pid : pids) CHECK(end_of(pid) == (others ? 0 : 13));
  }
}

TEST_CASE("a host that falls silent is noticed within five seconds, by keep-alives after two") {
  const Lan lan;
  if (!lan.good()) return skip(no_lan);
  const Environment keep_alive{"CCL_BOOTSTRAP_KEEPALIVE", "2"};
  const UniqueId id = unique_id_at("10.99.0.1:4711", "silent").value();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < hosts; ++rank) {
    pids.push_back(start([&] {
      lan.enter(rank);
      detail::Status status;
      if (rank == 0 && !start_root(id, 0)) return 11;
      auto b = detail::Bootstrap::join({&id, 1}, rank, hosts, {20, &status});
      if (!b) return complain(b.error(), 12);
      if (!(*b)->barrier()) return 13;
      if (rank == 0) lan.unplug(2);
      const auto unplugged = std::chrono::steady_clock::now();
      double lost = 0;  // while the machine was busy
      for (int i = 0; i < 1500 && status.ok(); ++i)
        lost += oversleep(std::chrono::milliseconds{10});
      const auto why = status.result();
      if (why) return 14;
      if (why.error().code != Errc::peer_lost) return complain(why.error(), 15);
      const std::chrono::duration<double> noticed = std::chrono::steady_clock::now() - unplugged;
      std::printf("rank %d noticed after %.2f s\n", rank, noticed.count());
      std::fflush(stdout);
      if (noticed.count() - lost > 5.5) return 17;
      // The others name rank 2; rank 2 has lost all of them.
      return (why.error().peer == 2) != (rank == 2) ? 0 : complain(why.error(), 16);
    }));
  }
  for (const pid_t pid : pids) CHECK(end_of(pid) == 0);
}
