#include "nccl/windows.hpp"

#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <deque>
#include <limits>
#include <mutex>
#include <set>
#include <utility>

#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"
#include "nccl/api.hpp"
#include "nccl/fallback/rank.hpp"

/// Target of NCCL's window. Handles are small and never freed, so a late use is detected.
struct ncclWindow_vidmem {
  std::weak_ptr<ccl::detail::nccl::RegisteredWindow> registered;  // its `Member` owns it
};

namespace ccl::detail::nccl {
namespace {

struct Handles {
  std::deque<ncclWindow_vidmem> all;
  std::set<ncclWindow_t> known;  // those in `all`: another handle may be no address of this process
  ForkMutex mutex{[this] {
    renew(all);
    renew(known);
  }};
};
Handles& handles() {
  static constinit MadeOnce<Handles> all;
  return all.get();
}

ncclWindow_t new_handle(Member& whose, Window window, void* memory) {
  auto registered = std::make_shared<RegisteredWindow>(std::move(window), memory);
  whose.add_window(registered);
  const std::lock_guard lock{handles().mutex};
  auto& made = handles().all.emplace_back();
  made.registered = std::move(registered);
  handles().known.insert(&made);
  return &made;
}

cuda::std::unexpected<Error> no_window(const char* what) {
  return fail(Errc::invalid_argument,
              fmt::format("the window {}; pass one that ncclCommWindowRegister gave", what));
}

/// Takes a window from its rank. Its handle is an ended one from now on.
Result<std::shared_ptr<RegisteredWindow>> take_from(Member& whose, ncclWindow_t window) {
  CCL_TRY(auto registered, window_of(window));
  if (whose.drop_window(registered.get())) return registered;
  return no_window("belongs to another communicator, or was deregistered meanwhile");
}

Result<void> check_flags(int flags) {
  constexpr int known = NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING;
  if ((flags & (NCCL_WIN_GIN_ONLY | NCCL_WIN_CFT_COUNTED)) != 0) {
    return fail(Errc::not_supported,
                fmt::format("winFlags are {} (ccl has no GIN and no CFT); leave NCCL_WIN_GIN_ONLY "
                            "and NCCL_WIN_CFT_COUNTED out",
                            flags));
  }
  if ((flags & ~known) == 0) return {};
  return fail(Errc::invalid_argument,
              fmt::format("winFlags are {}, which is none of NCCL's; pass NCCL_WIN_DEFAULT or "
                          "NCCL_WIN_COLL_SYMMETRIC",
                          flags));
}

/// Registers on all ranks, with the real NCCL if there is one: only its windows are for kernels.
/// As in NCCL, the window is null where ranks cannot address each other's
/// memory, and the program goes on without.
Result<void> register_on(Member& whose, void* memory, std::size_t bytes, ncclWindow_t* made,
                         int flags) {
  CCL_CHECK(whose.usable());
  CCL_TRY(const auto comm, whose.ready());
  if (const auto real = whose.real()) {
    CCL_CHECK(real->call(real->library().CommWindowRegister, "ncclCommWindowRegister", real->comm(),
                         memory, bytes, made, flags));
    if (*made != nullptr) keep_window(real, *made);
    return {};
  }
  auto window = Window::create(comm, memory, Index(bytes));
  auto signals = window ? whose.make_signals() : Result<void>{};
  if (window && signals) {
    *made = new_handle(whose, *std::move(window), memory);
    return {};
  }
  Error why = window ? std::move(signals).error() : std::move(window).error();
  if (why.code != Errc::not_supported) return fail(std::move(why));
  log_info(LogPart::p2p, "ncclCommWindowRegister gives no window: {}", why.message());
  return {};
}

}  // namespace

Result<std::shared_ptr<RegisteredWindow>> window_of(ncclWindow_t window) {
  if (window == nullptr) return no_window("is null");
  const std::lock_guard lock{handles().mutex};
  if (!handles().known.contains(window)) {
    return no_window("is none of ccl's, or its communicator has ended");
  }
  auto registered = window->registered.lock();
  if (!registered) return no_window("was deregistered, or its communicator has ended");
  return registered;
}

Result<std::byte*> part_of(const RegisteredWindow& window, int rank, std::size_t offset,
                           std::size_t bytes) {
  const Window& of = window.window;
  if (rank < 0 || rank >= of.ranks()) {
    return fail(Errc::invalid_argument,
                fmt::format("the window has no rank {}; it has 0 to {}", rank, of.ranks() - 1));
  }
  if (offset > std::size_t(of.bytes()) || bytes > std::size_t(of.bytes()) - offset) {
    return fail(Errc::invalid_argument,
                fmt::format("{} bytes from offset {} on do not lie within the window's {}", bytes,
                            offset, of.bytes()));
  }
  return of.at(rank) + offset;
}

}  // namespace ccl::detail::nccl

using namespace ccl::detail::nccl;

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* memory, std::size_t bytes,
                                    ncclWindow_t* made, int flags) {
  return answer_in_group([&]() -> ccl::Result<void> {
    CCL_CHECK(check_given(made, "win"));
    *made = nullptr;
    CCL_TRY(auto member, member_of(comm));
    if (member->real() == nullptr) CCL_CHECK(check_flags(flags));
    if (bytes > std::size_t(std::numeric_limits<ccl::Index>::max())) {
      return ccl::fail(ccl::Errc::invalid_argument,
                       fmt::format("{} bytes are more than memory has", bytes));
    }
    Member& whose = *member;
    return Group::of_this_thread().submit(
        std::move(member), [=, &whose] { return register_on(whose, memory, bytes, made, flags); });
  });
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return answer_in_group([&]() -> ccl::Result<void> {
    CCL_TRY(auto member, member_of(comm));
    if (window == nullptr) return {};
    if (const auto maker = maker_of(window)) {
      return Group::of_this_thread().submit(std::move(member), [maker, window] {
        forget_window(window);
        return maker->call(maker->library().CommWindowDeregister, "ncclCommWindowDeregister",
                           maker->comm(), window);
      });
    }
    CCL_TRY(const auto registered, take_from(*member, window));
    // Ends with this step, without the other ranks: their mappings of this memory are their own.
    return Group::of_this_thread().submit_launch(
        std::move(member), [registered]() -> ccl::Result<void> { return {}; });
  });
}

ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t window, void** memory) {
  return answer([&]() -> ccl::Result<void> {
    CCL_CHECK(check_given(memory, "outUserPtr"));
    *memory = nullptr;
    CCL_TRY(const auto member, member_of(comm));
    if (const auto maker = maker_of(window)) {
      return maker->call(maker->library().WinGetUserPtr, "ncclWinGetUserPtr", maker->comm(), window,
                         memory);
    }
    CCL_TRY(const auto registered, window_of(window));
    *memory = registered->memory;
    return {};
  });
}

CCL_NCCL_ALSO_P(ncclCommWindowRegister);
CCL_NCCL_ALSO_P(ncclCommWindowDeregister);
CCL_NCCL_ALSO_P(ncclWinGetUserPtr);
