#include "nccl/fallback/library.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"
#include <dlfcn.h>

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

void* open(const std::string& path) {
  // Its own functions call each other, and not those of this library, which may come first in the
  // process. Sanitizers refuse that.
  const bool sanitized = ::dlsym(RTLD_DEFAULT, "__asan_init") != nullptr ||
                         ::dlsym(RTLD_DEFAULT, "__tsan_init") != nullptr;
  return ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | (sanitized ? 0 : RTLD_DEEPBIND));
}

Result<RealNccl> load(const std::string& path) {
  void* const library = open(path);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    return unusable(path, fmt::format("it cannot be loaded: {}", why == nullptr ? "?" : why));
  }
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
  if (found == all.end()) found = all.emplace(path, load(path)).first;
  if (!found->second) return fail(found->second.error());
  return &*found->second;
}

}  // namespace ccl::detail::nccl
