#include "base/file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/os_error.hpp"

namespace ccl::detail {

Result<std::string> whole_file(const std::string& path) {
  constexpr std::size_t most = std::size_t{64} << 20;
  std::ifstream in{path, std::ios::binary};
  std::string text;
  std::vector<char> piece(std::size_t{1} << 16);
  while (text.size() <= most && in) {
    in.read(piece.data(), std::streamsize(piece.size()));
    text.append(piece.data(), std::size_t(in.gcount()));
  }
  if (text.size() > most) {
    return fail(
        Errc::invalid_argument,
        fmt::format("{} is too long (it goes on after {} bytes); name another file", path, most));
  }
  if (in.eof() && !in.bad()) return text;
  const int os_code = errno;
  return fail(os_error(Errc::system,
                       fmt::format("cannot read {} ({}); check the name and permissions", path,
                                   std::strerror(os_code)),
                       os_code));
}

}  // namespace ccl::detail
