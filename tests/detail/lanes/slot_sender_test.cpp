// Runs go through few slots, piece by piece, in an order that no receiver blocks: by an engine of
// the test, whose stores arrive late.
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/lanes/slot_sender.hpp>

#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

namespace {

/// Engine whose loads and stores happen when they are awaited, and not before.
class LateStages {
 public:
  static constexpr int stages = 4, ahead = 2, on_the_way = 3;
  static constexpr Index piece_bytes = 48;

  void open() { open_ = true; }
  void close() {
    CHECK(loads_.empty());
    CHECK(stores_.empty());
    open_ = false;
  }
  void load(Index n, const char* from, Index bytes) {
    REQUIRE(open_);
    REQUIRE(bytes <= piece_bytes);
    REQUIRE(n == loaded_++);
    // The stage's last piece has been read.
    for (const Store& store : stores_) REQUIRE((store.read || store.n + stages > n));
    loads_.push_back({n, from, nullptr, bytes, false});
  }
  void await_load(Index n) {
    REQUIRE(!loads_.empty());
    REQUIRE(loads_.front().n == n);
    std::memcpy(piece_[n % stages], loads_.front().from, std::size_t(loads_.front().bytes));
    loads_.pop_front();
  }
  void store(Index n, char* to, Index bytes) {
    stores_.push_back({n, nullptr, to, bytes, false});
    if (Index(stores_.size()) > most_) most_ = Index(stores_.size());
  }
  void await_reads() {
    for (std::size_t i = 0; i + (stages - ahead) < stores_.size(); ++i) read(stores_[i]);
  }
  template <int Left>
  void await_stores() {
    while (stores_.size() > Left) {
      read(stores_.front());
      const Store& store = stores_.front();
      std::memcpy(store.to, read_[store.n % 64], std::size_t(store.bytes));
      stores_.pop_front();
    }
  }
  Index most_ = 0;

 private:
  struct Store {
    Index n;
    const char* from;
    char* to;
    Index bytes;
    bool read;
  };
  void read(Store& store) {
    if (!store.read) std::memcpy(read_[store.n % 64], piece_[store.n % stages], piece_bytes);
    store.read = true;
  }
  bool open_ = false;
  Index loaded_ = 0;
  char piece_[stages][piece_bytes] = {}, read_[64][piece_bytes] = {};
  std::deque<Store> loads_, stores_;
};

struct Receiver {
  std::vector<char> in, out, slots;
  Word reported = 0, drained = 0, emptied = 0;

  /// Empties a slot if one is reported.
  bool take(Index slot_bytes, int slot_count, Word flag) {
    if (reported <= (flag | emptied)) return false;
    const Index at = Index(emptied) * slot_bytes;
    const Index bytes = std::min(slot_bytes, Index(in.size()) - at);
    const char* const slot = slots.data() + Index(emptied) % slot_count * slot_bytes;
    out.insert(out.end(), slot, slot + bytes);
    std::memset(slots.data() + Index(emptied) % slot_count * slot_bytes, 0x5a,
                std::size_t(slot_bytes));
    drained = flag | ++emptied;
    return true;
  }
};

/// Sends runs of these sizes. `waits`: waits that succeed, before one fails.
bool send(const std::vector<Index>& sizes, int slot_count, Index slot_bytes, unsigned seed,
          int waits, Index* most = nullptr) {
  constexpr Word flag = Word{7} << 32;
  std::mt19937 random{seed};
  std::vector<Receiver> receivers(sizes.size());
  SlotRuns slots;
  slots.slot_count = slot_count;
  slots.slot_bytes = slot_bytes;
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    Receiver& to = receivers[r];
    to.in.resize(std::size_t(sizes[r]));
    for (char& c : to.in) c = char(random());
    to.slots.resize(std::size_t(slot_bytes * slot_count));
    slots.add(to.slots.data(), to.in.data(), sizes[r], {&to.reported, &to.drained, flag, int(r)});
  }
  LateStages stages;
  const bool sent = SlotSender<LateStages, HostMemory>{stages, slots}.run(
      [&](const Word* drained, Word want, int peer) {
        if (waits-- <= 0) return false;
        Receiver& to = receivers[std::size_t(peer)];
        CHECK(drained == &to.drained);
        CHECK(*drained < want);
        // Whatever fills this receiver's slots has been reported, or nobody could empty them.
        while (*drained < want) REQUIRE(to.take(slot_bytes, slot_count, flag));
        return true;
      });
  if (most != nullptr) *most = stages.most_;
  if (!sent) return false;
  for (Receiver& to : receivers) {
    while (to.take(slot_bytes, slot_count, flag)) {
    }
    CHECK(to.out == to.in);
  }
  return true;
}

}  // namespace

TEST_CASE("runs of any sizes pass through slots whole") {
  std::mt19937 random{3};
  for (unsigned turn = 0; turn < 400; ++turn) {
    std::vector<Index> sizes(1 + random() % 5);
    for (Index& size : sizes) size = Index(random() % 120) * 16;
    const Index slot_bytes = 16 * Index(1 + random() % 12);
    INFO("turn " << turn);
    CHECK(send(sizes, 1 + int(random() % 4), slot_bytes, turn, 1 << 30));
  }
}

TEST_CASE("stores are on the way while a slot is reported and the next one is filled") {
  Index most = 0;
  CHECK(send({48 * 64}, 64, 96, 1, 0, &most));
  CHECK(most > LateStages::on_the_way);
}

TEST_CASE("a wait that fails ends the run, and the engine is idle") {
  for (int waits = 0; waits < 6; ++waits) {
    CHECK_FALSE(send({16 * 200, 16 * 300}, 2, 64, 1, waits));
  }
}
