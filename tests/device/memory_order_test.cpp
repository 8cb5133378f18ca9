// The device-side interface over a model of memory: no execution that release and acquire allow
// shows a lane old data. Then the same code runs with orders removed, which the model must detect.
#include <ccl/device/tiles.hpp>

#include <array>
#include <string>

#include "support/catch.hpp"
#include "support/model_session.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::test::session;

namespace {

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
        while (How == Wait::test && !session.test(0, 1)) {  // which pauses
        }
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

constexpr auto ordered = MemoryOrder::acq_rel;

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

TEST_CASE("no execution of a barrier with order shows old data") {
  const long one = barrier<1, MemoryOrder::acq_rel>(), two = barrier<2, MemoryOrder::acq_rel>();
  WARN("executions: " << one << " with one lane, " << two << " with two");
  CHECK(one > 1);
  CHECK(two > one);
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
  // Data that only a barrier without order separates.
  CHECK(flaw([] { barrier<1, MemoryOrder::relaxed>(); }) != "");
}
