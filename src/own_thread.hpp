#pragma once

#include <ccl/result.hpp>

#include <functional>
#include <string_view>
#include <thread>

namespace ccl::detail {

/// A thread of ccl's own. Signals are for the program's threads: this one takes none. `what` it is
/// for stands in the error, where the process or its user may have no further thread.
Result<std::thread> own_thread(std::string_view what, std::function<void()> body);

}  // namespace ccl::detail
