#include "transport/socket/spread.hpp"

#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>

#include "base/io/file.hpp"
#include <sched.h>
#include <unistd.h>

namespace ccl::detail {
namespace {

SocketSpread of_vendor(std::string_view interface, const std::string& sysfs) {
  const std::string vendor =
      first_line(fmt::format("{}/class/net/{}/device/vendor", sysfs, interface));
  if (vendor == "0x1d0f") return {2, 8};  // Amazon
  if (vendor == "0x1ae0") return {4, 1};  // Google
  return {};
}

}  // namespace

Result<SocketSpread> socket_spread(std::string_view interface, const std::string& sysfs) {
  CCL_TRY(const Index threads, setting_integer("SOCKET_NTHREADS"));
  CCL_TRY(const Index each, setting_integer("NSOCKS_PERTHREAD"));
  SocketSpread spread;
  if (threads < 0 || each < 1) spread = of_vendor(interface, sysfs);
  if (threads >= 0) spread.threads = int(threads);
  if (each >= 1) spread.each = int(each);
  spread.each = std::min(spread.each, SocketSpread::max_sockets / (spread.threads + 1));
  return spread;
}

int movers_by_default(int allowed, int online, int local_ranks) {
  const int sharing = std::max(1, (local_ranks * allowed + online - 1) / online);
  return std::clamp(allowed / sharing / 2, 1, 4);
}

Result<int> socket_movers(int local_ranks) {
  CCL_TRY(const Index threads, setting_integer("SOCKET_GPU_NTHREADS"));
  if (threads > 0) return int(threads);
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  const int online = int(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  return movers_by_default(CPU_COUNT(&allowed), online, local_ranks);
}

}  // namespace ccl::detail
