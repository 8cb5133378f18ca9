#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/detail/launch/in_flight.hpp>
#include <ccl/detail/runtime/call_sequencer.hpp>
#include <ccl/detail/runtime/guarded.hpp>
#include <ccl/detail/runtime/levels.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace ccl::detail {

/// Order of calls that consist of several launches, and the scratch memory that they share. Calls
/// run one after another in the order in which they were made, on any stream.
///
/// On a GPU this order holds for all launches of the communicator. A kernel of one call then never
/// runs beside a kernel of another call, whose multiprocessors the peers of the first may need.
class CallOrder {
 public:
  explicit CallOrder(const Communicator& comm);
  ~CallOrder();  // frees the scratch after all running calls have ended
  CallOrder(const CallOrder&) = delete;
  CallOrder& operator=(const CallOrder&) = delete;

  Result<void> take_scratch(Index bytes);
  char* scratch() const { return static_cast<char*>(scratch_.get()); }
  Index scratch_bytes() const { return scratch_bytes_; }

  /// Brackets a call's launches on a GPU, on the launching thread. `begin` takes a lock that `end`
  /// releases. A graph holds `keep`. `end` must be called if `begin` has succeeded. It returns the
  /// result of the call, of whose launches `launched` is the result: if a launch has failed, the
  /// communicator fails on all ranks, as `Launch::finish` says.
  Result<void> begin(Stream stream, const std::shared_ptr<void>& keep);
  Result<void> end(Stream stream, Result<void> launched);
  CallSequencer& sequencer() { return sequencer_; }  // order of calls on CPU ranks

 private:
  Communicator comm_;
  std::shared_ptr<void> scratch_;
  Index scratch_bytes_ = 0;
  CallSequencer sequencer_;
};

/// Fails if the stream is not of the communicator's kind, or if it records for a group. The error
/// names `name`.
Result<void> check_stream(const Communicator& comm, const std::string& name, Stream stream);

/// Begin of a call's turn in the queue of a stream.
template <class Owner>
struct TurnBegin {
  Communicator comm;
  std::shared_ptr<Owner> owner;
  Word turn = 0;
  Result<void> operator()() {
    return guarded(comm, [this] { return await_turn(comm, owner->order.sequencer(), turn); });
  }
};
/// End of that turn.
template <class Owner>
struct TurnEnd {
  std::shared_ptr<void> held;
  std::shared_ptr<Owner> owner;
  Word turn = 0;
  Result<void> operator()() {
    owner->order.sequencer().end(turn);
    return {};
  }
};

/// Makes all launches of a call, `launches()`, in the order of calls. `owner` has the `CallOrder`
/// as its member `order` and lives until the call is done. A failure of some ranks becomes a
/// failure of all.
template <class Owner, class Launches>
Result<void> in_turn(const Communicator& comm, const std::shared_ptr<Owner>& owner, Stream stream,
                     Launches launches) {
  CallOrder& order = owner->order;
  if (comm.device() >= 0) {
    CCL_CHECK(order.begin(stream, owner));
    return shared_failure(comm, order.end(stream, guarded(comm, launches)));
  }
  CallSequencer& sequencer = order.sequencer();
  if (stream.host() == nullptr) {
    const CallTicket turn{comm, sequencer};
    CCL_CHECK(turn.begun());
    return shared_failure(comm, launches());
  }
  const std::lock_guard lock{sequencer.mutex()};
  auto begin = host_call(TurnBegin<Owner>{comm, owner});
  auto end = host_call(TurnEnd<Owner>{in_flight(comm), owner});
  begin->call.turn = end->call.turn = sequencer.take();  // both are queued, whatever fails
  HostQueue::push(*stream.host(), std::move(begin));
  auto queued = guarded(comm, [&] { return shared_failure(comm, launches()); });
  HostQueue::push(*stream.host(), std::move(end));
  return queued;
}

}  // namespace ccl::detail
