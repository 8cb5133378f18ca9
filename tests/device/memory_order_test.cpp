// The device-side interface over a model of memory: no execution that release and acquire allow
// shows a lane old data. Then the same code runs with orders removed, which the model must detect.
#include <ccl/device/tiles.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/memory_model.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

/// Orders that `Memory` promises. A test removes one.
struct Promises {
  bool release = true, acquire = true;                // of signals, barriers and flags
  bool credit_release = true, credit_acquire = true;  // of packets that are read
  bool sync = true;                                   // lanes of a block wait for each other
  bool count_release = true, count_acquire = true;    // of counters
};

/// Words that the model does not order: counts of launches, which one block reads and writes.
struct Plain {
  const Word *begin = nullptr, *end = nullptr;
  bool contains(const Word* at) const { return at >= begin && at < end; }
};
/// Words of lines, which carry data.
std::vector<Plain>& lines() {
  static std::vector<Plain> all;
  return all;
}
std::vector<Plain>& counts() {
  static std::vector<Plain> all;
  return all;
}
bool in(const std::vector<Plain>& all, const Word* at) {
  return std::any_of(all.begin(), all.end(), [at](const Plain& p) { return p.contains(at); });
}

template <Promises P>
struct ModelMemory {
  static constexpr bool lines_land_whole = false;
  static constexpr unsigned check_every = ~0u;  // waits have no limit
  static MemoryModel& model() { return *MemoryModel::current(); }
  static void pause() { model().pause(); }
  static void await_previous() {}
  static Word now_ns() { return 1; }

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
  static Packet load_bulk(const Packet* at) {
    return {model().load_data(&at->word[0], false), model().load_data(&at->word[1], false)};
  }
  static void store_bulk(Packet* at, Packet value) {
    model().store_data(&at->word[0], value.word[0], false);
    model().store_data(&at->word[1], value.word[1], false);
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
    if (Width > 1 && P.sync) Memory::model().meet(*gate_, Width, true);
  }
  bool all(bool vote) const {
    return Width == 1 ? vote : Memory::model().meet(*gate_, Width, vote) == 0;
  }

 private:
  MemoryModel::StartGate* gate_;
  int rank_;
};

constexpr int ranks = 2;
constexpr int max_blocks = 2;
constexpr DeviceRequirements needs{
    .blocks = max_blocks, .signals = 2, .counters = 1, .ll_bytes = 1024, .ll128_bytes = 1024};
constexpr detail::TeamLayout layout = detail::TeamLayout::of(needs, ranks);
constexpr int window_packets = 4;

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

Word value_of(int launch, int rank, int i) {
  return Word(unsigned(1 + launch * 100 + rank * 10 + i)) * 0x1'0001u;
}

/// Blocks of a launch on rank 0, and that of rank 1.
struct Blocks {
  int first = 1, second = 1;
};

/// Runs `kernel(group, team, launch, block)` on all lanes, once or more, then `check()`. Returns
/// the number of executions.
template <int Width, Promises P, class Kernel, class Check>
long explore(int launches, Kernel kernel, Check check, Word begun = 0, Blocks blocks = {}) {
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
            kernel(ModelLanes<Width, P>{world.gates[std::size_t(r)][std::size_t(block)], lane},
                   world.teams[std::size_t(r)], n, block);
          }
        });
      }
    }
  };
  return model.explore(prepare, [&] { check(model); });
}

const Packet sent[2] = {{{value_of(0, 0, 0), value_of(0, 0, 1)}},
                        {{value_of(0, 0, 2), value_of(0, 0, 3)}}};

/// How rank 1 waits for a signal.
enum class Wait { wait, wait_all, test, word };

/// Rank 0 puts packets to rank 1 and signals.
template <int Width, Promises P = Promises{}, Wait How = Wait::wait>
long put() {
  static std::array<std::array<Packet, 2>, Width> got;
  return explore<Width, P>(
      1,
      [](auto group, const Team& team, int, int) {
        TeamSession session{group, team, 0, 1};
        Word* const word = team.data().signal(1, 0, 0);  // any word that both address
        if (team.rank() == 0 && How == Wait::word) {
          session.put(1, 0, sent, 2);
          return session.set_word(word, 1);
        }
        if (team.rank() == 0) return session.put_signal(1, 0, sent, 2, 1);
        if (How == Wait::word) session.wait_word(word, 1);
        if (How == Wait::wait) session.wait(0, 1);
        if (How == Wait::wait_all) session.wait_all(1);
        while (How == Wait::test && !session.test(0, 1)) ModelMemory<P>::pause();
        for (int i = 0; i < 2; ++i) {
          got[std::size_t(group.rank())][std::size_t(i)] =
              ModelMemory<P>::load_bulk(team.window<Packet>(1) + i);
        }
      },
      [](const MemoryModel& model) {
        for (const auto& of : got) {
          for (int i = 0; i < 4; ++i) {
            const Word word = of[std::size_t(i / 2)].word[i % 2];
            if (model.value_of(word) != value_of(0, 0, i)) throw OrderError{"a wrong word"};
          }
        }
      });
}

/// Both ranks write a packet of their own before a barrier, and read that of the other after it.
template <int Width, MemoryOrder Order, Promises P = Promises{}>
long barrier() {
  static std::array<std::array<Packet, Width>, ranks> got;
  return explore<Width, P>(
      1,
      [](auto group, const Team& team, int, int) {
        TeamSession session{group, team, 0, 1};
        const int me = team.rank();
        const int lane = group.rank();
        ModelMemory<P>::store_bulk(team.window<Packet>(me) + lane,
                                   {{value_of(0, me, lane), value_of(1, me, lane)}});
        session.barrier(Order);
        // What another lane of the peer has written.
        const int other = Width - 1 - lane;
        got[std::size_t(me)][std::size_t(lane)] =
            ModelMemory<P>::load_bulk(team.window<Packet>(1 - me) + other);
      },
      [](const MemoryModel& model) {
        for (int me = 0; me < ranks; ++me) {
          for (int lane = 0; lane < Width; ++lane) {
            const Packet& p = got[std::size_t(me)][std::size_t(lane)];
            for (int w = 0; w < 2; ++w) {
              if (model.value_of(p.word[w]) != value_of(w, 1 - me, Width - 1 - lane)) {
                throw OrderError{"a wrong word"};
              }
            }
          }
        }
      });
}

/// Rank 0 sends a tile to rank 1 by the same slot in each launch.
template <class Proto, Promises P = Promises{}>
long tiles(int launches, Word begun = 0) {
  constexpr int size = std::is_same_v<Proto, LL> ? 1 : 3;
  static std::array<std::array<Word, size>, 8> got;
  return explore<1, P>(
      launches,
      [](auto group, const Team& team, int launch, int) {
        using Group = decltype(group);
        TeamSession session{group, team, 0, 1};
        Tiles<Group, Word, TileShape<1, size>, Proto> all{session};
        alignas(16) Word tile[size];
        for (int i = 0; i < size; ++i) tile[i] = value_of(launch, team.rank(), i);
        if (team.rank() == 0) {
          all.send(1, 0, tile);
        } else {
          all.recv(0, 0, tile);
          for (int i = 0; i < size; ++i) got[std::size_t(launch)][std::size_t(i)] = tile[i];
        }
      },
      [launches](const MemoryModel& model) {
        for (int n = 0; n < launches; ++n) {
          for (int i = 0; i < size; ++i) {
            if (model.value_of(got[std::size_t(n)][std::size_t(i)]) != value_of(n, 0, i)) {
              throw OrderError{"a wrong word"};
            }
          }
        }
      },
      begun);
}

/// Each of two blocks of rank 0 puts packets and counts. The last one signals for both.
template <int Width, Promises P = Promises{}>
long count() {
  static std::array<std::array<Packet, 4>, Width> got;
  return explore<Width, P>(
      1,
      [](auto group, const Team& team, int, int block) {
        TeamSession session{group, team, block, 2};
        if (team.rank() == 0) {
          session.put(1, 2 * block, sent, 2);
          if (session.count(0, 2)) session.signal(1, 0);
          return;
        }
        session.wait(0, 0);
        for (int i = 0; i < 4; ++i) {
          got[std::size_t(group.rank())][std::size_t(i)] =
              ModelMemory<P>::load_bulk(team.window<Packet>(1) + i);
        }
      },
      [](const MemoryModel& model) {
        for (const auto& of : got) {
          for (int i = 0; i < 8; ++i) {
            const Word word = of[std::size_t(i / 2)].word[i % 2];
            if (model.value_of(word) != value_of(0, 0, i % 4)) throw OrderError{"a wrong word"};
          }
        }
      },
      0, {.first = 2});
}

/// Reductions that keep the element of one rank, so that elements are only moved.
struct First {
  Word operator()(Word a, Word) const { return a; }
};
struct Last {
  Word operator()(Word, Word b) const { return b; }
};
enum class Kind { all_reduce, reduce, reduce_scatter, all_gather };

/// Both ranks make a collective of tiles by one slot.
template <class Proto, Kind How, class Keep, Promises P = Promises{}>
long collective() {
  constexpr int size = std::is_same_v<Proto, LL> ? 1 : 3, most = ranks * size;
  constexpr int kept = std::is_same_v<Keep, First> ? 0 : 1;
  static std::array<std::array<Word, most>, ranks> got;
  return explore<1, P>(
      1,
      [](auto group, const Team& team, int, int) {
        using Group = decltype(group);
        using Block = Tiles<Group, Word, TileShape<1, size>, Proto, 2>;
        TeamSession session{group, team, 0, 1};
        Block all{session};
        const int me = team.rank();
        alignas(16) Word tile[size + 1], out[most + 2];
        for (int i = 0; i < size; ++i) tile[i] = value_of(0, me, i);
        if constexpr (How == Kind::all_reduce) all.all_reduce(0, tile, Keep{});
        if constexpr (How == Kind::reduce) all.reduce(1, 0, tile, Keep{});
        if constexpr (How == Kind::reduce_scatter) all.reduce_scatter(0, tile, out, Keep{});
        if constexpr (How == Kind::all_gather) all.all_gather(0, tile, out);
        constexpr bool in_tile = How == Kind::all_reduce || How == Kind::reduce;
        for (int i = 0; i < most; ++i) {
          got[std::size_t(me)][std::size_t(i)] = in_tile ? tile[i % size] : out[i];
        }
      },
      [](const MemoryModel& model) {
        for (int me = How == Kind::reduce ? 1 : 0; me < ranks; ++me) {
          const int begin = How == Kind::reduce_scatter ? 2 * me : 0;
          const int count = How == Kind::all_gather       ? most
                            : How == Kind::reduce_scatter ? std::clamp(size - begin, 0, 2)
                                                          : size;
          for (int i = 0; i < count; ++i) {
            const int from = How == Kind::all_gather ? i / size : kept;
            const int at = How == Kind::all_gather ? i % size : begin + i;
            if (model.value_of(got[std::size_t(me)][std::size_t(i)]) != value_of(0, from, at)) {
              throw OrderError{"a wrong word"};
            }
          }
        }
      });
}

constexpr Promises no_release{.release = false}, no_acquire{.acquire = false};
constexpr Promises no_credit_release{.credit_release = false};
constexpr Promises no_credit_acquire{.credit_acquire = false};
constexpr Promises no_sync{.sync = false};
constexpr Promises no_count_release{.count_release = false};
constexpr Promises no_count_acquire{.count_acquire = false};
constexpr auto ordered = MemoryOrder::acq_rel;

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

}  // namespace

TEST_CASE("no execution of a put with a signal shows old data") {
  const long one = put<1>(), two = put<2>();
  WARN("executions: " << one << " with one lane, " << two << " with two");
  CHECK(one > 1);
  CHECK(two > one);
}

TEST_CASE("no execution of a test or a wait for all ranks shows old data") {
  const long tests = put<1, Promises{}, Wait::test>() + put<2, Promises{}, Wait::test>();
  const long waits = put<1, Promises{}, Wait::wait_all>() + put<2, Promises{}, Wait::wait_all>();
  WARN("executions: " << tests << " of tests, " << waits << " of waits");
  CHECK(tests > 2);
  CHECK(waits > 2);
}

TEST_CASE("no execution of a wait for a word shows old data") {
  const long one = put<1, Promises{}, Wait::word>(), two = put<2, Promises{}, Wait::word>();
  WARN("executions: " << one << " with one lane, " << two << " with two");
  CHECK(one > 1);
  CHECK(two > one);
}

TEST_CASE("no execution of a count of blocks shows old data") {
  const long one = count<1>(), two = count<2>();
  WARN("executions: " << one << " with one lane, " << two << " with two");
  CHECK(one > 1);
  CHECK(two > one);
}

TEST_CASE("no execution of collectives of tiles shows old data") {
  long ll = 0, ll128 = 0;
  const auto add = []<class Proto>(long& all, Proto) {
    all += collective<Proto, Kind::all_reduce, First>();
    all += collective<Proto, Kind::all_reduce, Last>();
    all += collective<Proto, Kind::reduce, First>();
    all += collective<Proto, Kind::reduce, Last>();
    all += collective<Proto, Kind::reduce_scatter, First>();
    all += collective<Proto, Kind::reduce_scatter, Last>();
    all += collective<Proto, Kind::all_gather, First>();
  };
  add(ll, LL{});
  add(ll128, LL128{});
  WARN("executions: LL " << ll << ", LL128 " << ll128);
  CHECK(ll > 10);
  CHECK(ll128 > 10);
}

TEST_CASE("no execution of a barrier with order shows old data") {
  const long one = barrier<1, MemoryOrder::acq_rel>(), two = barrier<2, MemoryOrder::acq_rel>();
  WARN("executions: " << one << " with one lane, " << two << " with two");
  CHECK(one > 1);
  CHECK(two > one);
}

TEST_CASE("no execution of launches overwrites a packet that is not read") {
  long ll = 0, ll128 = 0;
  for (int launches = 1; launches <= 3; ++launches) {
    ll += tiles<LL>(launches);
    ll128 += tiles<LL128>(launches);
  }
  WARN("executions: LL " << ll << ", LL128 " << ll128);
  CHECK(ll > 10);
  CHECK(ll128 > 10);
}

TEST_CASE("the model catches an order of the interface that is left out") {
  CHECK(flaw([] { put<1, no_release>(); }) != "");
  CHECK(flaw([] { put<1, no_acquire>(); }) != "");
  CHECK(flaw([] { put<2, no_sync>(); }) != "");
  CHECK(flaw([] { barrier<1, ordered, no_release>(); }) != "");
  CHECK(flaw([] { barrier<1, ordered, no_acquire>(); }) != "");
  CHECK(flaw([] { barrier<2, ordered, no_sync>(); }) != "");
  CHECK(flaw([] { put<1, no_acquire, Wait::test>(); }) != "");
  CHECK(flaw([] { put<1, no_acquire, Wait::wait_all>(); }) != "");
  CHECK(flaw([] { put<2, no_sync, Wait::test>(); }) != "");
  CHECK(flaw([] { put<1, no_release, Wait::word>(); }) != "");
  CHECK(flaw([] { put<1, no_acquire, Wait::word>(); }) != "");
  CHECK(flaw([] { put<2, no_sync, Wait::word>(); }) != "");
  CHECK(flaw([] { count<1, no_count_release>(); }) != "");
  CHECK(flaw([] { count<1, no_count_acquire>(); }) != "");
  CHECK(flaw([] { count<2, no_sync>(); }) != "");
  CHECK(flaw([] { collective<LL128, Kind::all_reduce, First, no_release>(); }) != "");
  CHECK(flaw([] { collective<LL128, Kind::all_reduce, First, no_acquire>(); }) != "");
  CHECK(flaw([] { collective<LL128, Kind::reduce, First, no_release>(); }) != "");
  CHECK(flaw([] { collective<LL128, Kind::reduce_scatter, First, no_acquire>(); }) != "");
  CHECK(flaw([] { collective<LL128, Kind::all_gather, First, no_release>(); }) != "");
  // Data that only a barrier without order separates.
  CHECK(flaw([] { barrier<1, MemoryOrder::relaxed>(); }) != "");
  CHECK(flaw([] { tiles<LL128, no_release>(3); }) != "");
  CHECK(flaw([] { tiles<LL128, no_acquire>(3); }) != "");
  CHECK(flaw([] { tiles<LL128, no_credit_release>(3); }) != "");
  CHECK(flaw([] { tiles<LL128, no_credit_acquire>(3); }) != "");
  // Packets are written before the peer has begun the launch that frees them.
  CHECK(flaw([] { tiles<LL>(3, 8); }) != "");
  CHECK(flaw([] { tiles<LL128>(3, 8); }) != "");
}
