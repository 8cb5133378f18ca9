#pragma once

// Lanes of played GPUs: the threads of a kernel's blocks, as fibers of a few worker threads.
#include <ccl/types/word.hpp>

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "support/played/fiber.hpp"

namespace ccl::test::played {

class Block;
class Worker;

/// One thread of a block.
struct Lane {
  Lane(Block& of, unsigned at);
  Block& block;
  unsigned thread;
  Lane* next = nullptr;  // in the queue of the worker or of a team
  enum class State { ready, waits, ended } state = State::ready;
  Fiber fiber;
};

/// Lanes that wait for and vote with each other: a warp, a part of a block, or a block. All lanes
/// of a team run on one worker, so nothing in it is atomic.
class Team {
 public:
  explicit Team(unsigned width) : width_{width}, words_(std::size_t(2) * width) {}
  unsigned width() const { return width_; }
  /// Waits for all lanes of the team.
  void sync();
  /// True on all lanes if `vote` is true on all.
  bool all(bool vote);
  /// Returns the word of lane `from`, which has given it as its `word`.
  Word exchange(Word word, unsigned rank, unsigned from);
  /// Gives away `word`, and calls `f(word)` for those of all lanes, in order.
  template <class F>
  void each(Word word, unsigned rank, F f) {
    const unsigned round = give(word, rank);
    for (unsigned l = 0; l < width_; ++l) f(words_[(round & 1) * width_ + l]);
  }

 private:
  unsigned give(Word word, unsigned rank);
  unsigned width_, arrived_ = 0;
  unsigned round_ = 0;
  bool agreed_[2] = {true, true};  // by round; a lane is at most one round ahead
  std::vector<Word> words_;        // by round, too
  Lane* waiting_ = nullptr;
};

/// Block of a running kernel.
class Block {
 public:
  /// `launched` is called by the first lane that lets dependent launches begin, and `ended` when
  /// all lanes have ended. `awaits`: what `await_previous` waits for; may be null.
  struct Calls {
    std::function<void()> body, launched, ended;
    const std::atomic<bool>* awaits = nullptr;
  };
  Block(unsigned index, unsigned blocks, unsigned lanes, Calls calls)
      : index_{index}, blocks_{blocks}, lanes_{lanes}, left_{lanes}, calls_{std::move(calls)} {}

  unsigned index() const { return index_; }
  unsigned blocks() const { return blocks_; }
  unsigned lanes() const { return lanes_; }
  /// The team of `width` consecutive lanes to which `thread` belongs.
  Team& team(unsigned width, unsigned thread);
  /// Memory that group `group` of the block shares, of one type.
  template <class T>
  T& shared(int group) {
    static const char key{};
    auto& at = shared_[{&key, group}];
    if (!at) at = std::make_shared<T>();
    return *static_cast<T*>(at.get());
  }
  /// Runs the kernel's body on `lane`, which then ends.
  void run(Lane& lane);
  void launch_dependents();
  bool previous_ended() const {
    return calls_.awaits == nullptr || calls_.awaits->load(std::memory_order_acquire);
  }

 private:
  friend class Worker;
  unsigned index_, blocks_, lanes_, left_;
  Calls calls_;
  bool launched_ = false;
  std::deque<Lane> own_;
  std::map<unsigned, std::deque<std::optional<Team>>> teams_;  // by width
  std::map<std::pair<const char*, int>, std::shared_ptr<void>> shared_;
};

/// The lane that runs on this thread.
extern constinit thread_local Lane* this_lane;
/// Stores of data and counts that lanes of this thread have made, modulo 2^32: signs of progress.
extern constinit thread_local unsigned stores_here;

/// One failed poll: the other lanes of the worker go on first.
void pause();
/// Blocks the lane until the launch before it has ended.
void await_previous();
inline void launch_dependents() {
  this_lane->block.launch_dependents();
}
inline Team& team(unsigned width) {
  return this_lane->block.team(width, this_lane->thread);
}

/// Begins a block on one of the workers, which start with the first.
void run_block(std::shared_ptr<Block> block);

/// Counts of all workers, for whoever asks whether anything still moves.
struct Activity {
  unsigned long long moves = 0;   // rounds with stores, and blocks begun and ended
  unsigned long long rounds = 0;  // of the workers that have lanes: those of the slowest
  bool idle = true;               // no lane at all
};
Activity activity();

}  // namespace ccl::test::played
