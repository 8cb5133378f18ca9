#pragma once

// Checker of memory orders in miniature. It runs lanes as fibers over a `Memory` whose loads can
// return any value that C++20's release and acquire allow, and tries all of them.
#include <ccl/proto/lane_group.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <ucontext.h>

namespace ccl::test {

/// Defect in an order of accesses.
struct OrderError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// All executions of some lanes. Each location has one writer at a time, so the store that each
/// load reads determines an execution. At a load the model branches: the load reads one of the
/// visible stores, or waits for a later one. Between loads, fibers run in turn. A location that
/// lanes add to may have several writers, whose order is a branch, too.
///
/// Not modeled: loads that read a store after them in every order. Instead, the model's consumers
/// check that a store into a slot comes after the loads of its earlier content.
class MemoryModel {
 public:
  static constexpr int max_fibers = 16;
  using Clock = std::array<unsigned, max_fibers>;

  /// Runs `prepare`, which adds lanes, `after` when they are done, and so on until all executions
  /// have been. Returns how many there were; throws the first `OrderError`.
  long explore(const std::function<void()>& prepare, const std::function<void()>& after,
               long most = 5'000'000) {
    long runs = 0;
    choices_.clear();
    do {
      runs += execute(prepare, after);
      if (++tried_ > most) throw std::runtime_error{"more executions than expected"};
    } while (next_execution());
    return runs;
  }
  /// Runs `count` executions whose branches are random, for lanes that have too many to try all.
  long sample(const std::function<void()>& prepare, const std::function<void()>& after,
              long count) {
    std::minstd_rand random{1};
    random_ = &random;
    long runs = 0;
    for (long n = 0; n < count; ++n) runs += execute(prepare, after);
    random_ = nullptr;
    return runs;
  }
  static MemoryModel*& current() {
    static MemoryModel* model = nullptr;
    return model;
  }

  void add(std::function<void()> lane) {
    auto f = std::make_unique<Fiber>();
    f->body = std::move(lane);
    f->index = int(fibers_.size());
    f->clock[size_t(f->index)] = 1;
    fibers_.push_back(std::move(f));
  }

  // ---- what lanes do

  /// A word that carries data only: the result is a handle for `value_of`, made so that nothing but
  /// moving it makes sense.
  Word load_data(const Word* at, bool atomic) {
    Fiber& f = *running_;
    Location& p = place(at);
    const size_t low = oldest(p, f);
    if (!atomic && low + 1 < p.stores.size()) {
      fail("a lane reads what another one writes, and nothing orders the two");
    }
    loads_.push_back({at, low, p.stores.size() - 1 - low, f.index, tick(f)});
    p.loads.push_back({f.index, f.clock[size_t(f.index)], low, loads_.size()});
    return handle_mark | Word(loads_.size());
  }
  void store_data(Word* at, Word value, bool atomic) {
    Fiber& f = *running_;
    Location& p = place(at);
    if (!atomic) {
      for (const Store& s : p.stores) {
        if (!before(s.fiber, s.epoch, f)) fail("two lanes write a word, and nothing orders them");
      }
      for (const Seen& l : p.loads) {
        if (!before(l.fiber, l.epoch, f)) {
          fail("a lane writes what another one reads, and nothing orders the two");
        }
      }
    }
    append(p, value, nullptr);
  }

  /// Returns a word that was stored by `store_data`, and that nobody may be changing.
  Word load_settled(const Word* at) {
    Fiber& f = *running_;
    Location& p = place(at);
    const size_t low = oldest(p, f);
    if (low + 1 < p.stores.size()) {
      fail("a lane reads what another one writes, and nothing orders the two");
    }
    p.loads.push_back({f.index, tick(f), low, 0});
    return p.stores[low].value;
  }

  Word load(const Word* at, bool acquire) {
    Fiber& f = *running_;
    Location& p = place(at);
    size_t store;
    for (;;) {
      const size_t low = oldest(p, f);
      const int readable = f.fresh ? 1 : int(p.stores.size() - low);
      const bool may_wait = !f.fresh && !alone(f);
      const int branch = choose(readable + (may_wait ? 1 : 0));
      // The newest first: the plain run is the first one.
      if (branch < readable) {
        store = p.stores.size() - 1 - size_t(branch);
        break;
      }
      f.waits_for = at;
      f.waits_count = p.stores.size();
      yield();
      if (pruned_ || !error_.empty()) leave();
    }
    const Store& s = p.stores[store];
    tick(f);
    p.loads.push_back({f.index, f.clock[size_t(f.index)], store, 0});
    if (acquire && s.clock) join(f.clock, *s.clock);
    return s.value;
  }
  void store(Word* at, Word value, bool release) {
    Fiber& f = *running_;
    Location& p = place(at);
    tick(f);
    append(p, value, release ? std::make_shared<Clock>(f.clock) : nullptr);
  }

  /// Adds to a word, which any lane may do: reads the newest store, or waits for a later one.
  Word fetch_add(Word* at, Word value, bool acquire, bool release) {
    Fiber& f = *running_;
    Location& p = place(at);
    while (!alone(f) && choose(2) != 0) {
      f.waits_for = at;
      f.waits_count = p.stores.size();
      yield();
      if (pruned_ || !error_.empty()) leave();
    }
    const Store last = p.stores.back();
    p.loads.push_back({f.index, tick(f), p.stores.size() - 1, 0});
    if (acquire && last.clock) join(f.clock, *last.clock);
    // It continues the release sequence of the store that it reads.
    std::shared_ptr<Clock> clock;
    if (release || last.clock) {
      clock = std::make_shared<Clock>(release ? f.clock : Clock{});
      if (last.clock) join(*clock, *last.clock);
    }
    append(p, last.value + value, std::move(clock));
    return last.value;
  }

  /// Records a failed poll. Another one is useless before the next store.
  void pause() {
    Fiber& f = *running_;
    f.fresh = false;
    f.paused_at = stores_;
    f.paused = true;
    yield();
    if (pruned_ || !error_.empty()) leave();
  }
  /// Synchronizes with the other lanes of a group. Returns the number of votes against.
  struct StartGate {
    int arrived = 0, against = 0, last_against = 0;
    unsigned round = 0;
    Clock clock{}, last{};
  };
  int meet(StartGate& gate, int width, bool vote) {
    Fiber& f = *running_;
    tick(f);
    join(gate.clock, f.clock);
    gate.against += !vote;
    const unsigned round = gate.round;
    if (++gate.arrived == width) {
      gate.last = gate.clock;
      gate.last_against = gate.against;
      gate.clock = {};
      gate.arrived = gate.against = 0;
      ++gate.round;
    }
    while (gate.round == round) {
      f.gate = &gate;
      f.gate_round = round;
      yield();
      if (pruned_ || !error_.empty()) leave();
    }
    join(f.clock, gate.last);
    tick(f);
    return gate.last_against;
  }

  // ---- after an execution

  /// Returns the data of a handle that a lane received, followed through all slots that it passed.
  /// Every load on its way must have had one value to read, and later stores must come after it.
  Word value_of(Word word) const {
    while ((word & handle_mark) == handle_mark) {
      const Load& l = loads_.at((word & ~handle_mark) - 1);
      if (l.others > 0) {
        throw OrderError{
            "a lane took a word that may be an older one: nothing orders its load after the store"};
      }
      const Location& p = places_.at(l.at);
      for (size_t s = l.store + 1; s < p.stores.size(); ++s) {
        if (p.stores[s].seen[size_t(l.fiber)] < l.epoch) {
          throw OrderError{
              "a slot is filled again, and nothing orders that after the load of what it held"};
        }
      }
      word = p.stores[l.store].value;
    }
    return word;
  }

 private:
  static constexpr Word handle_mark = Word{0xfeedf00d} << 32;
  struct Store {
    Word value;
    int fiber;
    unsigned epoch;
    std::shared_ptr<Clock> clock;  // of a release
    Clock seen;                    // accesses ordered before it
  };
  struct Seen {
    int fiber;
    unsigned epoch;
    size_t store;
    size_t load;
  };
  struct Location {
    std::vector<Store> stores;  // in modification order; the first is what was there
    std::vector<Seen> loads;
  };
  struct Load {
    const Word* at;
    size_t store;
    size_t others;  // newer stores that it might have read instead
    int fiber;
    unsigned epoch;
  };
  struct Fiber {
    std::function<void()> body;
    int index = 0;
    bool done = false, paused = false;
    bool fresh = false;               // until it stores or polls in vain again, it reads the newest
    const Word* waits_for = nullptr;  // a store there, after `waits_count`
    size_t waits_count = 0;
    unsigned long paused_at = 0;
    StartGate* gate = nullptr;
    unsigned gate_round = 0;
    Clock clock{};
    ucontext_t context{};
  };
  struct Branch {
    int taken, count;
  };

  Location& place(const Word* at) {
    Location& p = places_[at];
    if (p.stores.empty()) p.stores.push_back({*at, 0, 0, nullptr, {}});
    return p;
  }
  static bool before(int fiber, unsigned epoch, const Fiber& f) {
    return epoch <= f.clock[size_t(fiber)];
  }
  static void join(Clock& into, const Clock& from) {
    for (size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
  }
  static unsigned tick(Fiber& f) { return ++f.clock[size_t(f.index)]; }
  /// The oldest store that `f` may still read.
  static size_t oldest(const Location& p, const Fiber& f) {
    size_t low = 0;
    for (size_t s = p.stores.size(); s-- > 0 && low == 0;) {
      if (before(p.stores[s].fiber, p.stores[s].epoch, f)) low = s;
    }
    for (const Seen& l : p.loads) {
      if (before(l.fiber, l.epoch, f)) low = std::max(low, l.store);
    }
    return low;
  }
  void append(Location& p, Word value, std::shared_ptr<Clock> release) {
    Fiber& f = *running_;
    const unsigned epoch = tick(f);
    f.fresh = false;
    p.stores.push_back({value, f.index, epoch, std::move(release), f.clock});
    ++stores_;
  }

  bool alone(const Fiber& f) const {
    return std::all_of(fibers_.begin(), fibers_.end(),
                       [&](const auto& g) { return g.get() == &f || g->done; });
  }
  int choose(int count) {
    if (count <= 1) return 0;
    if (random_ != nullptr) return int((*random_)() >> 8) % count;
    if (at_ == choices_.size()) choices_.push_back({0, count});
    if (choices_[at_].count != count) throw std::logic_error{"an execution did not repeat"};
    return choices_[at_++].taken;
  }
  /// Runs one execution. Returns 1, or 0 if it cannot be: a lane waits for a store for ever.
  int execute(const std::function<void()>& prepare, const std::function<void()>& after) {
    fibers_.clear();
    places_.clear();
    loads_.clear();
    at_ = 0;
    pruned_ = false;
    error_.clear();
    current() = this;
    prepare();
    run();
    current() = nullptr;
    if (!error_.empty()) throw OrderError{error_};
    if (pruned_) return 0;
    after();
    return 1;
  }
  bool next_execution() {
    choices_.resize(std::min(at_, choices_.size()));
    while (!choices_.empty() && choices_.back().taken + 1 == choices_.back().count) {
      choices_.pop_back();
    }
    if (choices_.empty()) return false;
    ++choices_.back().taken;
    return true;
  }

  bool ready(const Fiber& f) {
    if (f.done) return false;
    if (f.gate != nullptr) return f.gate->round != f.gate_round;
    if (f.waits_for != nullptr) return place(f.waits_for).stores.size() > f.waits_count;
    if (f.paused) return stores_ > f.paused_at;
    return true;
  }
  void run() {
    stores_ = 0;
    nudged_at_ = ~0ul;
    for (auto& f : fibers_) {
      ::getcontext(&f->context);
      auto& stack = stacks_[size_t(f->index)];
      stack.resize(64 << 10);
      f->context.uc_stack.ss_sp = stack.data();
      f->context.uc_stack.ss_size = stack.size();
      f->context.uc_link = &main_;
      ::makecontext(&f->context, &MemoryModel::enter, 0);
    }
    for (;;) {
      bool moved = false, done = true;
      for (auto& f : fibers_) {
        if (!ready(*f)) continue;
        resume(*f);
        moved = true;
        if (pruned_ || !error_.empty()) return;
      }
      for (const auto& f : fibers_) done = done && f->done;
      if (done) return;
      if (moved) continue;
      // No fiber can continue. A fiber that waits for a store that does not come should have read
      // the current value.
      for (const auto& f : fibers_) {
        if (f->done || f->waits_for == nullptr) continue;
        if (random_ == nullptr) {
          pruned_ = true;
        } else {
          f->waits_for = nullptr;  // it takes another branch
          moved = true;
        }
      }
      if (moved) continue;
      // Failed polls may have read old values; new values become visible in the end.
      if (!pruned_ && !nudge()) error_ = "all lanes wait, and nobody is to come";
      if (pruned_ || !error_.empty()) return;
    }
  }
  /// After a store, those who polled in vain look again and see the newest. Twice, because lanes
  /// that vote may have read old values with some of them in the first round.
  bool nudge() {
    nudges_ = nudged_at_ == stores_ ? nudges_ + 1 : 1;
    if (nudges_ > 2) return false;
    nudged_at_ = stores_;
    for (auto& f : fibers_) {
      if (f->done || !f->paused) continue;
      f->paused = false;
      f->fresh = true;
    }
    return true;
  }
  void resume(Fiber& f) {
    f.gate = nullptr;
    f.waits_for = nullptr;
    f.paused = false;
    running_ = &f;
    ::swapcontext(&main_, &f.context);
  }
  void yield() { ::swapcontext(&running_->context, &main_); }
  /// Ends the running fiber where it is. Lanes own nothing that must be destroyed.
  [[noreturn]] void leave() {
    yield();
    std::abort();
  }
  void fail(const char* what) {
    error_ = what;
    leave();
  }
  static void enter() {
    Fiber& f = *current()->running_;
    f.body();
    f.done = true;
  }

  std::array<std::vector<char>, max_fibers> stacks_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Fiber* running_ = nullptr;
  ucontext_t main_{};
  std::map<const Word*, Location> places_;
  std::vector<Load> loads_;
  std::vector<Branch> choices_;
  std::minstd_rand* random_ = nullptr;  // null: all branches in turn
  size_t at_ = 0;
  unsigned long stores_ = 0, nudged_at_ = ~0ul;
  int nudges_ = 0;  // since the last store
  bool pruned_ = false;
  std::string error_;
  long tried_ = 0;
};

}  // namespace ccl::test
