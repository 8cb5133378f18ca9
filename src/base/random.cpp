#include "base/random.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include <sys/random.h>

namespace ccl::detail {

Result<void> fill_random(void* to, std::size_t bytes) {
  if (::getrandom(to, bytes, 0) == ssize_t(bytes)) return {};
  return fail(Errc::system, fmt::format("no random bytes ({})", std::strerror(errno)));
}

}  // namespace ccl::detail
