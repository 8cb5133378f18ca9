#include "nccl/fallback/library.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/fork_mutex.hpp"
#include "base/io/fd.hpp"
#include "base/io/mapping.hpp"
#include "base/io/os_error.hpp"
#include "base/made_once.hpp"
#include "nccl/fallback/multicast.hpp"
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

namespace ccl::detail::nccl {
namespace {

Errc code_of(ncclResult_t code) {
  switch (code) {
    case ncclUnhandledCudaError:
      return Errc::cuda;
    case ncclSystemError:
      return Errc::system;
    case ncclInvalidArgument:
      return Errc::invalid_argument;
    case ncclInvalidUsage:
      return Errc::invalid_usage;
    case ncclRemoteError:
      return Errc::peer_lost;
    case ncclInProgress:
      return Errc::in_progress;
    case ncclTimeout:
      return Errc::timed_out;
    default:
      return Errc::internal;
  }
}

cuda::std::unexpected<Error> unusable(const std::string& path, const std::string& why) {
  return fail(Errc::bad_setting, fmt::format("CCL_NCCL_FALLBACK is {} ({}); name a libnccl.so.2 of "
                                             "NVIDIA, or leave it out",
                                             path, why));
}

/// Opens a library whose own functions call each other, and not those of this library, which may
/// come first in the process. Sanitizers refuse that.
void* open(const std::string& path) {
  const bool sanitized = ::dlsym(RTLD_DEFAULT, "__asan_init") != nullptr ||
                         ::dlsym(RTLD_DEFAULT, "__tsan_init") != nullptr;
  return ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | (sanitized ? 0 : RTLD_DEEPBIND));
}

bool is_loaded(const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  if (library == nullptr) return false;
  ::dlclose(library);
  return true;
}

/// Returns a copy of the file in memory.
Result<Fd> copy_of(const std::string& path) {
  const auto cannot = [&path](const char* what) {
    const int code = errno;
    return fail(os_error(Errc::system,
                         fmt::format("cannot {} {} ({})", what, path, std::strerror(code)), code));
  };
  const Fd from{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  struct stat file {};
  if (!from || ::fstat(from.get(), &file) != 0) return cannot("read");
  CCL_TRY(Fd copy, shareable_memory("libnccl.so.2", std::size_t(file.st_size)));
  for (off_t at = 0; at < file.st_size;) {
    const ssize_t n = ::sendfile(copy.get(), from.get(), &at, std::size_t(file.st_size - at));
    if (n == 0 || (n < 0 && errno != EINTR)) return cannot("copy");
  }
  return copy;
}

/// Loads the library. If the process has loaded it already, its functions call those that came
/// first, which may be this library's. So a copy of it is loaded then.
Result<void*> open_apart(const std::string& path) {
  const auto unloadable = [&path] {
    const char* const why = ::dlerror();
    return unusable(path, fmt::format("it cannot be loaded: {}", why == nullptr ? "?" : why));
  };
  if (!is_loaded(path)) {
    if (void* const library = open(path)) return library;
    return unloadable();
  }
  auto copy = copy_of(path);
  if (!copy) {
    return unusable(path, fmt::format("the process has loaded it already, and it cannot be copied: "
                                      "{}; name a copy of it",
                                      copy.error().what));
  }
  // The loader knows it by this name, so no other file may have its number.
  const int number = copy->release();
  if (void* const library = open(fmt::format("/proc/self/fd/{}", number))) return library;
  return unloadable();
}

Result<RealNccl> load(const std::string& path) {
  CCL_TRY(void* const library, open_apart(path));
  if (::dlsym(library, "cclCommStatus") != nullptr)
    return unusable(path, "it is ccl's own library");
  RealNccl all;
  const char* missing = nullptr;
  const auto take = [&]<class F>(F& where, const char* name) {
    where = reinterpret_cast<F>(::dlsym(library, name));
    return where != nullptr;
  };
#define CCL_NCCL_TAKE(name) \
  if (!take(all.name, "nccl" #name)) missing = "nccl" #name;
  CCL_NCCL_NEEDED(CCL_NCCL_TAKE)
#undef CCL_NCCL_TAKE
  if (missing != nullptr) return unusable(path, fmt::format("it has no {}", missing));
#define CCL_NCCL_TAKE(name) (void)take(all.name, "nccl" #name);
  CCL_NCCL_LATER(CCL_NCCL_TAKE)
#undef CCL_NCCL_TAKE
  if (all.GetVersion(&all.version) != ncclSuccess) return unusable(path, "it has no version");
  log_info(LogPart::init, "NCCL {} of {} does what ccl cannot do (CCL_NCCL_FALLBACK)", all.version,
           path);
  return all;
}

}  // namespace

Result<void> RealNccl::check(ncclResult_t code, const char* function, ncclComm_t comm) const {
  if (code == ncclSuccess) return {};
  const char* const text = GetLastError(comm);
  return fail(code_of(code), fmt::format("{} of the NCCL that CCL_NCCL_FALLBACK names failed ({}: "
                                         "{}); its own log says more (NCCL_DEBUG=INFO)",
                                         function, int(code), text == nullptr ? "" : text));
}

Result<const RealNccl*> real_nccl() {
  CCL_TRY(const std::string path, setting_text("NCCL_FALLBACK"));
  if (path.empty()) return nullptr;
  struct Loaded {
    std::map<std::string, Result<RealNccl>> all;  // by path
    ForkMutex mutex{[this] { renew(all); }};
  };
  static constinit MadeOnce<Loaded> loaded;  // until the process ends
  const std::lock_guard lock{loaded.get().mutex};
  auto& all = loaded.get().all;
  auto found = all.find(path);
  if (found == all.end()) {
    CCL_CHECK(keep_multicast_off());
    found = all.emplace(path, load(path)).first;
  }
  if (!found->second) return fail(found->second.error());
  return &*found->second;
}

}  // namespace ccl::detail::nccl
