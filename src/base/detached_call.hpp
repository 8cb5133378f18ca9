#pragma once

#include <ccl/types/result.hpp>

#include <chrono>
#include <future>
#include <memory>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>

#include "base/thread.hpp"

namespace ccl::detail {

/// Starts `call` on a detached thread, for calls of other libraries that may never return.
///
/// A caller that gives up abandons the thread. The thread ends when `call` returns, and drops the
/// result. So `call` must own all that it uses, and may run until the process ends.
template <class F>
Result<std::shared_future<std::invoke_result_t<F>>> start_detached(std::string_view what, F call) {
  using Task = std::packaged_task<std::invoke_result_t<F>()>;
  const auto task = std::make_shared<Task>(std::move(call));
  auto result = task->get_future().share();
  CCL_TRY(std::thread thread, own_thread(what, [task] { (*task)(); }));
  thread.detach();
  return result;
}

/// Waits for the result of a detached call, at most `limit_s` seconds. Returns true if it is there.
template <class T>
bool returns_within(const std::shared_future<T>& result, double limit_s) {
  return result.wait_for(std::chrono::duration<double>(limit_s)) == std::future_status::ready;
}

}  // namespace ccl::detail
