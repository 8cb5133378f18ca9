#pragma once

// Lanes and their memory over a model of it. A test adds to `ModelData` the accesses that have an
// order.
#include <string>

#include "memory_model.hpp"

namespace ccl::test {

/// Members of a `Memory` over the model that promise no order.
struct ModelData {
  static constexpr bool lines_land_whole = false;
  static constexpr unsigned check_every = ~0u;  // waits have no limit
  static MemoryModel& model() { return *MemoryModel::current(); }
  static void pause() { model().pause(); }
  static void await_previous() {}
  static Word now_ns() { return 1; }

  static Packet load_bulk(const Packet* at) {
    return {model().load_data(&at->word[0], false), model().load_data(&at->word[1], false)};
  }
  static void store_bulk(Packet* at, Packet value) {
    model().store_data(&at->word[0], value.word[0], false);
    model().store_data(&at->word[1], value.word[1], false);
  }
};

/// Lanes of a group over `ModelMemory`. Without `Syncs`, a `sync` does not wait for the others.
/// Without `Votes`, a vote does not either, and has the lane's own result.
template <int Width, class ModelMemory, bool Syncs = true, bool Votes = true>
class ModelLanes {
 public:
  static constexpr int width = Width;
  using Memory = ModelMemory;
  ModelLanes(MemoryModel::StartGate& gate, int rank) : gate_{&gate}, rank_{rank} {}
  int rank() const { return rank_; }
  void sync() const {
    if (Width > 1 && Syncs) Memory::model().meet(*gate_, Width, true);
  }
  bool all(bool vote) const {
    return Width == 1 || !Votes ? vote : Memory::model().meet(*gate_, Width, vote) == 0;
  }

 private:
  MemoryModel::StartGate* gate_;
  int rank_;
};

/// Returns the defect that the model finds, or an empty text.
template <class F>
std::string flaw(F run) {
  try {
    run();
  } catch (const OrderError& error) {
    return error.what();
  }
  return {};
}

}  // namespace ccl::test
