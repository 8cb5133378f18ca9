#pragma once

#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

#include <cuda/std/type_traits>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Times of the lanes of one channel in one launch, in ns by their clock. 0: not reached.
struct PhaseTimes {
  Word ticket = 0;      // of the operation, in the flight recorder; 0: never used
  Word begun = 0;       // the lanes run
  Word ready = 0;       // the launch before has ended, and the first wires are open
  Word first_data = 0;  // the first slice that came is used (GPUs: the first part of a message)
  Word last_data = 0;   // so is the last one
  Word ended = 0;
};

/// Phases of the latest launches of a composition, in memory that its lanes write and the host
/// reads. Further channels are left out: all channels of a launch do the same.
struct PhaseLog {
  static constexpr int launches = 64, channels = 8;
  PhaseTimes times[launches][channels];

  /// Returns the log of the launches after the first of a call that is cut into several. It follows
  /// the log in memory. Null if `log` is null.
  static PhaseLog* further(PhaseLog* log) { return log == nullptr ? nullptr : log + 1; }

  /// Returns the place of a channel, or null for one that is left out.
  static CCL_HD PhaseTimes* place(PhaseLog* log, Word ticket, int channel) {
    if (log == nullptr || ticket == 0 || channel >= channels) return nullptr;
    return &log->times[ticket % Word(launches)][channel];
  }
};

/// Notes of the lane that writes for its channel. The other lanes have no place. All stores are
/// relaxed, because a release on a GPU waits for memory of peers: a reader checks the order of the
/// times.
template <class Memory>
class PhaseNotes {
 public:
  explicit CCL_HD PhaseNotes(PhaseTimes* at) : at_{at} {}

  /// Begins the entry of a launch.
  CCL_HD void begin(Word ticket) const {
    if (at_ == nullptr) return;
    Memory::store_relaxed(&at_->ended, Word{0});
    Memory::store_relaxed(&at_->ready, Word{0});
    Memory::store_relaxed(&at_->first_data, Word{0});
    Memory::store_relaxed(&at_->last_data, Word{0});
    Memory::store_relaxed(&at_->begun, Memory::now_ns());
    Memory::store_relaxed(&at_->ticket, ticket);
  }
  CCL_HD void ready() {
    if (at_ != nullptr && ready_ == 0) ready_ = Memory::now_ns();
  }
  CCL_HD void received() {
    if (at_ == nullptr) return;
    last_ = Memory::now_ns();
    if (first_ == 0) first_ = last_;
  }
  /// Writes the notes of one of several objects of a launch: what earlier ones wrote stays.
  CCL_HD void merge() const {
    if (at_ == nullptr) return;
    if (Memory::load_relaxed(&at_->ready) == 0) Memory::store_relaxed(&at_->ready, ready_);
    if (last_ == 0) return;
    if (Memory::load_relaxed(&at_->first_data) == 0) {
      Memory::store_relaxed(&at_->first_data, first_);
    }
    Memory::store_relaxed(&at_->last_data, last_);
  }
  /// Writes the notes of the only object of a launch. A GPU then reads no memory of the host.
  CCL_HD void write() const {
    if (at_ == nullptr) return;
    Memory::store_relaxed(&at_->ready, ready_);
    Memory::store_relaxed(&at_->first_data, first_);
    Memory::store_relaxed(&at_->last_data, last_);
  }
  CCL_HD void end() const {
    if (at_ != nullptr) Memory::store_relaxed(&at_->ended, Memory::now_ns());
  }

 private:
  PhaseTimes* at_;
  Word ready_ = 0, first_ = 0, last_ = 0;
};

/// Notes of the lanes of a channel in one launch. The launch begins and ends with the object.
template <class Memory>
class LaunchNotes : public PhaseNotes<Memory> {
 public:
  template <class Group>
  CCL_HD LaunchNotes(Group group, const AbortWatch& watch, int channel)
      : PhaseNotes<Memory>{
            PhaseLog::place(group.rank() == 0 ? watch.phases : nullptr, watch.ticket, channel)} {
    this->begin(watch.ticket);
  }
  LaunchNotes(const LaunchNotes&) = delete;
  LaunchNotes& operator=(const LaunchNotes&) = delete;
  CCL_HD ~LaunchNotes() {
    this->write();
    this->end();
  }
};

/// Replaces `PhaseNotes` and `LaunchNotes` in lanes that note nothing, and has no code.
struct NoPhaseNotes {
  explicit CCL_HD NoPhaseNotes(PhaseTimes*) {}
  template <class Group>
  CCL_HD NoPhaseNotes(Group, const AbortWatch&, int) {}
  CCL_HD void ready() {}
  CCL_HD void received() {}
  CCL_HD void merge() const {}
};

/// Notes of the kernels of an algorithm over peers' memory.
template <class Algo, class Group>
struct NotesOf {
  using Type = NoPhaseNotes;
};
template <class Algo, class Group>
  requires requires { Algo::notes_phases; }
struct NotesOf<Algo, Group> {
  using Type = LaunchNotes<typename Group::Memory>;
};
template <class Algo, class Group>
using notes_of = typename NotesOf<Algo, Group>::Type;

/// Notes of the primitives of a group: CPU lanes look at run time whether they are wanted. Kernels
/// of `Traced` note around their steps, and others have no code for it.
template <class Group>
using LaneNotes =
    cuda::std::conditional_t<Group::width == 1, PhaseNotes<typename Group::Memory>, NoPhaseNotes>;

}  // namespace ccl::detail

CCL_ANY_SPACE_END
