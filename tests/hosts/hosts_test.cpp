#include <ccl/comm/unique_id.hpp>

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "support/catch.hpp"
#include "support/job.hpp"
#include "support/processes.hpp"
#include "support/skip.hpp"
#include <arpa/inet.h>
#include <sched.h>
#include <sys/socket.h>

// Network namespaces represent hosts: three, on a bridge in a fourth. They have no names, so they
// disappear with their last process in any case.
using namespace ccl;
using namespace ccl::test;

namespace {
constexpr int hosts = 3;
constexpr int ranks_per_host = 2;
constexpr int ranks = hosts * ranks_per_host;
constexpr int max_ports = 64;

struct Board {
  std::atomic<int> wired{0};    // hosts whose network is to be set up
  std::atomic<bool> go{false};  // true: the bridge exists
  std::atomic<bool> id_is_set{false};
  UniqueId id;
  std::atomic<bool> calm{false};  // attackers are to stop
  std::atomic<int> ports[hosts][max_ports];
  std::atomic<int> attacks{0};  // connections that strangers have made
  std::atomic<int> done{0};     // ranks that have finished
  std::atomic<int> hosts_seen[ranks];
  char text[ranks][512];
};

int run(const std::string& command) {
  return std::system((command + " >/dev/null").c_str());
}
std::string address_of(int host) {
  return fmt::format("10.77.0.{}", host + 1);
}

/// TCP ports that this network namespace listens on.
std::vector<int> listening_ports() {
  std::vector<int> ports;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream in{table};
    std::string line;
    std::getline(in, line);
    while (std::getline(in, line)) {
      std::istringstream fields{line};
      std::string number, local, remote, state;
      fields >> number >> local >> remote >> state;
      if (state == "0A")
        ports.push_back(std::stoi(local.substr(local.rfind(':') + 1), nullptr, 16));
    }
  }
  return ports;
}

int connect_to(const std::string& host, int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(std::uint16_t(port));
  inet_pton(AF_INET, host.c_str(), &to.sin_addr);
  const timeval spin_wait{0, 300'000};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &spin_wait, sizeof spin_wait);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) return fd;
  close(fd);
  return -1;
}

/// Attacker on `host`. It scans all listening ports of all hosts, and sends garbage, half of a
/// greeting, or nothing. Then it closes the connection or keeps it.
int attack(Board& board, int host) {
  std::mt19937 random{unsigned(host) + 1};
  std::vector<int> held;
  while (!board.calm) {
    const std::vector<int> own = listening_ports();
    for (int i = 0; i < max_ports; ++i) {
      board.ports[host][i] = i < int(own.size()) ? own[std::size_t(i)] : 0;
    }
    for (int target = 0; target < hosts; ++target) {
      for (const auto& port : board.ports[target]) {
        if (port == 0 || board.calm) continue;
        const int fd = connect_to(address_of(target), port);
        if (fd < 0) continue;
        ++board.attacks;
        std::vector<char> bytes(1 + random() % 4096);
        for (char& byte : bytes) byte = char(random());
        if (random() % 4 == 0)
          std::memcpy(bytes.data(), "ccl\2", std::min<std::size_t>(4, bytes.size()));
        if (random() % 3 != 0) {
          [[maybe_unused]] const auto sent =
              send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        if (random() % 3 == 0 && held.size() < 32) {
          held.push_back(fd);
        } else {
          close(fd);
        }
      }
    }
    sleep_s(0.01);
  }
  for (const int fd : held) close(fd);
  return 0;
}

int run_rank(Board& board, int host, int rank) {
  const auto report = [&](const std::string& text) {
    std::snprintf(board.text[rank], sizeof board.text[rank], "%s", text.c_str());
    return 1;
  };
  setenv("CCL_SOCKET_IFNAME", "eth0", 1);
  if (rank == 0) {
    const auto id = create_unique_id();
    if (!id) return report(id.error().message());
    board.id = *id;
    board.id_is_set = true;
  }
  if (!wait_until([&] { return board.id_is_set.load(); }, 20)) return report("no id");
  if (host == hosts - 1) {  // these are late, so that the ranks that wait for them are attacked
    if (!wait_until([&] { return board.attacks >= 100; }, 30)) return report("too few strangers");
  }
  auto job = Job::create(board.id, rank, ranks, 60, 60);
  if (!job) return report(job.error().message());
  for (int step = 0; step < 20; ++step) {
    if (const auto done = job->step(); !done) return report(done.error().message());
  }
  board.hosts_seen[rank] = job->hosts();
  ++board.done;
  if (const auto done = job->finalize(); !done) return report(done.error().message());
  return 0;
}

int run_host(Board& board, int host) {
  if (unshare(CLONE_NEWNET) != 0) return 77;
  ++board.wired;
  if (!wait_until([&] { return board.go.load(); }, 20)) return 1;
  if (run(fmt::format("ip link set lo up && ip address add {}/24 dev eth0 && ip link set eth0 up",
                      address_of(host))) != 0) {
    return 77;
  }
  // The other end of the cable is noticed a little later.
  if (run("for i in $(seq 100); do ip link show eth0 | grep -q 'state UP' && exit 0; sleep 0.1; "
          "done; exit 1") != 0) {
    return 1;
  }
  std::vector<pid_t> rank_pids;
  const pid_t attacker = start_process([&] { return attack(board, host); });
  for (int i = 0; i < ranks_per_host; ++i) {
    rank_pids.push_back(
        start_process([&, i] { return run_rank(board, host, host * ranks_per_host + i); }));
  }
  const bool ok = reap(rank_pids, 120);
  board.calm = true;
  return reap({attacker}, 10) && ok ? 0 : 1;
}

/// In a network namespace of its own: the bridge, and the hosts as child processes.
int run_world(Board& board) {
  if (unshare(CLONE_NEWNET) != 0) return 77;
  if (run("ip link add br0 type bridge && ip link set br0 up") != 0) return 77;
  std::vector<pid_t> pids;
  for (int host = 0; host < hosts; ++host) {
    pids.push_back(start_process([&, host] { return run_host(board, host); }));
    if (!wait_until([&] { return board.wired == host + 1; }, 10)) return 77;
    const std::string cable = fmt::format("v{}", host);
    if (run(fmt::format("ip link add {0} type veth peer name eth0 netns {1} && "
                        "ip link set {0} master br0 up",
                        cable, pids.back())) != 0) {
      return 77;
    }
  }
  board.go = true;
  return reap(pids, 150) ? 0 : 1;
}
}  // namespace

TEST_CASE("ranks on three hosts find each other, some late, among strangers") {
  Shared<Board> board;
  const pid_t world = start_process([&] { return run_world(*board); });
  int status = 0;
  REQUIRE(waitpid(world, &status, 0) == world);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    return skip("no network namespaces (needs root or CAP_SYS_ADMIN and CAP_NET_ADMIN, and ip)");
  }
  for (int rank = 0; rank < ranks; ++rank) {
    INFO("rank " << rank << ": " << board->text[rank]);
    CHECK(board->hosts_seen[rank] == hosts);
  }
  CHECK(board->done == ranks);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
