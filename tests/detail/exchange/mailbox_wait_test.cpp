#include <ccl/detail/exchange/mailbox_wait.hpp>
#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/detail/lanes/host_memory.hpp>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

namespace {

constexpr Word tick_ns = Word{1} << 20;

/// Memory whose clock moves by one tick at each failed poll, so that waits take as long as a test
/// says. A word arrives at a poll that the test chooses.
struct PlayedMemory : HostMemory {
  inline static Word now = 0, arrives_at = 0, arrives = 0;
  inline static Word* word = nullptr;
  static void pause() {
    now += tick_ns;
    if (word != nullptr && now >= arrives_at) *word = arrives;
  }
  static Word now_ns() { return now; }
};

struct PlayedLane : SoloLane {
  using Memory = PlayedMemory;
};

constexpr Word launch = Word{7} << 32;
constexpr int peer = 3, limit = 2000;  // ticks

struct Mailbox {
  Word stop = 0, word = 0;
  LaneFailure failure;
  WaitRecord waits;
  AbortWatch watch{&stop, &failure, limit* tick_ns, &waits};
  MailboxWait<PlayedLane> wait{{}, watch};

  Mailbox() {
    PlayedMemory::now = tick_ns;
    PlayedMemory::word = &word;
  }
  /// Lets `value` arrive after `ticks` of waiting.
  void send(Word value, int ticks) {
    PlayedMemory::arrives = value;
    PlayedMemory::arrives_at = PlayedMemory::now + Word(ticks) * tick_ns;
  }
  bool take(Word value, int ticks) {
    send(value, ticks);
    return wait.acquire(&word, value, peer);
  }
};

}  // namespace

TEST_CASE("a launch that waits for one peer longer than the limit goes on while words arrive") {
  Mailbox mailbox;
  for (Word n = 1; n <= 5; ++n) CHECK(mailbox.take(launch | n, limit * 3 / 4));
  CHECK(PlayedMemory::now > 3 * limit * tick_ns);
  CHECK_FALSE(mailbox.wait.failed());
  CHECK(mailbox.failure.peer == 0);
}

TEST_CASE("words with one number in several mailboxes have deadlines of their own") {
  Mailbox mailbox;
  for (int ring = 0; ring < 4; ++ring) {
    mailbox.word = 0;
    CHECK(mailbox.take(launch | 1, limit * 3 / 4));
  }
}

TEST_CASE("waits for words of several peers have deadlines of their own") {
  Mailbox mailbox;
  for (Word n = 1; n <= 4; ++n) {
    mailbox.send(launch | n, limit * 3 / 4);
    CHECK(mailbox.wait.acquire_each(
        2, launch | n, [&](int) { return &mailbox.word; }, [](int i) { return peer + i; },
        [](int, Word) {}));
  }
}

TEST_CASE("a word that does not arrive fails after the limit, also after words that arrived") {
  Mailbox mailbox;
  REQUIRE(mailbox.take(launch | 1, limit * 3 / 4));
  const Word begin = PlayedMemory::now;
  CHECK_FALSE(mailbox.take(launch | 2, 100 * limit));
  CHECK(mailbox.wait.failed());
  CHECK(mailbox.failure.peer == peer + 1);
  CHECK(PlayedMemory::now - begin >= limit * tick_ns);
  CHECK(PlayedMemory::now - begin < (limit + 3 * HostMemory::check_every) * tick_ns);
}

TEST_CASE("the wait of a peer that is waited for is recorded, and cleared after its word") {
  WaitRecord waits;
  {
    Mailbox mailbox;
    mailbox.send(launch | 1, limit / 2);
    Word seen = 0;
    CHECK(mailbox.wait.acquire_each(
        1, launch | 1, [&](int) { return &mailbox.word; }, [](int) { return peer; },
        [&](int, Word) { seen = std::max(seen, mailbox.waits.peer); }));
    CHECK(seen == peer + 1);
    mailbox.watch.waits = &waits;
    waits.peer = peer + 1;
  }
  CHECK(waits.peer == 0);
}

TEST_CASE("credits of several peers are awaited at once, each by its own number") {
  Mailbox mailbox;
  Word there = Word{9} << 32;  // of another number, which does not matter
  const auto word = [&](int i) { return i == 0 ? &there : &mailbox.word; };
  const auto want = [](int i) { return i == 0 ? Word{9} << 32 : launch; };
  const auto writer = [](int i) { return peer + i; };
  mailbox.send(launch | 5, limit * 3 / 4);
  CHECK(mailbox.wait.credit_each(2, word, want, writer));
  mailbox.word = 0;
  mailbox.send(launch, 100 * limit);
  CHECK_FALSE(mailbox.wait.credit_each(2, word, want, writer));
  CHECK(mailbox.wait.failed());
  CHECK(mailbox.failure.peer == peer + 1 + 1);
  CHECK(mailbox.failure.step == 6);
}
