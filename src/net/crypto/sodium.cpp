#include "net/crypto/sodium.hpp"

#include <atomic>
#include <string>
#include <type_traits>

#include "base/made_once.hpp"
#include <dlfcn.h>

namespace ccl::detail::net {
namespace {

struct OpenedSodium {
  Sodium calls;
  std::string problem;
};

OpenedSodium open_library() {
  OpenedSodium opened;
  void* library = nullptr;  // never closed
  for (const char* name : {"libsodium.so.23", "libsodium.so.26"}) {
    if (library == nullptr) library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    opened.problem = "there is no libsodium; install the package libsodium23";
    return opened;
  }
  const char* missing = nullptr;
  const auto find = [&](auto& to, const char* symbol) {
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(::dlsym(library, symbol));
    if (to == nullptr && missing == nullptr) missing = symbol;
  };
#define CCL_SODIUM_FIND(member, function, parameters) find(opened.calls.member, #function);
  CCL_SODIUM_CALLS(CCL_SODIUM_FIND)
#undef CCL_SODIUM_FIND
  int (*start)() = nullptr;
  find(start, "sodium_init");
  if (missing != nullptr) {
    opened.problem = std::string{"libsodium has no "} + missing + "; install 1.0.18 or later";
  } else if (start() < 0) {
    opened.problem = "libsodium cannot start (sodium_init failed)";
  }
  return opened;
}

const OpenedSodium& opened_sodium() {
  static constinit MadeOnce<const OpenedSodium> opened;
  return opened.get([] { return std::make_unique<const OpenedSodium>(open_library()); });
}

std::atomic<bool> hidden_sodium{false};

}  // namespace

bool has_sodium() {
  return !hidden_sodium.load() && opened_sodium().problem.empty();
}

const Sodium& sodium() {
  return opened_sodium().calls;
}

const char* sodium_problem() {
  const std::string& problem = opened_sodium().problem;
  return problem.empty() ? "a test has hidden libsodium" : problem.c_str();
}

void hide_sodium(bool hidden) {
  hidden_sodium.store(hidden);
}

}  // namespace ccl::detail::net
