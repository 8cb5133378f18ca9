// Faults of jobs over software RDMA that the watchdog must explain by itself: those of
// tests/comm/watchdog_test.cpp, and some that only devices have. The four ranks run on four virtual
// hosts (tests/ib/vm.sh BUILD_DIR faults).
//
//   ccl.vm.faults    prints the table of docs/validation/diagnosis.md
#include <ccl/comm/launcher.hpp>
#include <ccl/transport/ib.hpp>

#include <algorithm>

#include "support/call_faults.hpp"
#include "support/network_faults.hpp"
#include "support/rank_faults.hpp"
#include "support/skip.hpp"
#include <sched.h>

using namespace ccl;
using namespace ccl::test;
using namespace ccl::test::faults;

namespace {

/// Ranks of CPUs, each on the virtual host of its number.
struct RankOfHost : CpuRank {
  static UniqueId id() {
    static int port = 4711;  // an old job may hold the last one
    return unique_id_at(fmt::format("10.0.0.1:{}", ++port), "faults").value();
  }
  /// Enters the host's namespaces. The process has one thread still.
  static void begin(int rank, const UniqueId& id) {
    std::ifstream file{fmt::format("/run/vh/{}.pid", rank)};
    int host = 0;
    file >> host;
    for (const char* const name : {"net", "uts", "ipc", "mnt"}) {
      const int fd = open(fmt::format("/proc/{}/ns/{}", host, name).c_str(), O_RDONLY | O_CLOEXEC);
      if (host == 0 || fd < 0 || setns(fd, 0) != 0) {
        std::perror("a virtual host cannot be entered");
        _exit(3);
      }
      close(fd);
    }
    if (rank != 0) return;
    if (const auto root = start_root(id, 0); !root) {
      std::puts(root.error().message().c_str());
      _exit(3);
    }
  }
};
using Rdma = Calls<IbTransport, RankOfHost>;
using Remote = Calls<SocketTransport, RankOfHost>;

/// Runs a command outside of the hosts, where the interfaces of all devices are.
bool outside(const char* command) {
  return std::system(fmt::format("nsenter -t 1 -n -- {}", command).c_str()) == 0;
}

/// Plays a fault of the device of the rank at fault, after a barrier: `harm`, until `repair`.
template <class Play>
void with_harm(const char* harm, const char* repair, const Play& play) {
  play([=](Rdma& calls) -> Result<void> {
    CCL_CHECK(calls.comm.barrier());
    if (calls.is_victim()) {
      // The neighbors before it in rings wait for it, and it for them.
      calls.board.may_be_behind = senders_to_victim(calls.comm) | 1U << victim;
      if (outside(harm)) fires(calls.board);
    } else {
      (void)wait_until([&] { return calls.board.fired > 0; }, give_up_s);
    }
    return calls.sum(400'000);
  });
  CHECK(outside(repair));
}

}  // namespace

TEST_CASE("faults of calls over RDMA") {
  faults_of_calls<Rdma>();
}

TEST_CASE("faults of ranks over RDMA") {
  faults_of_steps<Rdma>();
  faults_of_streams<Rdma>();
}

TEST_CASE("faults of processes over RDMA") {
  faults_of_processes<Rdma, Remote>();
}

TEST_CASE("faults of devices") {
  faults_of_proxies<Rdma>();
  with_harm("tc qdisc add dev rp2 root netem loss 100%", "tc qdisc del dev rp2 root",
            [](const Body<Rdma>& body) {
              play<Rdma>("a link delivers nothing to a rank",
                         {Cause::silent_link, -1, "has sent to rank 2"}, body);
            });
  // What its neighbor sends ends there, too: nobody acknowledges it.
  with_harm("tc qdisc add dev rdma2 root netem loss 100%", "tc qdisc del dev rdma2 root",
            [](const Body<Rdma>& body) {
              play<Rdma>("a link delivers nothing of a rank",
                         {Cause::silent_link, -1, "rank 2 on h2"}, body);
            });
  with_harm("ip link set rdma2 down", "ip link set rdma2 up", [](const Body<Rdma>& body) {
    fails<Rdma>("its only device goes down", Errc::network, body, Errc::aborted);
  });
}

TEST_CASE("faults of programs over RDMA") {
  faults_of_programs<Rdma>();
}

// The last case of the file: what the ones before have played.
TEST_CASE("faults over RDMA in all: of at least 30, all but one are named rightly within 10 s") {
  if (table().empty()) return skip("the cases before have played no fault");
  const auto in_time =
      std::ranges::count_if(table(), [](const Named& of) { return of.right && of.took_s < 10; });
  std::printf("%td of %zu faults are named within 10 s\n", in_time, table().size());
  CHECK(table().size() >= 30);
  CHECK(std::size_t(in_time) + 1 >= table().size());
}
