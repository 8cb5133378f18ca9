#pragma once

// What the library that CCL_NCCL_FALLBACK names in tests has done: see nccl_fallback_library.cpp.
#include <dlfcn.h>

namespace ccl::test {

/// Number of the library's calls of a kind, or of what it made and has not ended.
inline int made_by(const char* library, const char* what) {
  void* const at = ::dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  if (at == nullptr) return -1;
  const auto count = reinterpret_cast<int (*)(const char*)>(::dlsym(at, "fake_nccl_count"));
  const int now = count(what);
  ::dlclose(at);
  return now;
}

}  // namespace ccl::test
