#include "base/numa.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "base/io/file.hpp"
#include "base/made_once.hpp"
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ccl::detail {
namespace {

/// Parses "0-3,8" to single numbers.
std::vector<int> numbers_of(const std::string& list) {
  std::vector<int> numbers;
  const char* at = list.c_str();
  while (*at >= '0' && *at <= '9') {
    char* end = nullptr;
    const long first = std::strtol(at, &end, 10);
    const long last = *end == '-' ? std::strtol(end + 1, &end, 10) : first;
    for (long n = first; n <= last && n < CPU_SETSIZE; ++n) numbers.push_back(static_cast<int>(n));
    at = *end == ',' ? end + 1 : end;
  }
  return numbers;
}

std::vector<int> read_list(const std::string& path) {
  return numbers_of(first_line(path));
}

}  // namespace

int bound_numa_node() {
  const std::string root = "/sys/devices/system/node/";
  // The nodes of a running machine do not change, so this list is read once.
  static constinit MadeOnce<const std::vector<int>> known;
  const std::vector<int>& nodes = known.get(
      [&] { return std::make_unique<const std::vector<int>>(read_list(root + "online")); });
  if (nodes.size() < 2) return nodes.empty() ? -1 : nodes[0];
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return -1;
  int rest = CPU_COUNT(&allowed);
  for (const int node : nodes) {
    int here = 0;
    for (const int cpu : read_list(fmt::format("{}node{}/cpulist", root, node))) {
      here += CPU_ISSET(static_cast<std::size_t>(cpu), &allowed) ? 1 : 0;
    }
    if (here == rest) return node;
    if (here > 0) return -1;
  }
  return -1;
}

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cpus;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(static_cast<int>(cpu));
  }
  return cpus;
}

void run_on(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) {
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(static_cast<std::size_t>(cpu), &set);
  }
  (void)::sched_setaffinity(0, sizeof set, &set);
}

void prefer_node(void* at, std::size_t bytes, int node) {
  constexpr int nodes = 1024, bits = std::numeric_limits<unsigned long>::digits;
  if (node < 0 || node >= nodes) return;
  std::array<unsigned long, nodes / bits> mask{};
  mask[std::size_t(node / bits)] = 1ul << (node % bits);
  (void)::syscall(SYS_mbind, at, bytes, MPOL_PREFERRED, mask.data(), nodes, 0);
}

OnCpus::OnCpus(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  before_ = allowed_cpus();
  if (before_.empty()) return;  // nothing could be restored
  run_on(cpus);
}

OnCpus::~OnCpus() {
  run_on(before_);
}

}  // namespace ccl::detail
