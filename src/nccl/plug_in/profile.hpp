#pragma once

#include <cstdint>
#include <utility>

#include "nccl/plug_in/abi.hpp"

namespace ccl::detail::nccl {

/// True if the profiler plug-in wants events of one of these kinds. A plug-in may set them in its
/// first `init` only, for all communicators, and may change them at any time.
bool profiler_wants(std::uint64_t any_of);

/// Communicator of the profiler plug-in.
class Profile {
 public:
  Profile(const ProfilerPlugIn& plug_in, void* context, int rank)
      : plug_in_{plug_in}, context_{context}, rank_{rank} {}
  ~Profile() { (void)plug_in_.finalize(context_); }
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  EventDescription description(EventKind kind, void* parent) const {
    EventDescription what{};
    what.kind = kind;
    what.parent = parent;
    what.rank = rank_;
    return what;
  }

  /// An event, from its construction on. Without a handle of the plug-in it does nothing.
  class Event {
   public:
    Event() = default;
    Event(Profile& of, EventDescription what) : of_{&of} {
      if (of.plug_in_.start(of.context_, &handle_, &what) != ncclSuccess) handle_ = nullptr;
    }
    ~Event() {
      if (handle_ != nullptr) (void)of_->plug_in_.stop(handle_);
    }
    Event(Event&& other) noexcept
        : of_{other.of_}, handle_{std::exchange(other.handle_, nullptr)} {}
    Event& operator=(Event&& other) noexcept {
      std::swap(of_, other.of_);
      std::swap(handle_, other.handle_);
      return *this;
    }
    void* handle() const { return handle_; }
    void record(EventState state, EventStateArguments more = {}) const {
      if (handle_ != nullptr) (void)of_->plug_in_.record(handle_, state, &more);
    }

   private:
    Profile* of_ = nullptr;
    void* handle_ = nullptr;
  };

 private:
  const ProfilerPlugIn& plug_in_;
  void* const context_;
  const int rank_;
};

}  // namespace ccl::detail::nccl
