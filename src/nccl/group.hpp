#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "nccl/abi/call.hpp"
#include "nccl/member.hpp"

namespace ccl::detail::nccl {

/// Calls of a thread between ncclGroupStart and ncclGroupEnd. Each rank's part runs by itself, in
/// the order of the calls. Its messages run at once, after all other calls.
///
/// Calls on GPUs are launched by this thread, one rank after the other. From the first call on that
/// would wait for other ranks, a part runs on a thread of its own: such a rank may be of this
/// thread. The group waits for that thread, unless the part's communicator is one that does not
/// block: then its part is deferred, and the group fails with `Errc::in_progress`.
class Group {
 public:
  using Step = std::function<Result<void>()>;
  static Group& of_this_thread();

  void start() { ++depth_; }
  Result<void> end();
  /// Ends the group without running it. Returns its predicted time in us; nothing within another
  /// group.
  Result<std::optional<double>> simulate();
  /// Adds a step, or runs it at once without a group. `made` is the member that the step creates
  /// for another rank than that of `member`, if any.
  Result<void> submit(std::shared_ptr<Member> member, Step step,
                      std::shared_ptr<Member> made = nullptr);
  Result<void> submit(std::shared_ptr<Member> member, const Call& call);
  /// Submits a step that does not wait for other ranks on a GPU.
  Result<void> submit_launch(std::shared_ptr<Member> member, Step step);
  /// Records an invalid call: the group fails, and none of its calls runs.
  void spoil(const Error& why) noexcept;
  /// Releases a rank that was aborted: at the end of the group, when all aborts of the group have
  /// been called. The release waits for launches, which may wait for other ranks of this thread.
  void release(std::shared_ptr<Member> aborted);

 private:
  struct Part {
    std::shared_ptr<Member> member;
    std::vector<Step> steps;
    std::set<std::size_t> waiting;  // of the steps: what makes or ends communicators
    std::vector<Call> messages;
    std::vector<Call> calls;  // of the steps that are calls
    std::vector<std::shared_ptr<Member>> made;

    std::set<cudaStream_t> streams;  // of the calls

    Result<double> predict() const;
    bool shares_stream_with(const Part& other) const;
    /// Number of steps, of which all messages are the last one.
    std::size_t step_count() const { return steps.size() + (messages.empty() ? 0 : 1); }
    Result<void> run(std::size_t step) const;  // on the member's device
    bool may_launch(std::size_t step) const;
    void give_up(const Error& why) const noexcept;  // fails members that are not created yet
    bool is_deferred() const;                       // true if it may not block this thread
  };
  /// Parts that run in the order of the calls, on one thread at a time.
  class Lane {
   public:
    void add(const Part* part) { parts_.push_back(part); }
    const std::vector<const Part*>& parts() const { return parts_; }
    void merge(const Lane& other);  // in the order of first calls
    bool ended() const { return part_ == parts_.size(); }
    /// Runs the next step. Returns false if none is left, or if the step waits for other ranks: it
    /// has had no effect then.
    bool launch_next();
    void run();                                             // what is left
    const Result<void>& result() const { return result_; }  // the first failure
    Result<void> result_of(const Part& part) const;
    HostStream& worker() const { return parts_.front()->member->worker(); }
    bool is_deferred() const;
    void give_up(const Error& why) const noexcept;
    void wait_deferred() const;  // waits for what was deferred earlier

   private:
    void skip_empty();
    void advance(Result<void> done);
    std::vector<const Part*> parts_;
    std::size_t part_ = 0, step_ = 0;
    Result<void> result_;
    std::map<const Part*, Error> failures_;
  };
  class DeferredLane;
  using Parts = std::shared_ptr<const std::vector<Part>>;
  static std::vector<Lane> lanes_of(const std::vector<Part>& parts);
  static Result<void> run(const Parts& parts);
  /// Runs the rest of a lane later, behind earlier deferred steps of its ranks.
  static Result<void> defer(const Parts& parts, const Lane& lane);
  /// Waits for lanes on threads of their own. Returns the first failure.
  static Result<void> run_beside(const std::vector<Lane*>& lanes);
  Part& part_of(std::shared_ptr<Member> member);
  void add(std::shared_ptr<Member> member, const Call& call);
  Result<void> check_begun(const char* call) const;

  int depth_ = 0;
  std::vector<Part> parts_;
  std::vector<std::shared_ptr<Member>> aborted_;
  Result<void> spoilt_;
};

}  // namespace ccl::detail::nccl
