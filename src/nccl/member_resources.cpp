#include <ccl/element/data_type.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "nccl/member.hpp"

// Resources of a member that its program made: memory, windows, signals and reductions.
namespace ccl::detail::nccl {

Result<void*> Member::add_memory(void* memory, std::size_t bytes) {
  CCL_TRY(const Communicator comm, ready());
  if (bytes > std::size_t(std::numeric_limits<Index>::max())) {
    return fail(Errc::invalid_argument, fmt::format("{} bytes are more than memory has", bytes));
  }
  // A revoked one registers as before: other communicators use the memory, too.
  CCL_TRY(auto registered, is_revoked() ? register_buffer(comm.rank(), memory, Index(bytes))
                                        : RegisteredBuffer::create(comm, memory, Index(bytes)));
  const std::lock_guard lock{mutex_};
  return &memory_.emplace_back(std::move(registered));
}

Result<void> Member::drop_memory(const void* handle) {
  if (handle == nullptr) return {};   // as NCCL
  std::list<RegisteredBuffer> ended;  // outside of the lock
  const std::lock_guard lock{mutex_};
  for (auto one = memory_.begin(); one != memory_.end(); ++one) {
    if (&*one != handle) continue;
    ended.splice(ended.end(), memory_, one);
    return {};
  }
  return fail(Errc::invalid_argument,
              fmt::format("{} is no registration of this communicator; pass a handle that "
                          "ncclCommRegister gave, once",
                          handle));
}

void Member::add_window(std::shared_ptr<RegisteredWindow> window) {
  const std::lock_guard lock{mutex_};
  windows_.push_back(std::move(window));
}

bool Member::has_window(const RegisteredWindow* window) const {
  const std::lock_guard lock{mutex_};
  return std::any_of(windows_.begin(), windows_.end(),
                     [window](const auto& one) { return one.get() == window; });
}
bool Member::drop_window(const RegisteredWindow* window) {
  const std::lock_guard lock{mutex_};
  return std::erase_if(windows_, [window](const auto& one) { return one.get() == window; }) > 0;
}

Result<void> Member::make_signals() {
  CCL_TRY(const Communicator comm, ready());
  {
    const std::lock_guard lock{mutex_};
    if (signals_) return {};
  }
  CCL_TRY(auto made, Signals::create(comm, config.signal_contexts, config.signals));
  const std::lock_guard lock{mutex_};
  signals_ = std::move(made);
  return {};
}

Result<std::shared_ptr<Signals>> Member::signals() const {
  const std::lock_guard lock{mutex_};
  CCL_CHECK(check_usable());
  if (signals_) return signals_;
  return fail(Errc::invalid_usage,
              "the communicator has no signals yet; register a window before, which all ranks do, "
              "or create it with config.rmaEagerInit = 1");
}

int Member::add_scaling(const RedOp& op, DataType type) {
  // Numbers of the process, so that a reduction of another communicator is not taken for one of
  // this one. They begin anew after all that `ncclRedOp_t` has: a job may make one for each step.
  constexpr unsigned numbers = unsigned(std::numeric_limits<int>::max()) - ncclNumOps;
  static std::atomic<unsigned> made{0};
  const int number = ncclNumOps + int(made.fetch_add(1, std::memory_order_relaxed) % numbers);
  const std::lock_guard lock{mutex_};
  scalings_.push_back({number, op, type});
  return number;
}
Result<std::size_t> Member::find_scaling(int number) const {
  const auto found = std::find_if(scalings_.begin(), scalings_.end(),
                                  [&](const Scaling& one) { return one.number == number; });
  if (found != scalings_.end()) return std::size_t(found - scalings_.begin());
  return fail(Errc::invalid_argument,
              fmt::format("there is no reduction {}; pass one of NCCL's five, or one that "
                          "ncclRedOpCreatePreMulSum made for this communicator",
                          number));
}
Result<RedOp> Member::scaling(int number, DataType type) const {
  const std::lock_guard lock{mutex_};
  CCL_TRY(const std::size_t at, find_scaling(number));
  const Scaling& found = scalings_[at];
  if (type == found.type) return found.op;  // its scalar in memory is of that type
  return fail(Errc::invalid_argument,
              fmt::format("reduction {} was made for {}, not for {}; make one for each type",
                          number, name(found.type), name(type)));
}
Result<void> Member::drop_scaling(int number) {
  const std::lock_guard lock{mutex_};
  CCL_TRY(const std::size_t at, find_scaling(number));
  scalings_.erase(scalings_.begin() + std::ptrdiff_t(at));
  return {};
}

}  // namespace ccl::detail::nccl
