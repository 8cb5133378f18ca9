#pragma once

#include <ccl/detail/lanes/slot_runs.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Sends runs through slots of peers' memory, by one lane that drives a copy engine. The engine
/// goes on while slots are reported and while peers empty them.
///
/// `Stages`: places for pieces between their loads and their stores. `Memory`: memory of the lane.
template <class Stages, class Memory>
class SlotSender {
  static constexpr int ahead = Stages::ahead;

 public:
  CCL_HD SlotSender(Stages& stages, const SlotRuns& slots) : stages_{stages}, slots_{slots} {}

  /// Sends all runs. `await(word, want, peer)` blocks until a receiver has emptied a slot. Returns
  /// false if a wait returned false; the engine is idle then, too.
  template <class Await>
  CCL_HD bool run(Await await) {
    stages_.open();
    Cursor load{slots_, Stages::piece_bytes}, store = load, report = load;
    Index loaded = 0, stored = 0, reported = 0;
    const auto fetch = [&] {
      stages_.load(loaded++, load.from(), load.bytes());
      load.next();
    };
    const auto note = [&] {
      if (report.ends_slot()) {
        const SlotRuns::Counts& counts = slots_.counts[report.run()];
        Memory::store_release(counts.reported, counts.flag | Word(report.slot() + 1));
      }
      report.next();
      ++reported;
    };
    while (loaded < ahead && load.left()) fetch();
    bool ok = true;
    for (; ok && store.left(); store.next()) {
      if (store.begins_slot() && !is_free(store)) {
        // The receiver may wait for slots that are filled and not reported.
        stages_.template await_stores<0>();
        while (reported < stored) note();
        const SlotRuns::Counts& counts = slots_.counts[store.run()];
        ok = await(counts.drained, wanted(store), counts.peer);
        if (!ok) break;
      }
      stages_.await_load(stored);
      stages_.store(stored++, store.to(), store.bytes());
      if (stored - reported > Stages::on_the_way) {
        stages_.template await_stores<Stages::on_the_way>();
        note();
      }
      if (!load.left()) continue;
      stages_.await_reads();
      fetch();
    }
    for (Index n = stored; n < loaded; ++n) stages_.await_load(n);
    stages_.template await_stores<0>();
    while (reported < stored) note();
    stages_.close();
    return ok;
  }

 private:
  using Cursor = SlotPieces;
  /// Returns the value that the word of the receiver reaches when the slot is free.
  CCL_HD Word wanted(const Cursor& at) const {
    return slots_.counts[at.run()].flag | Word(at.slot() - slots_.slot_count + 1);
  }
  CCL_HD bool is_free(const Cursor& at) const {
    if (at.slot() < slots_.slot_count) return true;
    const Word want = wanted(at), got = Memory::load_credit(slots_.counts[at.run()].drained);
    return got >> 32 == want >> 32 && got >= want;
  }

  Stages& stages_;
  const SlotRuns& slots_;
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
