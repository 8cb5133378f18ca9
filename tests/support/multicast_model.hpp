#pragma once

// Lanes and emulated multicast memory over a model of memory: see memory_model.hpp.
#include <ccl/detail/multicast/body.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "support/memory_model.hpp"

namespace ccl::test {

constexpr int max_model_ranks = 3;

/// Orders and waits of the product. A test removes one.
struct Promises {
  bool release = true, acquire = true;  // of arrivals
  bool sync = true;                     // lanes of a group wait for each other
  int ranks_less = 0;                   // arrivals go to so many ranks less
  bool halves = true;                   // the halves of the scratch alternate
  bool places = true;                   // the places of two launches have words of their own
};

inline MemoryModel& model() {
  return *MemoryModel::current();
}
/// The ranks' counts of launches, which the model does not see.
struct LaunchCounts {
  const void *begin = nullptr, *end = nullptr;
  bool contain(const void* at) const { return at >= begin && at < end; }
};
inline LaunchCounts launch_counts;

template <Promises P>
class ModelMemory {
 public:
  static constexpr bool lines_land_whole = false;
  static constexpr unsigned check_every = ~0u;  // waits have no limit
  static void pause() { model().pause(); }
  static void await_previous() {}
  static Word now_ns() { return 1; }
  static Word load_acquire(const Word* at) { return model().load(at, P.acquire); }
  static Word load_credit(const Word* at) { return model().load(at, P.acquire); }
  static void store_release(Word* at, Word value) { model().store(at, value, P.release); }
  static void store_credit(Word* at, Word value) { model().store(at, value, P.release); }
  static Word load_relaxed(const Word* at) {
    return launch_counts.contain(at) ? *at : model().load_settled(place(at));
  }
  static void store_relaxed(Word* at, Word value) {
    launch_counts.contain(at) ? void(*at = value)
                              : model().store_data(const_cast<Word*>(place(at)), value, false);
  }
  static Packet load_relaxed(const Packet* at) { return load_bulk(at); }
  static void store_relaxed(Packet* at, Packet value) { store_bulk(at, value); }
  static Packet load_bulk(const Packet* at) {
    return {model().load_data(&at->word[0], false), model().load_data(&at->word[1], false)};
  }
  static void store_bulk(Packet* at, Packet value) {
    model().store_data(&at->word[0], value.word[0], false);
    model().store_data(&at->word[1], value.word[1], false);
  }

 private:
  /// The words of two launches' places are a packet apart.
  static const Word* place(const Word* at) {
    if (P.places) return at;
    return reinterpret_cast<const Word*>(reinterpret_cast<std::uintptr_t>(at) &
                                         ~std::uintptr_t{16});
  }
};

template <int Width, Promises P>
class ModelLanes {
 public:
  static constexpr int width = Width;
  using Memory = ModelMemory<P>;
  ModelLanes(MemoryModel::StartGate& gate, int rank) : gate_{&gate}, rank_{rank} {}
  int rank() const { return rank_; }
  void sync() const {
    if (Width > 1 && P.sync) model().meet(*gate_, Width, true);
  }
  bool all(bool vote) const { return Width == 1 ? vote : model().meet(*gate_, Width, vote) == 0; }

 private:
  MemoryModel::StartGate* gate_;
  int rank_;
};

/// A packet that was reduced: what each rank's copy held.
struct Reduced {
  std::array<Packet, max_model_ranks> from;
};
inline std::vector<Reduced>& reductions() {
  static std::vector<Reduced> all;
  return all;
}

/// `UnicastMulticast`, except that the result of a reduction is its number, because values of the
/// model can only be moved.
template <Promises P>
class ModelMulticast {
 public:
  using Plain = detail::UnicastMulticast<ModelMemory<P>>;
  ModelMulticast(Word all, const detail::PeerView& peers) : peers_{peers}, plain_{all, peers} {}
  template <class F, class T>
  Packet load_reduced(Index packet) const {
    Reduced one{};
    for (int r = 0; r < peers_.ranks; ++r) {
      one.from[std::size_t(r)] =
          ModelMemory<P>::load_bulk(peers_.template scratch_of<max_view_ranks>(r) + packet);
    }
    reductions().push_back(one);
    const Word number = reductions().size();
    return {{2 * number, 2 * number + 1}};
  }
  void store(Index packet, Packet value) const { plain_.store(packet, value); }
  void store_release(Index word, Word value) const {
    if (P.ranks_less == 0) return plain_.store_release(word, value);
    detail::PeerView fewer = peers_;
    fewer.ranks = peers_.ranks - P.ranks_less;
    if (fewer.rank < fewer.ranks) Plain{0, fewer}.store_release(word, value);
  }
  void store_relaxed(Index word, Word value) const { plain_.store_relaxed(word, value); }
  static void fence() {}

 private:
  const detail::PeerView& peers_;
  Plain plain_;
};

/// Returns the defect that the model finds; empty if there is none.
template <class F>
std::string defect(F run) {
  try {
    run();
  } catch (const OrderError& error) {
    return error.what();
  }
  return {};
}

}  // namespace ccl::test
