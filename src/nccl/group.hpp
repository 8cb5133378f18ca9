#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "nccl/call.hpp"
#include "nccl/member.hpp"

namespace ccl::detail::nccl {

/// What a thread asks for between ncclGroupStart and ncclGroupEnd; each rank's part is done by
/// itself, in the order of the calls, and its messages at once, behind the rest.
class Group {
 public:
  using Step = std::function<Result<void>()>;
  static Group& of_this_thread();

  void start() { ++depth_; }
  Result<void> end();
  /// Ends it, too, but runs nothing: microseconds that it is thought to take; none within another.
  Result<std::optional<double>> simulate();
  /// At once where there is no group. `made`: what the step creates for another rank than
  /// `member`'s, if any.
  Result<void> submit(std::shared_ptr<Member> member, Step step,
                      std::shared_ptr<Member> made = nullptr);
  Result<void> submit(std::shared_ptr<Member> member, const Call& call);
  /// A call that cannot be so: the group fails, and nothing of it runs.
  void spoil(const Error& why);

 private:
  struct Part {
    std::shared_ptr<Member> member;
    std::vector<Step> steps;
    std::vector<Call> messages;
    std::vector<Call> calls;  // all of them, which some steps are
    std::vector<std::shared_ptr<Member>> made;

    std::set<cudaStream_t> streams;  // of the calls

    Result<double> predict() const;
    bool shares_stream_with(const Part& other) const;
    Result<void> run() const;              // on the member's device
    void give_up(const Error& why) const;  // what is not made by now never will be
  };
  /// Parts for one thread to run, in the order of the calls.
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
