#include "support/played/lanes.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace ccl::test::played {

constinit thread_local Lane* this_lane = nullptr;
constinit thread_local unsigned stores_here = 0;

/// Thread that runs the lanes of its blocks in turn. A lane runs until it waits.
class Worker {
 public:
  Worker() : thread_{[this] { run(); }} { thread_.detach(); }

  void add(std::shared_ptr<Block> block) {
    const std::lock_guard lock{mutex_};
    inbox_.push_back(std::move(block));
    filled_.notify_one();
  }
  void push(Lane* lane) {
    lane->next = nullptr;
    (last_ == nullptr ? first_ : last_->next) = lane;
    last_ = lane;
    ++queued_;
  }
  Activity counts() const {
    return {moves_.load(std::memory_order_acquire), rounds_.load(std::memory_order_acquire),
            blocks_.load(std::memory_order_acquire) == 0};
  }
  static Worker& of_this_thread();

 private:
  [[noreturn]] void run();
  void begin(const std::shared_ptr<Block>& block);
  void end(Lane* lane);
  void take_new_blocks();
  void run_round();
  /// Leaves the CPU to others, the longer the less moves here.
  void rest();

  std::mutex mutex_;
  std::condition_variable filled_;
  std::vector<std::shared_ptr<Block>> inbox_;
  std::map<Block*, std::shared_ptr<Block>> running_;
  Lane *first_ = nullptr, *last_ = nullptr;  // ready to run
  std::size_t queued_ = 0;
  bool moved_here_ = false;
  unsigned quiet_rounds_ = 0;
  std::atomic<unsigned long long> moves_{0}, rounds_{0};
  std::atomic<std::size_t> blocks_{0};
  std::thread thread_;
};

namespace {

constinit thread_local Worker* this_worker = nullptr;

std::vector<std::unique_ptr<Worker>>& workers() {
  static auto* const all = [] {  // they run until the process ends
    auto* const made = new std::vector<std::unique_ptr<Worker>>;
    const unsigned cores = std::clamp(std::thread::hardware_concurrency(), 1u, 4u);
    for (unsigned n = 0; n < cores; ++n) made->push_back(std::make_unique<Worker>());
    return made;
  }();
  return *all;
}

void run_lane(void* of) {
  Lane& lane = *static_cast<Lane*>(of);
  lane.block.run(lane);
}

}  // namespace

Lane::Lane(Block& of, unsigned at) : block{of}, thread{at}, fiber{&run_lane, this} {}

Worker& Worker::of_this_thread() {
  return *this_worker;
}

void Worker::begin(const std::shared_ptr<Block>& block) {
  running_[block.get()] = block;
  for (unsigned l = 0; l < block->lanes(); ++l) push(&block->own_.emplace_back(*block, l));
}

void Worker::end(Lane* lane) {
  Block* const block = &lane->block;
  if (--block->left_ != 0) return;
  const auto keep = running_[block];
  running_.erase(block);
  block->own_.clear();
  block->launch_dependents();
  moves_.fetch_add(1, std::memory_order_relaxed);
  const auto ended = std::move(block->calls_.ended);
  blocks_.fetch_sub(1, std::memory_order_release);
  ended();
}

void Worker::take_new_blocks() {
  std::vector<std::shared_ptr<Block>> blocks;
  {
    std::unique_lock lock{mutex_};
    if (first_ == nullptr) filled_.wait(lock, [&] { return !inbox_.empty(); });
    blocks.swap(inbox_);
  }
  for (const auto& block : blocks) begin(block);
  if (blocks.empty()) return;
  blocks_.fetch_add(blocks.size(), std::memory_order_release);
  moved_here_ = true;
}

void Worker::run_round() {
  for (std::size_t n = queued_; n > 0 && first_ != nullptr; --n) {
    Lane* const lane = first_;
    first_ = lane->next;
    if (first_ == nullptr) last_ = nullptr;
    --queued_;
    this_lane = lane;
    lane->fiber.resume();
    if (lane->state == Lane::State::ready) push(lane);
    if (lane->state == Lane::State::ended) end(lane);
  }
}

void Worker::rest() {
  const bool moved = moved_here_ || stores_here != 0;
  moved_here_ = false;
  stores_here = 0;
  rounds_.fetch_add(1, std::memory_order_release);
  if (moved) {
    moves_.fetch_add(1, std::memory_order_release);
    quiet_rounds_ = 0;
    return;
  }
  constexpr unsigned yields = 64;
  if (++quiet_rounds_ < yields) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds{50});
  }
}

void Worker::run() {
  this_worker = this;
  for (;;) {
    take_new_blocks();
    run_round();
    rest();
  }
}

void Block::run(Lane& lane) {
  calls_.body();
  lane.state = Lane::State::ended;
  lane.fiber.leave_for_good();
}

void Block::launch_dependents() {
  if (launched_) return;
  launched_ = true;
  if (calls_.launched) calls_.launched();
}

Team& Block::team(unsigned width, unsigned thread) {
  auto& all = teams_[width];
  const std::size_t at = thread / width;
  if (all.size() <= at) all.resize(at + 1);
  if (!all[at]) all[at].emplace(std::min(width, lanes_ - unsigned(at) * width));
  return *all[at];
}

void Team::sync() {
  if (++arrived_ < width_) {
    this_lane->next = waiting_;
    waiting_ = this_lane;
    this_lane->state = Lane::State::waits;
    this_lane->fiber.leave();
    return;
  }
  arrived_ = 0;
  agreed_[++round_ & 1] = true;  // everybody has read what the round before has left there
  Worker& worker = Worker::of_this_thread();
  for (Lane* lane = waiting_; lane != nullptr;) {
    Lane* const next = lane->next;
    lane->state = Lane::State::ready;
    worker.push(lane);
    lane = next;
  }
  waiting_ = nullptr;
}

bool Team::all(bool vote) {
  const unsigned round = round_;
  agreed_[round & 1] = agreed_[round & 1] && vote;
  sync();
  return agreed_[round & 1];
}

unsigned Team::give(Word word, unsigned rank) {
  const unsigned round = round_;
  words_[(round & 1) * width_ + rank] = word;
  sync();
  return round;
}

Word Team::exchange(Word word, unsigned rank, unsigned from) {
  const unsigned round = give(word, rank);
  return words_[(round & 1) * width_ + from];
}

void pause() {
  this_lane->fiber.leave();
}

void await_previous() {
  while (!this_lane->block.previous_ended()) pause();
}

void run_block(std::shared_ptr<Block> block) {
  static std::atomic<unsigned> next{0};
  auto& all = workers();
  all[next.fetch_add(1, std::memory_order_relaxed) % all.size()]->add(std::move(block));
}

Activity activity() {
  Activity sum;
  for (const auto& worker : workers()) {
    const Activity one = worker->counts();
    sum.moves += one.moves;
    if (one.idle) continue;
    sum.rounds = sum.idle ? one.rounds : std::min(sum.rounds, one.rounds);
    sum.idle = false;
  }
  return sum;
}

}  // namespace ccl::test::played
