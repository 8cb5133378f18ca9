#pragma once

#include <ccl/algo/copy_engine.hpp>
#include <ccl/collective/collective.hpp>
#include <ccl/comm/log.hpp>
#include <ccl/comm/window.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/any_of.hpp>

#include <optional>
#include <utility>

#include "comm/peer_waits.hpp"
#include "comm/state.hpp"

namespace ccl::detail::nccl {

/// Calls of an operation on GPUs that leave all multiprocessors to the program: streams write and
/// wait for words, and copy engines move the data (NCCL_CTA_POLICY_ZERO). They need receive buffers
/// in a window, at one place on all ranks.
template <class Op, class Transport = DefaultTransport>
class ZeroCopies {
 public:
  /// Makes the call and returns true. Returns false, on all ranks, if it must run in another way:
  /// buffers are in no window, or the ranks cannot do it. All ranks call it for the same calls.
  template <class T>
  Result<bool> run(const Communicator& comm, const T* send, T* recv, Index count, Stream stream) {
    // A window is one for all ranks, until all have dropped it.
    if (count == 0 || Access::state(comm)->observers.open_windows() == 0) return false;
    if (!tried_) {
      CCL_CHECK(check_may_wait());
      auto made = Copies::create(comm);
      tried_ = made.has_value() || is_of_all_ranks(made.error());
      if (!tried_) return fail(std::move(made).error());
      if (made) {
        one_.emplace(*std::move(made));
      } else {
        log_info(LogPart::tuning, "NCCL_CTA_POLICY_ZERO has no effect on {}: {}", Op::name,
                 made.error().what);
      }
    }
    if (!one_) return false;
    if (lies_in_window(comm, recv, count * comm.ranks() * Index{sizeof(T)})) {
      CCL_CHECK((*one_)(send, recv, count, stream));
      return true;
    }
    CCL_CHECK(one_->template outside<T>(stream));
    return false;
  }

 private:
  using Copies = Collective<Op, ZeroSmCopies, Simple, Transport>;
  struct Made : Copies {
    explicit Made(Copies made) : Copies{std::move(made)} {}
    /// Tells ranks whose buffers are in a window that this rank's is in none.
    template <class T>
    Result<void> outside(Stream stream) const {
      return this->template pass_by<T>(stream);
    }
  };
  static bool is_of_all_ranks(const Error& why) {
    return why.code == Errc::not_supported || why.code == Errc::no_transport ||
           why.code == Errc::bad_setting || why.code == Errc::over_budget;
  }

  bool tried_ = false;
  std::optional<Made> one_;
};

}  // namespace ccl::detail::nccl
