#include "comm/creation.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/exceptions.hpp"
#include "net/message_rules.hpp"

namespace ccl::detail {

Result<void> check_shape(int rank, int ranks) {
  if (ranks > net::max_ranks) {
    return fail(Errc::invalid_argument,
                fmt::format("{} ranks are too many for a communicator; it has at most {}", ranks,
                            net::max_ranks));
  }
  if (ranks >= 1 && rank >= 0 && rank < ranks) return {};
  return fail(Errc::invalid_argument,
              fmt::format("rank {} of {} ranks cannot be (ranks are 0 to size - 1, and there is at "
                          "least one)",
                          rank, ranks));
}

bool Creation::fail_while_running(Status& status, const Error& error) {
  const std::lock_guard lock{mutex_};
  status.set(error);
  return running();
}

void Creation::fail(Error error, Status& status) noexcept {
  failure_ = std::move(error);
  if (!completes([&] { status.set(*failure_); })) status.set(brief_error(failure_->code));
}

void Creation::cancel() {
  running_ = false;
}

void Creation::finish(const Status& status, Bootstrap* bootstrap) noexcept {
  {
    const std::lock_guard lock{mutex_};
    running_.store(false, std::memory_order_release);
  }
  // A thread that aborted earlier did not use the bootstrap, so this thread sends the error.
  if (!status.ok() && !failure_ && bootstrap != nullptr) {
    const auto well = without_exceptions([&] { return status.result(); },
                                         [](Error thrown) { return brief_error(thrown.code); });
    bootstrap->abort(well.error());
  }
  ended_.notify_all();
}

void Creation::wait() {
  std::unique_lock lock{mutex_};
  ended_.wait(lock, [this] { return !running(); });
}

}  // namespace ccl::detail
