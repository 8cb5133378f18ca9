#include <ccl/algo/pairwise.hpp>
#include <ccl/detail/exec/host_executor.hpp>
#include <ccl/detail/transport/zero_copy.hpp>
#include <ccl/detail/wire/context.hpp>
#include <ccl/detail/wire/exchange_steps.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/simple.hpp>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/thread_lanes.hpp"

namespace ccl::test {
namespace {

constexpr int slots = 4;
constexpr Index slot_bytes = 32 << 10;

/// One end of a proxied wire; the test is the proxy.
struct End {
  alignas(128) Packet memory[slots * slot_bytes / Index{sizeof(Packet)}];
  alignas(128) Word posted = 0;
  alignas(128) Word drained = 0;
  Word kept = 0, sizes[slots] = {};
  detail::ZeroCopy past{slots};
  Wire wire{memory, &posted, &drained, &kept,
            &kept,  sizes,   slots,    int(slot_bytes / Index{sizeof(Packet)}),
            true,   false,   &past};
};

/// Rank 0 of 2 sends `sent` to rank 1 and receives as much from it.
class Lone {
 public:
  explicit Lone(Index bytes) : sent(std::size_t(bytes)), got(std::size_t(bytes), char(0x5a)) {
    std::iota(sent.begin(), sent.end(), char(1));
  }
  End out, in;
  std::vector<char> sent, got;
  Word stop = 0;

  void start() {
    lane_ = std::thread{[this] {
      const Wire none, to[2] = {none, out.wire}, from[2] = {none, in.wire};
      const int order[2] = {0, 1}, begin[3] = {0, 0, 1};
      const RingPosition position{0, 2, order};
      const detail::Message outgoing{sent.data(), Index(sent.size())};
      const detail::Message incoming{got.data(), Index(got.size())};
      detail::Cursor cursors[4];
      detail::LaneFailure who;
      detail::WireWork<detail::Bytes> work{detail::Bytes{}};
      work.in = from;
      work.out = to;
      work.rings = &position;
      work.ranks = 2;
      work.sends = {&outgoing, begin, cursors};
      work.recvs = {&incoming, begin, cursors + 2};
      work.watch = {&stop, &who, Word{60} * 1'000'000'000};
      detail::HostExecutor::run<detail::SoloLane>(
          1, detail::WireBody<AllToAll, Pairwise, Simple, 1, detail::Bytes>{work});
      done_ = true;
    }};
  }
  bool done() const { return done_; }
  void join() { lane_.join(); }

  /// Waits for step `n`; null: it lies in its slot.
  const char* taken(Word n, Index bytes) {
    while (detail::HostMemory::load_acquire(&out.posted) <= n) std::this_thread::yield();
    const Word size = out.sizes[n % slots];
    REQUIRE(Index(size & ~detail::ZeroCopy::mark) == bytes);
    return size >= detail::ZeroCopy::mark ? reinterpret_cast<const char*>(out.past.place(n))
                                          : nullptr;
  }
  void let_go(Word n) { detail::HostMemory::store_release(&out.drained, n + 1); }
  /// Delivers step `n`, at the place that was offered for it, if there was one.
  void bring(Word n, Index bytes, char with, bool past) {
    if (past) {
      while (!in.past.offered(n, bytes)) std::this_thread::yield();
    }
    std::memset(past ? static_cast<void*>(in.past.place(n)) : in.wire.slot(n), with,
                std::size_t(bytes));
    in.sizes[n % slots] = Word(bytes) | (past ? detail::ZeroCopy::mark : 0);
    detail::HostMemory::store_release(&in.posted, n + 1);
  }

 private:
  std::thread lane_;
  std::atomic<bool> done_{false};
};

}  // namespace

TEST_CASE("large messages go past the slots of proxied wires, and end when they have left") {
  auto rank = std::make_unique<Lone>(2 * slot_bytes);
  rank->start();
  for (Word n = 0; n < 2; ++n) {
    CHECK(rank->taken(n, slot_bytes) == rank->sent.data() + Index(n) * slot_bytes);
  }
  for (Word n = 0; n < 2; ++n) rank->bring(n, slot_bytes, char(n + 1), true);
  while (detail::HostMemory::load_credit(&rank->in.drained) < 2) std::this_thread::yield();
  rank->let_go(0);
  for (int n = 0; n < 100; ++n) std::this_thread::yield();
  CHECK(!rank->done());  // the second half of what it sends may not change yet
  rank->let_go(1);
  rank->join();
  CHECK(rank->got[0] == 1);
  CHECK(rank->got[slot_bytes - 1] == 1);
  CHECK(rank->got[slot_bytes] == 2);
  CHECK(rank->got.back() == 2);
}

TEST_CASE("a message that came before it was offered a place is taken from its slot") {
  auto rank = std::make_unique<Lone>(slot_bytes);
  rank->bring(0, slot_bytes, 7, false);
  rank->start();
  CHECK(rank->taken(0, slot_bytes) == rank->sent.data());
  rank->let_go(0);
  rank->join();
  CHECK(rank->got.front() == 7);
  CHECK(rank->got.back() == 7);
}

TEST_CASE("a step of another size than was offered has no place there") {
  auto rank = std::make_unique<Lone>(slot_bytes);
  rank->start();
  while (!rank->in.past.offered(0, slot_bytes)) std::this_thread::yield();
  CHECK(!rank->in.past.offered(0, slot_bytes - 1));
  (void)rank->taken(0, slot_bytes);
  rank->let_go(0);
  rank->bring(0, slot_bytes, 7, true);
  rank->join();
}

TEST_CASE("small messages go by way of the slots, and nobody waits until they have left") {
  constexpr Index bytes = detail::ZeroCopy::min_bytes - 1;
  auto rank = std::make_unique<Lone>(bytes);
  rank->start();
  CHECK(rank->taken(0, bytes) == nullptr);
  CHECK(std::memcmp(rank->out.memory, rank->sent.data(), std::size_t(bytes)) == 0);
  rank->bring(0, bytes, 7, false);
  rank->join();
  CHECK(rank->got.back() == 7);
}

TEST_CASE("if some lanes have all packets at the end of a launch and others not, all leave") {
  using Lanes = detail::ThreadLanes<4>;
  struct Receiver {
    alignas(128) Packet memory[64] = {};
    Word posted = 0, drained = 0, sent = 0, received = 0, stop = 1;
    char got[64] = {};
    std::atomic<bool> done{false};
  };
  const auto state = std::make_shared<Receiver>();
  constexpr Word flag = Word{1} << 32;  // of step 1
  constexpr int first_tile = Lanes::width, more = 1;
  for (int p = 0; p < first_tile + more; ++p) state->memory[p] = {{flag, flag}};
  std::thread lanes{[state] {
    const Wire in{state->memory,
                  &state->posted,
                  &state->drained,
                  &state->sent,
                  &state->received,
                  nullptr,
                  4,
                  16,
                  false};
    const Wire from[2] = {{}, in}, none[2] = {};
    const int order[2] = {0, 1}, begin[3] = {0, 0, 1}, empty[3] = {};
    const RingPosition position{0, 2, order};
    const detail::Message incoming{state->got, Index{sizeof state->got}};
    detail::Cursor cursors[4];
    detail::LaneFailure who;
    detail::WireWork<detail::Bytes> work{detail::Bytes{}};
    work.in = from;
    work.out = none;
    work.rings = &position;
    work.ranks = 2;
    work.sends = {&incoming, empty, cursors};
    work.recvs = {&incoming, begin, cursors + 2};
    work.watch = {&state->stop, &who, Word{60} * 1'000'000'000};
    detail::HostExecutor::run<Lanes>(
        1, detail::WireBody<AllToAll, Pairwise, LL, 1, detail::Bytes>{work});
    state->done = true;
  }};
  for (int ms = 0; ms < 10'000 && !state->done; ++ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  CHECK(state->done);
  state->done ? lanes.join() : lanes.detach();
}

TEST_CASE("who gives up an exchange has its memory back") {
  auto rank = std::make_unique<Lone>(slot_bytes);
  rank->start();
  // before all data has arrived, or during the wait for the end
  const bool early = GENERATE(true, false);
  while (!rank->in.past.offered(0, slot_bytes)) std::this_thread::yield();
  if (!early) rank->bring(0, slot_bytes, 7, true);
  if (!early) {
    while (detail::HostMemory::load_credit(&rank->in.drained) < 1) std::this_thread::yield();
  }
  detail::HostMemory::store_relaxed(&rank->stop, 1);
  rank->join();
  CHECK(rank->out.past.revoked());
  CHECK(rank->in.past.revoked());
}

}  // namespace ccl::test
