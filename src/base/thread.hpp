#pragma once

#include <ccl/types/result.hpp>

#include <functional>
#include <string_view>
#include <thread>

namespace ccl::detail {

/// Keeps the shared library that contains ccl loaded after `dlclose`, because threads run its code
/// until they end. The first call takes the loader's lock: call it without a lock that a library's
/// constructor may need.
void stay_loaded();

/// Starts a thread of ccl with all signals blocked, since signals belong to the program's threads.
/// `what` names its purpose in the error if the process or its user may have no further thread.
Result<std::thread> own_thread(std::string_view what, std::function<void()> body);

}  // namespace ccl::detail
