#include <ccl/element/data_type.hpp>

#include <fmt/format.h>

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
  CCL_TRY(auto registered, RegisteredBuffer::create(comm, memory, Index(bytes)));
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

Result<int> Member::add_scaling(const RedOp& op, DataType type) {
  const std::lock_guard lock{mutex_};
  for (std::size_t at = 0; at < scalings_.size(); ++at) {
    if (scalings_[at]) continue;
    scalings_[at].emplace(op, type);
    return int(at);
  }
  scalings_.emplace_back(std::in_place, op, type);
  return int(scalings_.size()) - 1;
}
Result<void> Member::check_scaling(int at) const {
  if (at >= 0 && at < int(scalings_.size()) && scalings_[std::size_t(at)]) return {};
  return fail(Errc::invalid_argument,
              fmt::format("there is no reduction {}; pass one of NCCL's five, or one that "
                          "ncclRedOpCreatePreMulSum made for this communicator",
                          at + ncclNumOps));
}
Result<RedOp> Member::scaling(int at, DataType type) const {
  const std::lock_guard lock{mutex_};
  CCL_CHECK(check_scaling(at));
  const auto& [op, made_for] = *scalings_[std::size_t(at)];
  if (type == made_for) return op;  // its scalar in memory is of that type
  return fail(Errc::invalid_argument,
              fmt::format("reduction {} was made for {}, not for {}; make one for each type",
                          at + ncclNumOps, name(made_for), name(type)));
}
Result<void> Member::drop_scaling(int at) {
  const std::lock_guard lock{mutex_};
  CCL_CHECK(check_scaling(at));
  scalings_[std::size_t(at)].reset();
  return {};
}

}  // namespace ccl::detail::nccl
