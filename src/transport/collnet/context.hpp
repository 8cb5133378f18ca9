#pragma once

#include <ccl/detail/numeric/network_step.hpp>
#include <ccl/types/result.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "proxy/library_calls.hpp"
#include "transport/collnet/library.hpp"

namespace ccl::detail::collnet {

/// Limit of the functions by which a plug-in closes what it has opened.
constexpr double close_limit_s = 10;

/// Device of a network that reduces.
struct Device {
  std::string name, pci_path;
  std::size_t max_reduced_bytes = 0;  // of one operation
  int max_groups = 0;                 // 0: unknown
  int port = 0;
};

/// Types that a network reduces, as bits by their numbers, for each reduction.
using Support = std::array<std::uint32_t, std::size_t(network_op_count)>;

/// A communicator's use of a plug-in. Calls that may wait for other ranks, or never return, run on
/// a thread of their own with a deadline. After a call that has not returned, the plug-in is not
/// called again.
class Context : public std::enable_shared_from_this<Context> {
 public:
  /// Finds a plug-in and begins to use it. Reads its devices, and what it reduces.
  static Result<std::shared_ptr<Context>> open(std::uint64_t communicator, double limit_s);
  /// Ends the use of the plug-in, unless a call has not returned.
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const PlugIn& plug_in() const { return plug_in_; }
  void* handle() const { return handle_; }
  const std::vector<Device>& devices() const { return devices_; }
  const Support& support() const { return support_; }
  /// True if the plug-in must not be called: a call has not returned, or the process exits.
  bool is_stuck() const { return stuck_.load() || LibraryCalls::have_ended(); }
  /// Calls the plug-in no more, because a call has not returned.
  void give_up() { stuck_.store(true); }

  /// Calls of one thread. Names the call that fails, or that does not return.
  class Calls {
   public:
    explicit Calls(std::shared_ptr<Context> of) : of_{std::move(of)} {}
    /// Succeeds if `code()` returns 0. `function` is NCCL's name.
    template <class F>
    Result<void> run(const char* function, F&& code) {
      running_.store(function);
      const int returned = code();
      return returned == 0 ? Result<void>{} : fail(of_->failed(function, returned));
    }
    const char* running() const { return running_.load(); }

   private:
    const std::shared_ptr<Context> of_;
    std::atomic<const char*> running_{"init"};
  };
  /// Runs `body` on another thread, at most `limit_s` seconds. `body` must own what it uses.
  Result<void> within(double limit_s, std::function<Result<void>(Calls&)> body);
  /// Error: a function of the plug-in has returned `code`.
  Error failed(const char* function, int code) const;

 private:
  explicit Context(PlugIn plug_in) : plug_in_{std::move(plug_in)} {}
  Result<void> begin(Calls& calls, std::uint64_t communicator);

  const PlugIn plug_in_;
  void* handle_ = nullptr;
  bool begun_ = false;
  std::vector<Device> devices_;
  Support support_{};
  std::atomic<bool> stuck_{false};
};

}  // namespace ccl::detail::collnet
