#include "base/io/mapping.hpp"

#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "base/io/os_error.hpp"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

namespace ccl::detail {
namespace {
Result<std::byte*> map(std::size_t bytes, int flags, int fd) {
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (base != MAP_FAILED) return static_cast<std::byte*>(base);
  const int os_code = errno;
  return fail(
      os_error(Errc::out_of_memory,
               fmt::format("cannot map {} bytes of slots ({}); fewer or smaller slots need less",
                           bytes, std::strerror(os_code)),
               os_code));
}
}  // namespace

Mapping::~Mapping() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}
Result<Mapping> Mapping::anonymous(std::size_t bytes) {
  CCL_TRY(std::byte* const base, map(bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1));
  return Mapping{base, bytes};
}
Result<Mapping> Mapping::of(const Fd& fd, std::size_t bytes) {
  CCL_TRY(std::byte* const base, map(bytes, MAP_SHARED, fd.get()));
  return Mapping{base, bytes};
}

bool keeps_size(const Fd& fd, std::size_t bytes) {
  struct stat file {};
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  return ::fstat(fd.get(), &file) == 0 && std::size_t(file.st_size) == bytes && seals >= 0 &&
         (seals & F_SEAL_SHRINK) != 0;
}

Result<Fd> shareable_memory(const char* name, std::size_t bytes) {
  rlimit longest{};
  // A process that makes a longer file is killed (SIGXFSZ).
  if (::getrlimit(RLIMIT_FSIZE, &longest) == 0 && bytes > longest.rlim_cur) {
    return fail(os_error(Errc::out_of_memory,
                         fmt::format("cannot make {} bytes of shared memory (they count as a file, "
                                     "which may have {} here); raise ulimit -f",
                                     bytes, longest.rlim_cur),
                         EFBIG));
  }
  Fd memory{::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  const Errc code = memory ? Errc::out_of_memory : Errc::system;
  if (!memory || ::ftruncate(memory.get(), off_t(bytes)) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const int os_code = errno;
    // If descriptors ran out, `os_error` adds the advice.
    const char* const help = memory ? "; fewer or smaller slots need less"
                             : os_code == ENOSYS || os_code == EPERM || os_code == EACCES
                                 ? "; let the container call memfd_create, or set CCL_SHM_DISABLE=1"
                                 : "";
    return fail(os_error(code,
                         fmt::format("cannot make {} bytes of shared memory ({}){}", bytes,
                                     std::strerror(os_code), help),
                         os_code));
  }
  log_trace(LogPart::alloc, "{}: {} bytes of shared memory", name, bytes);
  return memory;
}

}  // namespace ccl::detail
