#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/window.hpp>

#include <cstddef>
#include <memory>

#include "comm/edges/window_state.hpp"

namespace ccl::detail {

inline constexpr const char* window_name = "a window";  // in errors

/// Creates the window of `bytes` bytes at `data`, which lie in `own` if that is given. All ranks
/// must call it.
Result<std::shared_ptr<WindowState>> make_window(const Communicator& comm, std::byte* data,
                                                 Index bytes, WindowReach reach,
                                                 std::shared_ptr<SharedBlock> own);

}  // namespace ccl::detail
