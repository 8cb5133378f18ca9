#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/detail/launch/in_flight.hpp>
#include <ccl/detail/runtime/call_sequencer.hpp>
#include <ccl/detail/runtime/levels.hpp>

#include <memory>
#include <mutex>
#include <string>

namespace ccl::detail {

/// Calls that are several launches each, and the scratch memory that they share: one call after the
/// other, in the order in which they were made, whatever streams they are on. On a GPU that is the
/// order of all launches of the communicator: a kernel on one of its levels never runs beside one
/// of another call, whose multiprocessors its peers might wait for.
class CallOrder {
 public:
  explicit CallOrder(const Communicator& comm);
  ~CallOrder();  // scratch goes when calls that run have ended
  CallOrder(const CallOrder&) = delete;
  CallOrder& operator=(const CallOrder&) = delete;

  Result<void> take_scratch(Index bytes);
  char* scratch() const { return static_cast<char*>(scratch_.get()); }
  Index scratch_bytes() const { return scratch_bytes_; }

  /// Around a call's launches on a GPU, on the thread that launches; a lock is held in between.
  /// `keep`: what a graph must hold. `end` in any case once `begin` was a success.
  Result<void> begin(Stream stream, const std::shared_ptr<void>& keep);
  Result<void> end(Stream stream);
  CallSequencer& sequencer() { return sequencer_; }  // of calls on CPU ranks

 private:
  Communicator comm_;
  std::shared_ptr<void> scratch_;
  Index scratch_bytes_ = 0;
  CallSequencer sequencer_;
};

/// Errors of a stream that is not of the communicator's kind, or that records for a group. `name`:
/// of what was called.
Result<void> check_stream(const Communicator& comm, const std::string& name, Stream stream);

/// Makes all launches of a call, `launches()`, in the order of calls. `owner` has the `CallOrder`
/// as its member `order`, and lives until the call is done. A failure between some ranks is one of
/// all.
template <class Owner, class Launches>
Result<void> in_turn(const Communicator& comm, const std::shared_ptr<Owner>& owner, Stream stream,
                     Launches launches) {
  CallOrder& order = owner->order;
  if (comm.device() >= 0) {
    CCL_CHECK(order.begin(stream, owner));
    const Result<void> launched = launches();
    const Result<void> ended = order.end(stream);
    return shared_failure(comm, launched ? ended : launched);
  }
  CallSequencer& sequencer = order.sequencer();
  if (stream.host() == nullptr) {
    const CallTicket turn{sequencer};
    return shared_failure(comm, launches());
  }
  const std::lock_guard lock{sequencer.mutex()};
  const Word turn = sequencer.take();
  stream.host()->enqueue([owner, turn]() -> Result<void> {
    owner->order.sequencer().await(turn);
    return {};
  });
  auto queued = shared_failure(comm, launches());
  stream.host()->enqueue([held = in_flight(comm), owner, turn]() -> Result<void> {
    owner->order.sequencer().end(turn);
    return {};
  });
  return queued;
}

}  // namespace ccl::detail
