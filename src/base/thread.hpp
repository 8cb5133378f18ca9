#pragma once

#include <ccl/types/result.hpp>

#include <functional>
#include <string_view>
#include <thread>

namespace ccl::detail {

/// Where ccl is part of a shared library, `dlclose` leaves that in place from now on: threads that
/// end by themselves, a little after what they served, still run its code. With no lock held that a
/// library's constructors may want: the first call takes the loader's.
void stay_loaded();

/// A thread of ccl's own. Signals are for the program's threads: this one takes none. `what` it is
/// for stands in the error, where the process or its user may have no further thread.
Result<std::thread> own_thread(std::string_view what, std::function<void()> body);

}  // namespace ccl::detail
