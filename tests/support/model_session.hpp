#pragma once

// Kernels of two ranks that communicate, over a model of memory.
#include <ccl/device/tiles.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "model_lanes.hpp"

namespace ccl::test::session {

/// Orders that `Memory` promises. A test removes one.
struct Promises {
  bool release = true, acquire = true;                // of signals, barriers and flags
  bool credit_release = true, credit_acquire = true;  // of packets that are read
  bool sync = true;                                   // lanes of a block wait for each other
  bool vote = true;                                   // so they do when they vote
  bool count_release = true, count_acquire = true;    // of counters
};

/// Words that the model does not order: counts of launches, which one block reads and writes.
struct Plain {
  const Word *begin = nullptr, *end = nullptr;
  bool contains(const Word* at) const { return at >= begin && at < end; }
};
/// Words of lines, which carry data.
inline std::vector<Plain>& lines() {
  static std::vector<Plain> all;
  return all;
}
inline std::vector<Plain>& counts() {
  static std::vector<Plain> all;
  return all;
}
inline bool in(const std::vector<Plain>& all, const Word* at) {
  return std::any_of(all.begin(), all.end(), [at](const Plain& p) { return p.contains(at); });
}

template <Promises P>
struct ModelMemory : ModelData {
  static Word load_acquire(const Word* at) { return model().load(at, P.acquire); }
  static Word load_credit(const Word* at) { return model().load(at, P.credit_acquire); }
  static void store_release(Word* at, Word value) { model().store(at, value, P.release); }
  static void store_credit(Word* at, Word value) { model().store(at, value, P.credit_release); }
  static Word load_relaxed(const Word* at) {
    if (in(counts(), at)) return *at;
    return in(lines(), at) ? model().load_data(at, true) : model().load(at, false);
  }
  static void store_relaxed(Word* at, Word value) {
    if (in(lines(), at)) return model().store_data(at, value, true);
    model().store(at, value, false);
  }
  static Word fetch_add(Word* at, Word value) {
    return model().fetch_add(at, value, P.count_acquire, P.count_release);
  }
  static Packet load_relaxed(const Packet* at) {
    return {model().load(&at->word[0], false), model().load(&at->word[1], false)};
  }
  static void store_relaxed(Packet* at, Packet value) {
    for (int w = 0; w < 2; ++w) model().store(&at->word[w], value.word[w], false);
  }
};

inline constexpr int ranks = 2;
inline constexpr int max_blocks = 2;
inline constexpr DeviceRequirements needs{
    .blocks = max_blocks, .signals = 2, .counters = 1, .ll_bytes = 1024, .ll128_bytes = 2048};
inline constexpr detail::TeamLayout layout = detail::TeamLayout::of(needs, ranks);
inline constexpr int window_packets = 4;

/// Memory of two ranks.
struct Ranks {
  alignas(128) Packet window[ranks][window_packets];
  alignas(128) char scratch[ranks][layout.bytes];
  std::array<std::array<MemoryModel::StartGate, max_blocks>, ranks> gates;
  std::array<Team, ranks> teams;
  Word stop;
  detail::LaneFailure failures[ranks];

  void clear() {
    std::memset(window, 0, sizeof window);
    std::memset(scratch, 0, sizeof scratch);
    gates = {};
    stop = 0;
  }
  Ranks() {
    detail::TeamData data;
    data.ranks = ranks;
    data.blocks = needs.blocks;
    data.signals = needs.signals;
    data.counters = needs.counters;
    data.layout = layout;
    data.window_bytes = sizeof window[0];
    for (int r = 0; r < ranks; ++r) {
      data.window[r] = reinterpret_cast<char*>(window[r]);
      data.scratch[r] = scratch[r];
    }
    for (int r = 0; r < ranks; ++r) {
      data.rank = r;
      data.watch = {&stop, &failures[r], 0, nullptr, 0};
      teams[std::size_t(r)] = Team{data};
      const Word* const counted = data.epochs();
      counts().push_back({counted, counted + 16});
      const auto* const begin = reinterpret_cast<const Word*>(scratch[r] + layout.ll128.offset);
      lines().push_back({begin, begin + 2 * layout.ll128.half_bytes / Index{sizeof(Word)}});
    }
  }
};

inline Word value_of(int launch, int rank, int i) {
  return Word(unsigned(1 + launch * 100 + rank * 10 + i)) * 0x1'0001u;
}

/// Blocks of a launch on rank 0, and that of rank 1.
struct Blocks {
  int first = 1, second = 1;
};

/// Runs `kernel(group, team, launch, block)` on all lanes, once or more, then `check()`. Returns
/// the number of executions: all, or `samples` random ones.
template <int Width, Promises P, class Kernel, class Check>
long explore(int launches, Kernel kernel, Check check, Word begun = 0, Blocks blocks = {},
             long samples = 0) {
  static Ranks world;
  MemoryModel model;
  const auto prepare = [&] {
    world.clear();
    for (int r = 0; r < ranks; ++r) {
      // Launches that a peer has not begun, if they are given.
      *world.teams[std::size_t(r)].data().begun(r, 1 - r) = begun;
      for (int i = 0; i < (r == 0 ? blocks.first : blocks.second) * Width; ++i) {
        model.add([&, r, block = i / Width, lane = i % Width] {
          for (int n = 0; n < launches; ++n) {
            kernel(
                ModelLanes<Width, ModelMemory<P>, P.sync, P.vote>{
                    world.gates[std::size_t(r)][std::size_t(block)], lane},
                world.teams[std::size_t(r)], n, block);
          }
        });
      }
    }
  };
  const auto after = [&] { check(model); };
  return samples > 0 ? model.sample(prepare, after, samples) : model.explore(prepare, after);
}

inline constexpr Promises no_release{.release = false}, no_acquire{.acquire = false};
inline constexpr Promises no_credit_release{.credit_release = false};
inline constexpr Promises no_credit_acquire{.credit_acquire = false};
inline constexpr Promises no_sync{.sync = false};
inline constexpr Promises no_vote{.sync = false, .vote = false};
inline constexpr Promises no_count_release{.count_release = false};
inline constexpr Promises no_count_acquire{.count_acquire = false};

}  // namespace ccl::test::session
