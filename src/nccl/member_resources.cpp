#include <ccl/comm/log.hpp>
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

#include "nccl/device/kernel_comm.hpp"
#include "nccl/member.hpp"
#include "nccl/windows.hpp"

// Resources of a member that its program made: memory, windows, signals and reductions.
namespace ccl::detail::nccl {
namespace {

Result<void> add_to(WindowTable& table, const RegisteredWindow& window) {
  if (window.for_kernels == nullptr) return {};
  return table.add(window.memory, std::size_t(window.window.bytes()), window.for_kernels->handle());
}

}  // namespace

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

Result<void> Member::add_window(std::shared_ptr<RegisteredWindow> window) {
  const std::lock_guard lock{mutex_};
  if (window_table_ != nullptr) CCL_CHECK(add_to(*window_table_, *window));
  windows_.push_back(std::move(window));
  return {};
}

bool Member::has_window(const RegisteredWindow* window) const {
  const std::lock_guard lock{mutex_};
  return std::any_of(windows_.begin(), windows_.end(),
                     [window](const auto& one) { return one.get() == window; });
}
bool Member::drop_window(const RegisteredWindow* window) {
  std::shared_ptr<RegisteredWindow> dropped;  // outlives the lock
  const std::lock_guard lock{mutex_};
  const auto found =
      std::ranges::find_if(windows_, [window](const auto& one) { return one.get() == window; });
  if (found == windows_.end()) return false;
  dropped = std::move(*found);
  windows_.erase(found);
  if (window_table_ == nullptr || dropped->for_kernels == nullptr) return true;
  if (auto removed = window_table_->remove(dropped->for_kernels->handle()); !removed) {
    log_warn(LogPart::alloc, "a window stays in the table of kernels: {}",
             removed.error().message());
  }
  return true;
}

/// Returns the table, which has all windows of the rank that kernels can use.
Result<WindowTable*> Member::window_table() {
  const std::lock_guard lock{mutex_};
  if (window_table_ != nullptr) return window_table_.get();
  CCL_TRY(auto made, WindowTable::create(comm_->device()));
  for (const auto& window : windows_) CCL_CHECK(add_to(*made, *window));
  window_table_ = std::move(made);
  return window_table_.get();
}

Result<void> Member::make_kernel_comm(const void* wants, void* made) {
  CCL_CHECK(usable());
  CCL_TRY(const Communicator comm, ready());
  CCL_TRY(auto created, KernelComm::create(comm, wants, made, [this] { return window_table(); }));
  const std::lock_guard lock{mutex_};
  kernel_comms_.push_back(std::move(created));
  return {};
}

bool Member::has_kernel_comm() const {
  const std::lock_guard lock{mutex_};
  return !kernel_comms_.empty();
}

Result<void> Member::drop_kernel_comm(const void* dev_comm) {
  const ncclWindow_t window = KernelComm::window_in(dev_comm);
  std::shared_ptr<KernelComm> dropped;  // outlives the lock
  const std::lock_guard lock{mutex_};
  const auto found = std::ranges::find_if(
      kernel_comms_, [window](const auto& one) { return one->window() == window; });
  if (found == kernel_comms_.end()) {
    return fail(Errc::invalid_argument,
                "devComm is none of this communicator, or was destroyed already; pass one that "
                "ncclDevCommCreate made, once");
  }
  dropped = std::move(*found);
  kernel_comms_.erase(found);
  return {};
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
