#pragma once

#include <ccl/links.hpp>

#include <memory>
#include <utility>

namespace ccl::detail {

/// A call that a group makes beside others: its arguments, checked.
class RecordedCall {
 public:
  RecordedCall(std::shared_ptr<Links> links, const CallInfo& info)
      : links_{std::move(links)}, info_{info} {}
  virtual ~RecordedCall() = default;
  int place = 0;       // among the group's arguments, as this rank listed them
  bool apart = false;  // on a GPU a launch of its own: for want of blocks, or after another call of
                       // its composition
  Links& links() const { return *links_; }
  const std::shared_ptr<Links>& shared_links() const { return links_; }
  CallInfo& info() { return info_; }
  /// Collective: connects what its root wants.
  virtual Result<void> connect() { return {}; }
  /// Whether, on a GPU, it may be a part of one launch with others; all ranks find the same.
  virtual bool shares_kernel() const { return false; }
  /// All that lies between `Links::help` and `Links::finish`.
  virtual void run_on_host() = 0;

 private:
  std::shared_ptr<Links> links_;
  CallInfo info_;
};

/// A call that is a launch of its own on a GPU and that CPU ranks cannot make.
class GpuCall final : public RecordedCall {
 public:
  using RecordedCall::RecordedCall;
  void run_on_host() override {}  // not reached: `create` refused
};

/// Where a call goes that is given it for a stream.
struct Recorder {
  std::unique_ptr<RecordedCall> call{};
};

}  // namespace ccl::detail
