// Random programs of all calls of the device-side interface, for 2 to 8 ranks on CPU lanes. All
// ranks derive the same program from a number, and check what they receive. Ranks are held up only
// by each other: a fast rank is launches ahead where the interface lets it.
#include <ccl/device/tiles.hpp>

#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/device_world.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

using Solo = detail::SoloLane;
using Small = Tiles<Solo, float, TileShape<2, 7>, LL>;
using Large = Tiles<Solo, int, TileShape<9, 8>, LL128>;

constexpr int max_calls = 6, max_words = 40, blocks = 2;
#if defined(CCL_TEST_LONG)
constexpr int programs = 100'000;
#else
constexpr int programs = 10'000;
#endif

enum class Call {
  put_ring,
  put_all,
  barrier,
  relaxed_barrier,
  all_reduce,
  reduce,
  reduce_scatter,
  all_gather,
  send_recv,
  count,
  calls
};

/// One call of a program, equal on all ranks.
struct Step {
  Call call;
  bool large;  // which tiles
  int words;   // of a put
  int root;
  int shift;  // of a send
};

std::vector<Step> program_of(std::uint32_t seed, int ranks) {
  std::minstd_rand random{seed * 2654435761u + 1};
  const auto below = [&](int n) { return int(random() % unsigned(n)); };
  std::vector<Step> steps(std::size_t(1 + below(max_calls)));
  const bool puts = below(2) == 1;
  for (auto& step : steps) {
    step = {Call(puts ? below(int(Call::calls)) : 4 + below(int(Call::calls) - 4)), below(2) == 1,
            1 + below(max_words), below(ranks), 1 + below(ranks - 1)};
  }
  return steps;
}

/// One block of one rank, which runs a program.
class Player {
 public:
  Player(const Team& team, int block, int ranks)
      : team_{team}, block_{block}, me_{team.rank()}, ranks_{ranks} {}

  /// Returns the number of wrong results.
  long play(std::uint32_t seed) {
    const auto program = program_of(seed, ranks_);
    TeamSession<Solo> session{Solo{}, team_, block_, blocks};
    session_ = &session;
    seed_ = int(seed % 1000);
    wrong_ = 0;
    puts_ = false;
    int n = 0;
    for (const Step& step : program) run(step, n++);
    // A peer may still read what was put, and the next program puts data to the same place. Without
    // puts a rank may be launches ahead.
    if (puts_) good(session.barrier());
    return wrong_;
  }

 private:
  void good(bool is) { wrong_ += !is; }
  Word word(int from, int to, int n, Index i) const {
    return (((Word(unsigned(seed_)) * 8 + Word(unsigned(from))) * 8 + Word(unsigned(to))) * 16 +
            Word(unsigned(n))) *
               64 +
           Word(i);
  }
  template <class T>
  T element(int rank, int n, int i) const {
    return T((seed_ + 5 * rank + 3 * n + i) % 11);
  }
  template <class T>
  T sum(int n, int i) const {
    T all = 0;
    for (int r = 0; r < ranks_; ++r) all += element<T>(r, n, i);
    return all;
  }

  void put(int peer, const Step& step, int n) {
    puts_ = true;
    std::vector<Word> message(std::size_t(step.words), 0);
    for (int i = 0; i < step.words; ++i) message[std::size_t(i)] = word(me_, peer, n, i);
    session_->put_signal(peer, place(me_, n), message.data(), step.words, id(n));
  }
  void take(int peer, const Step& step, int n) {
    good(session_->wait(peer, id(n)));
    const Word* const got = team_.window<Word>(me_) + place(peer, n);
    for (int i = 0; i < step.words; ++i) good(got[i] == word(peer, me_, n, i));
  }
  Index place(int writer, int n) const {
    return ((Index{n} * blocks + block_) * ranks_ + writer) * max_words;
  }
  int id(int n) const { return n * blocks + block_; }

  void run(const Step& step, int n) {
    const int next = (me_ + step.shift) % ranks_;
    const int before = (me_ + ranks_ - step.shift) % ranks_;
    switch (step.call) {
      case Call::put_ring:
        put(next, step, n);
        return take(before, step, n);
      case Call::put_all:
        for (int k = 0; k < ranks_; ++k) put((me_ + k) % ranks_, step, n);
        for (int p = 0; p < ranks_; ++p) take(p, step, n);
        return;
      case Call::barrier:
        return good(session_->barrier());
      case Call::relaxed_barrier:
        return good(session_->barrier(MemoryOrder::relaxed));
      case Call::count:
        // The last block of the rank signals for both, and the other does not wait.
        if (!session_->count(n, blocks)) return;
        for (int p = 0; p < ranks_; ++p) {
          if (p != me_) session_->signal(p, max_calls * blocks + n);
        }
        return good(session_->wait_all(max_calls * blocks + n));
      default:
        if (step.large) return run_tiles<Large, int>(step, n, next, before);
        return run_tiles<Small, float>(step, n, next, before);
    }
  }
  template <class Block, class T>
  void run_tiles(const Step& step, int n, int next, int before) {
    constexpr int size = Block::elements;
    Block tiles{*session_};
    alignas(16) T tile[size], all[8 * size];
    for (int i = 0; i < size; ++i) tile[i] = element<T>(me_, n, i);
    const Index slot = id(n);
    const auto check_sums = [&](const T* got, int begin, int count) {
      for (int i = 0; i < count; ++i) good(got[i] == sum<T>(n, begin + i));
    };
    switch (step.call) {
      case Call::all_reduce:
        good(tiles.all_reduce(slot, tile));
        return check_sums(tile, 0, size);
      case Call::reduce:
        good(tiles.reduce(step.root, slot, tile));
        if (me_ == step.root) check_sums(tile, 0, size);
        return;
      case Call::reduce_scatter:
        good(tiles.reduce_scatter(slot, tile, all));
        return check_sums(all, me_ * Block::share_elements(ranks_),
                          Block::share_count(me_, ranks_));
      case Call::all_gather:
        good(tiles.all_gather(slot, tile, all));
        for (int p = 0; p < ranks_; ++p) {
          for (int i = 0; i < size; ++i) good(all[p * size + i] == element<T>(p, n, i));
        }
        return;
      default:
        good(tiles.send(next, slot, tile));
        good(tiles.recv(before, slot, tile));
        for (int i = 0; i < size; ++i) good(tile[i] == element<T>(before, n, i));
    }
  }

  const Team& team_;
  TeamSession<Solo>* session_ = nullptr;
  int block_, me_, ranks_, seed_ = 0;
  long wrong_ = 0;
  bool puts_ = false;  // by the program
};

/// Runs the programs from `first` on. Returns the number of wrong results.
long run_programs(int ranks, std::uint32_t first, int count) {
  const int slots = max_calls * blocks;
  DeviceWorld world{ranks,
                    {.blocks = blocks,
                     .signals = max_calls * blocks + max_calls,
                     .counters = max_calls,
                     .ll_bytes = Small::bytes(slots, ranks),
                     .ll128_bytes = Large::bytes(slots, ranks)},
                    Index{slots} * ranks * max_words * Index{sizeof(Word)}};
  std::atomic<long> wrong{0};
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<detail::LaneBarrier>> ends;
  for (int r = 0; r < ranks; ++r) {
    auto& end = *ends.emplace_back(std::make_unique<detail::LaneBarrier>(blocks));
    for (int b = 0; b < blocks; ++b) {
      threads.emplace_back([&, r, b] {
        Player player{world.team(r), b, ranks};
        for (int n = 0; n < count && wrong == 0; ++n) {
          if (const long found = player.play(first + std::uint32_t(n)); found > 0) wrong += found;
          end.arrive_and_wait();  // the next launch begins when this one has ended
        }
      });
    }
  }
  for (auto& thread : threads) thread.join();
  return wrong + (world.failed() ? 1 : 0);
}

}  // namespace

TEST_CASE("random programs of calls are right for 2 to 8 ranks") {
  detail::crowded = true;  // a lane that waits gives its core to another
  // More ranks than cores take longer.
  constexpr int parts[] = {38, 24, 14, 9, 6, 5, 4};
  for (int ranks = 2; ranks <= 8; ++ranks) {
    INFO(ranks << " ranks");
    const int count = programs / 100 * parts[ranks - 2];
    CHECK(run_programs(ranks, std::uint32_t(ranks) * 1'000'000, count) == 0);
  }
}
