#include "transport/socket_spread.hpp"

#include <ccl/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

namespace ccl::detail {
namespace {

SocketSpread of_vendor(std::string_view interface, const std::string& sysfs) {
  std::ifstream file{fmt::format("{}/class/net/{}/device/vendor", sysfs, interface)};
  std::string vendor;
  file >> vendor;
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
  spread.each = std::min(spread.each, SocketSpread::most_sockets / (spread.threads + 1));
  return spread;
}

}  // namespace ccl::detail
