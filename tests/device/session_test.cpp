// Puts, signals, barriers and counters of the device-side interface on CPU lanes.
#include <ccl/device/session.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <type_traits>

#include "support/catch.hpp"
#include "support/device_world.hpp"

using namespace ccl;
using namespace ccl::test;

static_assert(std::is_trivially_copyable_v<Team>);

namespace {

template <int Width>
using Lanes = detail::ThreadLanes<Width>;
using Solo = detail::SoloLane;

constexpr int launches = 5;

Word value_of(int launch, int from, int to, Index i) {
  return (Word(launch + 1) << 40) + (Word(from) << 24) + (Word(to) << 16) + Word(i);
}

/// Every rank puts a message of `count` words into the window of every rank and signals.
template <class Group>
void put_and_signal(int ranks, Index count) {
  INFO(ranks << " ranks, " << Group::width << " lanes, " << count << " words");
  DeviceWorld world{ranks, {.blocks = 2, .signals = 3}, 2 * ranks * count * Index{sizeof(Word)}};
  std::atomic<long> wrong{0}, seen{0};
  for (int launch = 0; launch < launches; ++launch) {
    world.launch<Group>(2, [&](Group group, const Team& team, int block) {
      TeamSession<Group> session{group, team, block, 2};
      const int me = team.rank();
      std::vector<Word> message(std::size_t(count), 0);
      for (int k = 0; k < ranks; ++k) {
        const int p = (me + k) % ranks;
        for (Index i = 0; i < count; ++i) message[std::size_t(i)] = value_of(launch, me, p, i);
        const Index at = (block * ranks + me) * count;
        session.put_signal(p, at, message.data(), count, block);
        group.sync();  // before another message
      }
      for (int p = 0; p < ranks; ++p) {
        if (!session.wait(p, block)) ++wrong;
        const Word* const got = team.window<Word>(me) + (block * ranks + p) * count;
        for (Index i = 0; i < count; ++i) wrong += got[i] != value_of(launch, p, me, i);
        ++seen;
      }
    });
  }
  CHECK(wrong == 0);
  CHECK(seen == long{launches} * 2 * ranks * ranks * Group::width);
  CHECK_FALSE(world.failed());
}

/// Words that each rank writes before a barrier and reads from the others after it.
template <class Group>
void exchange_by_barrier(int ranks) {
  DeviceWorld world{ranks, {.blocks = 2}, 2 * Index{sizeof(Word)}};
  std::atomic<long> wrong{0}, seen{0};
  for (int launch = 0; launch < launches; ++launch) {
    const int blocks = 1 + launch % 2;  // a block that is absent counts all launches
    world.launch<Group>(blocks, [&](Group group, const Team& team, int block) {
      TeamSession<Group> session{group, team, block, blocks};
      wrong += session.launch() != Word(launch + 1);
      for (int round = 0; round < 3; ++round) {
        if (group.rank() == 0) {
          team.window<Word>(team.rank())[block] = value_of(launch, team.rank(), block, round);
        }
        if (!session.barrier()) ++wrong;
        for (int p = 0; p < ranks; ++p) {
          wrong += team.window<Word>(p)[block] != value_of(launch, p, block, round);
          ++seen;
        }
        if (!session.barrier()) ++wrong;
      }
    });
  }
  CHECK(wrong == 0);
  CHECK(seen > 0);
  CHECK_FALSE(world.failed());
}

}  // namespace

TEST_CASE("puts with signals reach every rank, in every launch") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    put_and_signal<Solo>(ranks, 1);
    put_and_signal<Solo>(ranks, 77);
  }
  put_and_signal<Solo>(17, 3);
  put_and_signal<Lanes<8>>(2, 77);
  put_and_signal<Lanes<8>>(3, 16);
}

TEST_CASE("a barrier with order publishes what was written before it") {
  for (int ranks = 1; ranks <= 8; ++ranks) exchange_by_barrier<Solo>(ranks);
  exchange_by_barrier<Solo>(17);  // whose words take two lines
  exchange_by_barrier<Lanes<4>>(3);
}

TEST_CASE("a barrier without order counts arrivals") {
  for (const int ranks : {2, 5, 8}) {
    DeviceWorld world{ranks, {}, 8};
    std::atomic<int> arrived{0};
    std::atomic<long> wrong{0};
    for (int launch = 0; launch < launches; ++launch) {
      arrived = 0;
      world.launch<Solo>(1, [&](Solo group, const Team& team, int block) {
        TeamSession<Solo> session{group, team, block, 1};
        for (int round = 1; round <= 20; ++round) {
          ++arrived;
          wrong += !session.barrier(MemoryOrder::relaxed);
          wrong += arrived < round * ranks;
          wrong += !session.barrier(MemoryOrder::relaxed);
        }
      });
    }
    CHECK(wrong == 0);
    CHECK_FALSE(world.failed());
  }
}

TEST_CASE("signals count up in a launch, and tests of them do not block") {
  DeviceWorld world{2, {.signals = 1}, 8};
  std::atomic<long> wrong{0};
  for (int launch = 0; launch < launches; ++launch) {
    world.launch<Solo>(1, [&](Solo group, const Team& team, int block) {
      TeamSession<Solo> session{group, team, block, 1};
      const int peer = 1 - team.rank();
      if (team.rank() == 0) {
        wrong += session.test(peer, 0, 1);  // rank 1 waits for rank 0 first
        for (Word n = 1; n <= 10; ++n) session.signal(peer, 0, n);
        wrong += !session.wait(peer, 0, 3);
      } else {
        for (Word n = 1; n <= 10; ++n) wrong += !session.wait(peer, 0, n);
        wrong += !session.test(peer, 0, 10);
        wrong += session.test(peer, 0, 11);
        session.signal(peer, 0, 3);
      }
    });
  }
  CHECK(wrong == 0);
}

TEST_CASE("a signal or block that was not used for more than 2^31 launches is not one of now") {
  for (const Word before : {Word{1} << 31, (Word{1} << 31) + 5, Word{3} << 30, Word{1} << 32}) {
    INFO(before << " launches");
    DeviceWorld world{2, {.blocks = 2, .signals = 1}, 8, 0.05};
    for (int r = 0; r < 2; ++r) {
      const detail::TeamData& data = world.team(r).data();
      std::fill(data.epochs(), data.epochs() + data.blocks, before);
    }
    std::atomic<long> wrong{0};
    world.launch<Solo>(2, [&](Solo group, const Team& team, int block) {
      TeamSession<Solo> session{group, team, block, 2};
      if (team.rank() == 0 && block == 0) wrong += session.test(1, 0);
      if (team.rank() == 0 && block == 1) wrong += session.barrier();  // rank 1 has none
    });
    CHECK(wrong == 0);
    CHECK(world.failed());  // by the deadline of the barrier
  }
}

TEST_CASE("the last block that counts sees the writes of all, and signals for all") {
  constexpr int blocks = 4, ranks = 3;
  DeviceWorld world{
      ranks, {.blocks = blocks, .signals = 1, .counters = 2}, blocks * ranks * Index{sizeof(Word)}};
  std::atomic<long> wrong{0}, last{0};
  for (int launch = 0; launch < launches; ++launch) {
    world.launch<Solo>(blocks, [&](Solo group, const Team& team, int block) {
      TeamSession<Solo> session{group, team, block, blocks};
      const int me = team.rank();
      for (int p = 0; p < ranks; ++p) {
        const Word word = value_of(launch, me, p, block);
        session.put(p, me * blocks + block, &word, 1);
      }
      if (!session.count(1, blocks)) return;
      ++last;
      for (int p = 0; p < ranks; ++p) {
        if (p != me) session.signal(p, 0);
      }
      wrong += !session.wait_all(0);
      for (int p = 0; p < ranks; ++p) {
        for (int b = 0; b < blocks; ++b) {
          wrong += team.window<Word>(me)[p * blocks + b] != value_of(launch, p, me, b);
        }
      }
    });
  }
  CHECK(wrong == 0);
  CHECK(last == long{launches} * ranks);
}

TEST_CASE("a counter counts the blocks of its launch, whatever the launches before had") {
  DeviceWorld world{1, {.blocks = 4, .counters = 1}, 8};
  std::atomic<long> wrong{0}, calls{0};
  for (const int blocks : {1, 2, 3, 4, 1, 3, 2}) {
    std::atomic<int> turn{0};
    world.launch<Solo>(blocks, [&](Solo group, const Team& team, int block) {
      TeamSession<Solo> session{group, team, block, blocks};
      while (turn != block) std::this_thread::yield();
      wrong += session.count(0, blocks) != (block == blocks - 1);
      ++calls;
      ++turn;
    });
  }
  CHECK(wrong == 0);
  CHECK(calls == 16);
}

TEST_CASE("a wait ends at its deadline, and names the rank that is late") {
  DeviceWorld world{3, {.signals = 1}, 8, 0.05};
  std::atomic<long> good{0}, later{0};
  world.launch<Solo>(1, [&](Solo group, const Team& team, int block) {
    TeamSession<Solo> session{group, team, block, 1};
    if (team.rank() != 0) return;
    good += session.wait(2, 0);
    good += !session.failed();
    later += session.barrier() || session.wait(1, 0) || session.test(1, 0);  // at once
    session.signal(1, 0);                                                    // dropped
  });
  CHECK(good == 0);
  CHECK(later == 0);
  CHECK(world.failure(0).peer == 3);
  CHECK(world.failure(0).why == detail::LaneFailure::late);
  CHECK(*world.team(0).data().signal(1, 0, 0) == 0);
}

TEST_CASE("a loop of tests ends at the deadline, and names the rank that is late") {
  // Rank 1 signals, rank 2 does not: tests of a third rank do not put the deadline off.
  DeviceWorld world{3, {.signals = 1}, 8, 0.05};
  std::atomic<long> wrong{0};
  world.launch<Lanes<2>>(1, [&](Lanes<2> group, const Team& team, int block) {
    TeamSession<Lanes<2>> session{group, team, block, 1};
    if (team.rank() == 1) session.signal(0, 0);
    if (team.rank() != 0) return;
    bool first = false, second = false;
    while (!session.failed() && !(first && second)) {
      first = session.test(1, 0);
      second = session.test(2, 0);
    }
    wrong += second || !session.failed();
    wrong += session.test(1, 0) || session.barrier();  // at once
  });
  CHECK(wrong == 0);
  CHECK(world.failure(0).peer == 3);
  CHECK(world.failure(0).why == detail::LaneFailure::late);
}

TEST_CASE("an abort ends a loop of tests") {
  DeviceWorld world{2, {.signals = 1}, 8, 0};
  std::atomic<long> ended{0};
  world.launch<Lanes<4>>(1, [&](Lanes<4> group, const Team& team, int block) {
    TeamSession<Lanes<4>> session{group, team, block, 1};
    if (team.rank() == 0) {
      while (!session.failed() && !session.test(1, 0)) {
      }
      ended += session.failed();
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    world.stop();
  });
  CHECK(ended == 4);
}

TEST_CASE("tests that return true do not count towards a deadline") {
  DeviceWorld world{2, {.signals = 1}, 8, 0.6};
  std::atomic<long> wrong{0};
  world.launch<Solo>(1, [&](Solo group, const Team& team, int block) {
    TeamSession<Solo> session{group, team, block, 1};
    const int peer = 1 - team.rank();
    for (Word n = 1; n <= 6; ++n) {  // 0.9 s in all, each of which is in the limit
      if (team.rank() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds{150});
        session.signal(peer, 0, n);
        continue;
      }
      while (!session.failed() && !session.test(peer, 0, n)) {
      }
    }
    wrong += session.failed();
  });
  CHECK(wrong == 0);
}

TEST_CASE("a peer that is tested no longer is not late") {
  DeviceWorld world{3, {.signals = 1}, 8, 0.6};
  std::atomic<long> wrong{0};
  world.launch<Solo>(1, [&](Solo group, const Team& team, int block) {
    TeamSession<Solo> session{group, team, block, 1};
    if (team.rank() == 0) wrong += session.test(1, 0);  // which never signals
    for (Word n = 1; n <= 6 && team.rank() != 1; ++n) {
      if (team.rank() == 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds{150});
        session.signal(0, 0, n);
        continue;
      }
      while (!session.failed() && !session.test(2, 0, n)) {
      }
    }
    wrong += session.failed();
  });
  CHECK(wrong == 0);
  CHECK_FALSE(world.failed());
}

TEST_CASE("an abort ends every wait") {
  DeviceWorld world{2, {.signals = 1}, 8, 0};
  std::atomic<long> good{0};
  world.launch<Lanes<4>>(1, [&](Lanes<4> group, const Team& team, int block) {
    TeamSession<Lanes<4>> session{group, team, block, 1};
    if (team.rank() == 0) {
      good += session.wait(1, 0);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    world.stop();
  });
  CHECK(good == 0);
}

TEST_CASE("wrong calls fail the session and say why") {
  using Why = detail::LaneFailure::Why;
  const auto found = [](auto call, int blocks = 1) {
    DeviceWorld world{2, {.blocks = 1, .signals = 1, .counters = 1}, 64};
    world.launch<Lanes<2>>(1, [&](Lanes<2> group, const Team& team, int block) {
      if (team.rank() != 0) return;
      TeamSession<Lanes<2>> session{group, team, block, blocks};
      call(session);
      if (!session.failed()) std::abort();
    });
    return world.failure(0);
  };
  const auto failure = [&](auto call, int blocks = 1) { return Why(found(call, blocks).why); };
  const Word word = 0;
  CHECK(failure([](auto&) {}, 2) == Why::no_block);
  CHECK(failure([](auto& s) { s.signal(2, 0); }) == Why::no_rank);
  CHECK(failure([](auto& s) { s.wait(-1, 0); }) == Why::no_rank);
  CHECK(failure([](auto& s) { s.signal(1, 1); }) == Why::no_signal);
  CHECK(failure([](auto& s) { s.wait_all(-1); }) == Why::no_signal);
  CHECK(failure([](auto& s) { s.signal(1, 0, 0); }) == Why::no_value);
  CHECK(failure([](auto& s) { s.signal(1, 0, Word{1} << 32); }) == Why::no_value);
  CHECK(failure([](auto& s) { s.wait(1, 0, Word{1} << 32); }) == Why::no_value);
  CHECK(failure([](auto& s) { s.wait_all(0, 0); }) == Why::no_value);
  CHECK(failure([](auto& s) { s.test(1, 0, 0); }) == Why::no_value);
  CHECK(failure([](auto& s) { s.count(1, 1); }) == Why::no_counter);
  CHECK(failure([](auto& s) { s.count(0, 0); }) == Why::no_blocks);
  CHECK(failure([](auto& s) { s.count(0, 2); }) == Why::no_blocks);
  CHECK(failure([&](auto& s) { s.put(1, 8, &word, 1); }) == Why::outside_window);
  CHECK(failure([&](auto& s) { s.put(1, -1, &word, 1); }) == Why::outside_window);
  CHECK(failure([&](auto& s) { s.put(1, Index{1} << 62, &word, 1); }) == Why::outside_window);
  // The first byte behind it, or the largest number where no memory has that.
  CHECK(found([&](auto& s) { s.put(1, 8, &word, 1); }).count == 72);
  for (const Index at : {Index{-1}, Index{1} << 62}) {
    CHECK(found([&](auto& s) { s.put(1, at, &word, 1); }).count == ~Word{0} >> 1);
  }
}

TEST_CASE("a session of a team that no DeviceComm made has failed") {
  const Team none;
  TeamSession<Solo> session{Solo{}, none, 0, 1};
  CHECK(session.failed());
  const Word word = 0;
  session.put_signal(0, 0, &word, 1, 0);
  CHECK_FALSE(session.wait(0, 0));
  CHECK_FALSE(session.barrier());
  CHECK_FALSE(session.count(0, 1));
}

TEST_CASE("a kernel serves requests of its host until it is told to stop") {
  constexpr int ranks = 3;
  constexpr Word requests = 50;
  struct Mailbox {
    Word request = 0, last = ~Word{0}, served = 0;
    Word in[ranks] = {}, out[ranks] = {};
  };
  DeviceWorld world{ranks, {.signals = 1}, 2 * ranks * Index{sizeof(Word)}};
  std::vector<Mailbox> boxes(ranks);
  std::atomic<long> wrong{0};
  std::vector<std::thread> hosts;
  for (int me = 0; me < ranks; ++me) {
    hosts.emplace_back([&, me] {
      Mailbox& box = boxes[std::size_t(me)];
      for (Word n = 1; n <= requests; ++n) {
        for (int p = 0; p < ranks; ++p) box.in[p] = value_of(int(n), me, p, 0);
        detail::HostMemory::store_release(&box.request, n);
        while (detail::HostMemory::load_acquire(&box.served) < n) std::this_thread::yield();
        for (int p = 0; p < ranks; ++p) wrong += box.out[p] != value_of(int(n), p, me, 0);
      }
      box.last = requests;
      detail::HostMemory::store_release(&box.request, requests + 1);
    });
  }
  world.launch<Lanes<2>>(1, [&](Lanes<2> group, const Team& team, int block) {
    TeamSession<Lanes<2>> session{group, team, block, 1};
    const int me = team.rank();
    Mailbox& box = boxes[std::size_t(me)];
    for (Word n = 1;; ++n) {
      if (!session.wait_word(&box.request, n)) ++wrong;
      if (n > box.last) return;
      const Index half = Index(n & 1) * ranks;
      for (int p = 0; p < ranks; ++p) session.put_signal(p, half + me, &box.in[p], 1, 0, n);
      if (!session.wait_all(0, n)) ++wrong;
      for (int p = group.rank(); p < ranks; p += 2) box.out[p] = team.window<Word>(me)[half + p];
      session.set_word(&box.served, n);
    }
  });
  for (auto& host : hosts) host.join();
  CHECK(wrong == 0);
  CHECK_FALSE(world.failed());
}

TEST_CASE("the failure of the communicator ends a wait for a word, and its deadline does not") {
  DeviceWorld world{1, {}, 8, 0.02};
  const Word never = 0;
  std::atomic<bool> waits{false}, good{true};
  std::thread other{[&] {
    while (!waits) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds{60});
    world.stop();
  }};
  world.launch<Solo>(1, [&](Solo group, const Team& team, int block) {
    TeamSession<Solo> session{group, team, block, 1};
    waits = true;
    good = session.wait_word(&never, 1);
    Word dropped = 0;
    session.set_word(&dropped, 1);
    good = good || dropped != 0;
  });
  other.join();
  CHECK_FALSE(good);
  CHECK_FALSE(world.failed());  // no rank is late
}
