#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "nccl/call.hpp"
#include "nccl/member.hpp"

namespace ccl::detail::nccl {

/// Calls of a thread between ncclGroupStart and ncclGroupEnd. Each rank's part runs by itself, in
/// the order of the calls. Its messages run at once, after all other calls.
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
  /// Records an invalid call: the group fails, and none of its calls runs.
  void spoil(const Error& why);

 private:
  struct Part {
    std::shared_ptr<Member> member;
    std::vector<Step> steps;
    std::vector<Call> messages;
    std::vector<Call> calls;  // of the steps that are calls
    std::vector<std::shared_ptr<Member>> made;

    std::set<cudaStream_t> streams;  // of the calls

    Result<double> predict() const;
    bool shares_stream_with(const Part& other) const;
    Result<void> run() const;              // on the member's device
    void give_up(const Error& why) const;  // fails members that are not created yet
  };
  /// Parts that one thread runs, in the order of the calls.
  using Lane = std::vector<const Part*>;
  static Result<void> run(const Lane& lane);
  static std::vector<Lane> lanes_of(const std::vector<const Part*>& parts);
  Part& part_of(std::shared_ptr<Member> member);
  Result<void> check_begun(const char* call) const;

  int depth_ = 0;
  std::vector<Part> parts_;
  Result<void> spoilt_;
};

}  // namespace ccl::detail::nccl
