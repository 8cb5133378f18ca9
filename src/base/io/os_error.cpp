#include "base/io/os_error.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/host_id.hpp>

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include <sys/resource.h>

namespace ccl::detail {
namespace {

std::atomic<int> shortage{0};  // the last EMFILE or ENFILE
std::atomic<bool> reported{false};

std::string remedy(int os_code) {
  if (os_code == ENFILE) return "raise fs.file-max, which the whole host has used up";
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return fmt::format("raise ulimit -n, which is {} here", limit.rlim_cur);
}

}  // namespace

Error of_rank(int rank, Error error) {
  error.rank = rank;
  error.host = host_name();
  return error;
}

std::string descriptor_hint(int os_code) {
  if (os_code != EMFILE && os_code != ENFILE) return {};
  shortage.store(os_code, std::memory_order_relaxed);
  return fmt::format("; {}", remedy(os_code));
}

void note_descriptors(std::string_view what, int os_code) {
  const std::string hint = descriptor_hint(os_code);
  if (hint.empty() || reported.exchange(true)) return;
  log_warn(LogPart::net, "{} (no file descriptor is left), and tries again{}", what, hint);
}

Error with_shortage(Error error) {
  const int joined = shortage.load(std::memory_order_relaxed);
  const bool in_vain = error.code == Errc::timed_out || error.code == Errc::network ||
                       error.code == Errc::refused || error.code == Errc::peer_lost;
  constexpr std::string_view ran_out = "this process ran out of file descriptors";
  if (joined == 0 || !in_vain || error.os_code == joined ||
      error.what.find(ran_out) != std::string::npos) {
    return error;
  }
  error.what += fmt::format("; {}: {}", ran_out, remedy(joined));
  return error;
}

Error os_error(Errc code, std::string what, int os_code) {
  Error error;
  error.code = code;
  error.what = std::move(what) + descriptor_hint(os_code);
  error.os_code = os_code;
  return error;
}

}  // namespace ccl::detail
