// Queue from kernels to the proxy, over a model of memory: no execution that release and acquire
// allow shows the proxy old data, or lets a block fill a slot that is not drained. Orders that are
// left out are found. Then blocks and a proxy as threads.
#include <ccl/detail/lanes/far_queue.hpp>
#include <ccl/detail/lanes/host_lanes.hpp>

#include <array>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/model_lanes.hpp"

using namespace ccl;
using namespace ccl::test;
using detail::FarHeader, detail::FarQueue;

namespace {

struct Promises {
  bool release = true, acquire = true;  // of the number of a slot
  bool drain = true, credit = true;     // release and acquire of drained turns
  bool sync = true;                     // lanes of a block wait for each other
};

struct World {
  alignas(128) char slots[FarQueue::slot_count * FarQueue::slot_bytes];
  Word drained, taken, stop;
  std::array<Word, 2> mine;
  std::array<MemoryModel::StartGate, 2> gates;
  detail::LaneFailure failure;
  FarQueue queue() { return {slots, &drained}; }
};
World& world() {
  static World one;
  return one;
}

template <Promises P>
struct ModelMemory : ModelData {
  static bool is_number(const Word* at) {
    return (reinterpret_cast<const char*>(at) - world().slots) % FarQueue::slot_bytes == 0;
  }
  static Word load_acquire(const Word* at) {
    return model().load(at, at == &world().drained ? P.credit : P.acquire);
  }
  static void store_release(Word* at, Word value) {
    model().store(at, value, at == &world().drained ? P.drain : P.release);
  }
  static Word load_credit(const Word* at) { return load_acquire(at); }
  static void store_credit(Word* at, Word value) { store_release(at, value); }
  // The turn of a block, which its own lanes read after a `sync`, is not modeled.
  static Word load_relaxed(const Word* at) { return *at; }
  static void store_relaxed(Word* at, Word value) {
    const auto* const slots = world().slots;
    const auto* const place = reinterpret_cast<const char*>(at);
    if (place < slots || place >= slots + sizeof world().slots) {
      *at = value;
    } else {
      model().store_data(at, value, false);
    }
  }
  static Word fetch_add(Word* at, Word value) { return model().fetch_add(at, value, true, true); }
  static Packet load_relaxed(const Packet* at) { return load_bulk(at); }
  static void store_relaxed(Packet* at, Packet value) { store_bulk(at, value); }
};

Word value_of(int block, int i) {
  return Word(unsigned(1 + block * 10 + i)) * 0x1'0001u;
}

/// `blocks` blocks give a turn of two packets each, and the proxy takes all. `full`: all slots but
/// one are taken at first, so that the second turn waits for the proxy, which reads what its slot
/// held.
template <int Width, Promises P = Promises{}>
long explore(int blocks, bool full = false) {
  static std::array<std::array<Word, 4>, 2> got;
  static std::array<Word, 2> from;
  static Word old;
  MemoryModel model;
  const Word before = full ? FarQueue::slot_count - 1 : 0;
  const auto prepare = [&] {
    World& w = world();
    for (int i = 0; i < FarQueue::slot_count; ++i) {
      std::memset(w.slots + i * FarQueue::slot_bytes, 0, 256);
    }
    w.drained = w.stop = 0;
    w.taken = before;
    w.gates = {};
    for (int i = 0; i < blocks * Width; ++i) {
      model.add([&w, block = i / Width, lane = i % Width] {
        ModelLanes<Width, ModelMemory<P>, P.sync> group{w.gates[std::size_t(block)], lane};
        Word* const mine = &w.mine[std::size_t(block)];
        const detail::AbortWatch watch{&w.stop, &w.failure, 0, nullptr, 0};
        FarHeader* const slot = detail::take_turn(group, w.queue(), &w.taken, mine, 1, watch);
        auto* const to = reinterpret_cast<Packet*>(FarQueue::payload(slot));
        for (int p = lane; p < 2; p += Width) {
          ModelMemory<P>::store_bulk(to + p,
                                     {{value_of(block, 2 * p), value_of(block, 2 * p + 1)}});
        }
        detail::give_turn(group, slot, mine,
                          {0, Word(unsigned(1 + block)), FarHeader::to_window, 0, 32, 0});
      });
    }
    model.add([&w, blocks, before] {
      // The proxy
      const FarQueue queue = w.queue();
      if (before > 0) {
        const auto* const held = reinterpret_cast<const Word*>(FarQueue::payload(queue.slot(0)));
        old = MemoryModel::current()->load_data(held, false);
        ModelMemory<P>::store_release(queue.drained, before);
      }
      for (int n = 0; n < blocks; ++n) {
        const Word turn = before + Word(n);
        FarHeader* const slot = queue.slot(turn);
        while (ModelMemory<P>::load_acquire(&slot->number) != turn + 1) ModelMemory<P>::pause();
        from[std::size_t(n)] = MemoryModel::current()->load_data(&slot->peer, false);
        const auto* const packets = reinterpret_cast<const Packet*>(FarQueue::payload(slot));
        for (int p = 0; p < 2; ++p) {
          const Packet packet = ModelMemory<P>::load_bulk(packets + p);
          for (int k = 0; k < 2; ++k) got[std::size_t(n)][std::size_t(2 * p + k)] = packet.word[k];
        }
        ModelMemory<P>::store_release(queue.drained, turn + 1);
      }
    });
  };
  return model.explore(prepare, [&] {
    if (full && model.value_of(old) != 0) throw OrderError{"a slot is filled too early"};
    Word blocks_seen = 0;
    for (int n = 0; n < blocks; ++n) {
      const Word block = model.value_of(from[std::size_t(n)]) - 1;
      blocks_seen |= Word{1} << block;
      for (int i = 0; i < 4; ++i) {
        if (model.value_of(got[std::size_t(n)][std::size_t(i)]) != value_of(int(block), i)) {
          throw OrderError{"a wrong word"};
        }
      }
    }
    if (blocks_seen != (Word{1} << blocks) - 1) throw OrderError{"a message is lost"};
  });
}

}  // namespace

TEST_CASE("no execution shows the proxy old data of a turn") {
  const long one = explore<1>(1), lanes = explore<2>(1), blocks = explore<1>(2);
  const long full = explore<1>(2, true);
  WARN("executions: " << one << ", " << lanes << " with two lanes, " << blocks
                      << " with two blocks, " << full << " with a full queue");
  CHECK(one > 0);
  CHECK(blocks > one);
  CHECK(full > 0);
}

TEST_CASE("the model catches an order of the queue that is left out") {
  CHECK(flaw([] { explore<1, Promises{.release = false}>(1); }) != "");
  CHECK(flaw([] { explore<1, Promises{.acquire = false}>(1); }) != "");
  CHECK(flaw([] { explore<2, Promises{.sync = false}>(1); }) != "");
  CHECK(flaw([] { explore<1, Promises{.drain = false}>(2, true); }) != "");
  CHECK(flaw([] { explore<1, Promises{.credit = false}>(2, true); }) != "");
}

TEST_CASE("turns of several blocks come to the proxy whole and in order, over many rounds") {
  constexpr int blocks = 3, rounds = 2000;
  World& w = world();
  std::memset(w.slots, 0, sizeof w.slots);
  w.drained = w.taken = w.stop = 0;
  std::array<Word, blocks> mine{};
  const detail::AbortWatch watch{&w.stop, &w.failure, 0, nullptr, 0};
  std::vector<std::thread> threads;
  for (int b = 0; b < blocks; ++b) {
    threads.emplace_back([&, b] {
      const detail::SoloLane lane;
      for (Word n = 0; n < rounds; ++n) {
        Word* const own = &mine[std::size_t(b)];
        FarHeader* const slot = detail::take_turn(lane, w.queue(), &w.taken, own, 1, watch);
        auto* const words = reinterpret_cast<Word*>(FarQueue::payload(slot));
        for (Word i = 0; i < 8; ++i) words[i] = n * 100 + i;
        detail::give_turn(lane, slot, own, {0, Word(b), FarHeader::to_window, n, 64, 0});
      }
    });
  }
  std::array<Word, blocks> next{};
  long wrong = 0;
  for (Word turn = 0; turn < blocks * rounds; ++turn) {
    FarHeader* const slot = w.queue().slot(turn);
    while (detail::HostMemory::load_acquire(&slot->number) != turn + 1) std::this_thread::yield();
    const Word n = slot->offset;
    wrong += n != next[slot->peer]++;  // of a block, in its order
    const auto* const words = reinterpret_cast<const Word*>(FarQueue::payload(slot));
    for (Word i = 0; i < 8; ++i) wrong += words[i] != n * 100 + i;
    detail::HostMemory::store_release(w.queue().drained, turn + 1);
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("a turn that does not come ends at the deadline and names the rank") {
  World& w = world();
  w.drained = w.stop = 0;
  std::memset(w.slots, 0, sizeof w.slots);
  w.taken = FarQueue::slot_count;  // all slots are taken, and no proxy drains them
  w.failure = {};
  Word mine = 0;
  const detail::AbortWatch watch{&w.stop, &w.failure, 20'000'000, nullptr, 0};
  CHECK(detail::take_turn(detail::SoloLane{}, w.queue(), &w.taken, &mine, 5, watch) == nullptr);
  CHECK(w.failure.peer == 6);  // the block of the oldest turn has not said to whom it goes
  w.failure = {};
  FarHeader* const oldest = w.queue().slot(0);
  oldest->peer = 3;
  oldest->number = 1;
  CHECK(detail::take_turn(detail::SoloLane{}, w.queue(), &w.taken, &mine, 5, watch) == nullptr);
  CHECK(w.failure.peer == 4);
}
