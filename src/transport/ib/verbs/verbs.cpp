#include "transport/ib/verbs/verbs.hpp"

#include <fmt/format.h>

#include <atomic>
#include <type_traits>

#include "base/made_once.hpp"
#include <dlfcn.h>

namespace ccl::detail {
namespace {

struct OpenedVerbs {
  Verbs verbs;
  std::string problem;
};

OpenedVerbs open_library() {
  OpenedVerbs opened;
  void* const library = ::dlopen("libibverbs.so.1", RTLD_NOW);  // never closed
  if (library == nullptr) {
    const char* const why = ::dlerror();
    opened.problem = fmt::format("there is no libibverbs ({}); install rdma-core's",
                                 why != nullptr ? why : "libibverbs.so.1 was not found");
    return opened;
  }
  const char* missing = nullptr;
  const auto find = [&](auto& to, const char* symbol) {
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(::dlsym(library, symbol));
    if (to == nullptr && missing == nullptr) missing = symbol;
  };
#define CCL_VERBS_TEXT(function) #function
#define CCL_VERBS_FIND(member, function) find(opened.verbs.member, CCL_VERBS_TEXT(function));
  CCL_VERBS_CALLS(CCL_VERBS_FIND)
#undef CCL_VERBS_FIND
#undef CCL_VERBS_TEXT
  void* const dma_buf = ::dlsym(library, "ibv_reg_dmabuf_mr");
  opened.verbs.reg_dmabuf_mr = reinterpret_cast<decltype(opened.verbs.reg_dmabuf_mr)>(dma_buf);
  if (missing != nullptr) {
    opened.problem = fmt::format(
        "libibverbs is too old (it has no {}); install that of rdma-core 32 or later", missing);
  } else {
    (void)opened.verbs.fork_init();  // programs fork; kernels before 5.12 require it
  }
  return opened;
}

std::atomic<const Verbs*> replaced_verbs{nullptr};

}  // namespace

Result<const Verbs*> verbs() {
  if (const Verbs* const instead = replaced_verbs.load()) return instead;
  static constinit MadeOnce<const OpenedVerbs> known;
  const OpenedVerbs& opened =
      known.get([] { return std::make_unique<const OpenedVerbs>(open_library()); });
  if (!opened.problem.empty()) return fail(Errc::not_supported, opened.problem);
  return &opened.verbs;
}

void use_verbs(const Verbs* instead) {
  replaced_verbs.store(instead);
}

bool verbs_are_replaced() {
  return replaced_verbs.load() != nullptr;
}

}  // namespace ccl::detail
