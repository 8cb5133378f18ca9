#include "nccl/windows.hpp"

#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "base/exceptions.hpp"
#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"
#include "comm/rank_results.hpp"
#include "nccl/api.hpp"
#include "nccl/device/host_memory.hpp"
#include "nccl/fallback/rank.hpp"

namespace ccl::detail::nccl {
namespace {

/// Handles of windows. That of a window for kernels is an address in GPU memory. The others are
/// small and never freed. So a late use is detected.
struct Handles {
  std::map<ncclWindow_t, std::weak_ptr<RegisteredWindow>> known;  // its `Member` owns a window
  std::deque<char> on_host;  // handles of windows that kernels cannot use are their addresses
  ForkMutex mutex{[this] {
    renew(known);
    renew(on_host);
  }};
};
Handles& handles() {
  static constinit MadeOnce<Handles> all;
  return all.get();
}

ncclWindow_t new_handle(const std::shared_ptr<RegisteredWindow>& window) {
  const std::lock_guard lock{handles().mutex};
  const ncclWindow_t handle =
      window->for_kernels != nullptr
          ? window->for_kernels->handle()
          : reinterpret_cast<ncclWindow_t>(&handles().on_host.emplace_back());
  handles().known[handle] = window;
  return handle;
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

/// Makes a window one that kernels can use. Null if its memory cannot be mapped for them, on all
/// ranks: then it is for calls of the host alone. Collective.
Result<std::shared_ptr<KernelWindow>> for_kernels(const Member& whose, const Communicator& comm,
                                                  const Window& window, int flags) {
  if (comm.device() < 0) return nullptr;
  std::shared_ptr<KernelWindow> made;
  Result<void> mapped = without_exceptions([&]() -> Result<void> {
    CCL_TRY(made, KernelWindow::create(window, flags));
    return {};
  });
  if (comm.ranks() > 1) {
    CommState& state = *Access::state(comm);
    const auto lock = state.rendezvous.lock();
    mapped = all_agree(state, "ncclCommWindowRegister", mapped);
  }
  if (mapped) return made;
  Error why = std::move(mapped).error();
  const bool may_lack = why.code == Errc::not_supported || why.code == Errc::out_of_memory;
  // Kernels of this program would take the handle for a window.
  if (!may_lack || whose.has_kernel_comm()) return fail(std::move(why));
  log_info(LogPart::p2p, "ncclCommWindowRegister gives a window for calls of the host alone: {}",
           why.message());
  return nullptr;
}

Result<ncclWindow_t> finish(Member& whose, const Communicator& comm, Window window, void* memory,
                            int flags) {
  CCL_CHECK(whose.make_signals());
  CCL_TRY(auto view, for_kernels(whose, comm, window, flags));
  const auto registered = std::make_shared<RegisteredWindow>(
      RegisteredWindow{std::move(window), memory, std::move(view)});
  CCL_CHECK(whose.add_window(registered));
  return new_handle(registered);
}

/// Creates a window. On CPU ranks memory of ncclMemAlloc can be mapped by other processes.
Result<Window> create(const Communicator& comm, void* memory, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(memory) % NCCL_WIN_REQUIRED_ALIGNMENT != 0) {
    log_info(LogPart::p2p,
             "ncclCommWindowRegister is given memory at {}, which is no multiple of {} bytes; ccl "
             "takes it, and NCCL itself refuses it",
             memory, NCCL_WIN_REQUIRED_ALIGNMENT);
  }
  auto block = comm.device() < 0 ? host_block_of(memory, bytes) : nullptr;
  if (!block) return Window::create(comm, memory, Index(bytes));
  return WindowState::create_in(comm, static_cast<std::byte*>(memory), Index(bytes),
                                std::move(block));
}

/// Registers on all ranks, with the real NCCL if there is one. As in NCCL, the window is null where
/// ranks cannot address each other's memory, and the program goes on without.
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
  auto window = create(comm, memory, bytes);
  auto handle = window ? finish(whose, comm, *std::move(window), memory, flags)
                       : Result<ncclWindow_t>{fail(std::move(window).error())};
  if (handle) {
    *made = *handle;
    return {};
  }
  Error why = std::move(handle).error();
  if (why.code != Errc::not_supported || whose.has_kernel_comm()) return fail(std::move(why));
  log_info(LogPart::p2p, "ncclCommWindowRegister gives no window: {}", why.message());
  return {};
}

}  // namespace

Result<std::shared_ptr<RegisteredWindow>> window_of(ncclWindow_t window) {
  if (window == nullptr) return no_window("is null");
  const std::lock_guard lock{handles().mutex};
  const auto found = handles().known.find(window);
  if (found == handles().known.end()) {
    return no_window("is none of ccl's, or its communicator has ended");
  }
  auto registered = found->second.lock();
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
