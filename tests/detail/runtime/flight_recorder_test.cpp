#include <ccl/detail/runtime/flight_recorder.hpp>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "support/catch.hpp"
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

using namespace ccl;

namespace {
std::atomic<long> jump_s{0};
}
// Replaces the C library's function, for std::chrono too: the wall clock jumps when the test
// requests it.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const long code = ::syscall(SYS_clock_gettime, clock, time);
  if (clock == CLOCK_REALTIME) time->tv_sec += jump_s;
  return int(code);
}

namespace {
Operation named(const char* what) {
  Operation op;
  std::strncpy(op.what, what, sizeof op.what - 1);
  return op;
}
}  // namespace

TEST_CASE("the flight recorder numbers collectives in call order, and messages not at all") {
  detail::FlightRecorder flight_recorder{8};
  CHECK(flight_recorder.latest(8).empty());
  const Word a = flight_recorder.note(named("a")).ticket;
  const Word p = flight_recorder.note(named("p"), true).ticket;
  const Word b = flight_recorder.note(named("b")).ticket;
  CHECK(flight_recorder.called() == 2);
  flight_recorder.started(a);
  flight_recorder.ended(a, true);
  flight_recorder.started(p);
  flight_recorder.started(b);
  flight_recorder.ended(b, false);
  const auto ops = flight_recorder.latest(8);
  REQUIRE(ops.size() == 3);
  CHECK((ops[0].number == 1 && ops[1].number == 0 && ops[2].number == 2));
  CHECK((ops[0].state == OpState::done && ops[1].state == OpState::running &&
         ops[2].state == OpState::failed));
  CHECK(std::string_view{ops[2].what} == "b");
  CHECK(name(ops[2].state) == "failed");
  CHECK((ops[0].queued_ns <= ops[0].started_ns && ops[0].started_ns <= ops[0].ended_ns));
  CHECK(ops[0].ended_ns > 0);
  CHECK(ops[1].ended_ns == 0);
}

TEST_CASE("a call that runs at once is recorded as one that is noted and started") {
  detail::FlightRecorder flight_recorder{2};
  detail::CallInfo info = detail::call_info<float>("reduce", 12, 3, "sum");
  info.composition = 4;
  info.call = 5;
  std::atomic<Word> calls{7}, bytes{100};
  const std::string long_name(60, 'n');
  flight_recorder.note(named("another, whose place is taken over"));
  flight_recorder.note(named("one more"));
  const auto [ticket, number] = flight_recorder.note_running(
      detail::ShownName{"reduce/Ring/Simple/shm"}, info, false, {&calls, &bytes, 48});
  CHECK((ticket == 3 && number == 3 && flight_recorder.called() == 3));
  CHECK((calls == 8 && bytes == 148));
  Operation op;
  REQUIRE(flight_recorder.read(ticket, op));
  CHECK(std::string_view{op.what} == "reduce/Ring/Simple/shm");
  CHECK(std::string_view{op.type} == detail::type_label<float>());
  CHECK(std::string_view{op.redop} == "sum");
  CHECK((op.count == 12 && op.root == 3 && op.composition == 4 && op.call == 5));
  CHECK((op.number == 3 && op.state == OpState::running));
  CHECK((op.queued_ns != 0 && op.started_ns == op.queued_ns && op.ended_ns == 0));
  std::this_thread::sleep_for(std::chrono::milliseconds{1});
  CHECK(flight_recorder.ended(ticket, true) > 0);
  const auto messages = flight_recorder.note_running(detail::ShownName{long_name}, info, true, {});
  CHECK(messages.number == 0);
  REQUIRE(flight_recorder.read(messages.ticket, op));
  CHECK(std::string_view{op.what}.size() == sizeof op.what - 1);
}

TEST_CASE("times are those of the system's clock") {
  detail::FlightRecorder flight_recorder{2};
  std::this_thread::sleep_for(std::chrono::milliseconds{20});
  const Word ticket = flight_recorder.note(named("a")).ticket;
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  flight_recorder.ended(ticket, true);
  std::this_thread::sleep_for(std::chrono::milliseconds{20});
  const auto op = flight_recorder.latest(1).at(0);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const double age_s =
      double(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()) / 1e9 -
      double(op.queued_ns) / 1e9;
  CHECK(age_s >= 0.06);
  CHECK(age_s < 60);  // not since another moment, as that of a start
  CHECK(op.ended_ns - op.queued_ns >= 45'000'000);
}

TEST_CASE("how long ago an operation was does not change where the wall clock jumps") {
  using Clock = std::chrono::system_clock;
  for (const long jump : {1'000'000L, -1'000'000L}) {
    detail::FlightRecorder flight_recorder{2};
    const Word ticket = flight_recorder.note(named("a")).ticket;
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    flight_recorder.ended(ticket, true);
    jump_s = jump;
    const auto op = flight_recorder.latest(1).at(0);
    const auto now = Clock::now().time_since_epoch();
    jump_s = 0;
    const double now_s =
        double(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()) / 1e9;
    CHECK(now_s >= double(op.ended_ns) / 1e9 - 1);
    CHECK(now_s - double(op.ended_ns) / 1e9 < 1000);
    CHECK(op.ended_ns >= op.queued_ns);
    CHECK(double(op.ended_ns - op.queued_ns) / 1e9 < 1000);
  }
}

TEST_CASE("the flight recorder keeps its size, and late news of older operations changes nothing") {
  detail::FlightRecorder flight_recorder{4};
  const Word first = flight_recorder.note(named("first")).ticket;
  for (int i = 0; i < 5; ++i)
    flight_recorder.ended(flight_recorder.note(named("next")).ticket, true);
  const Word last = flight_recorder.note(named("last")).ticket;
  flight_recorder.started(first);
  flight_recorder.ended(first, false);
  const auto ops = flight_recorder.latest(100);
  REQUIRE(ops.size() == 4);
  CHECK((ops.front().number == 4 && ops.back().number == 7));
  for (const auto& op : ops) CHECK(op.state != OpState::failed);
  // Completed operations are limited to the requested number; the others are all kept.
  const auto few = flight_recorder.latest(1);
  REQUIRE(few.size() == 2);
  CHECK((few[0].number == 6 && few[1].number == 7));
  flight_recorder.ended(last, true);
  CHECK(flight_recorder.latest(0).empty());
}

TEST_CASE("of a GPU, the operation that waits tells what has ended") {
  detail::FlightRecorder flight_recorder{16};
  std::vector<Word> tickets;
  for (int i = 0; i < 6; ++i) {
    tickets.push_back(flight_recorder.note(named("op")).ticket);
    if (i < 5) flight_recorder.started(tickets.back());
  }
  const auto states = [&](int most, Word ticket) {
    std::vector<OpState> all;
    for (const auto& op : flight_recorder.latest_on_device(most, ticket)) all.push_back(op.state);
    return all;
  };
  using enum OpState;
  CHECK(states(9, tickets[3]) == std::vector<OpState>{done, done, done, running, launched, queued});
  CHECK(states(1, tickets[3]) == std::vector<OpState>{done, running, queued});
  CHECK(states(3, 0) == std::vector<OpState>{launched, launched, queued});
}

TEST_CASE("beside operations of a GPU, a call on the host runs until it returns") {
  detail::FlightRecorder recorder{4};
  recorder.started(recorder.note(named("op")).ticket);
  const Word barrier = recorder.note(named("barrier")).ticket;
  recorder.started_on_host(barrier);
  const auto state = [&] { return recorder.latest_on_device(9, 0).back().state; };
  CHECK(state() == OpState::running);
  recorder.ended(barrier, true);
  CHECK(state() == OpState::done);
  for (int n = 0; n < 4; ++n) recorder.started(recorder.note(named("op")).ticket);
  CHECK(state() == OpState::launched);  // in the same entry
  recorder.started_on_host(barrier);    // which is overwritten
  CHECK(state() == OpState::launched);
}

TEST_CASE("a replay runs operations that have left the ring, and they are found") {
  detail::FlightRecorder recorder{4};
  Operation op = named("all_reduce");
  op.count = 10;
  op.composition = 3;
  const auto captured = recorder.note(op), other = recorder.note(op);
  recorder.started(captured.ticket);
  CHECK(recorder.latest_on_device(2, captured.ticket)[0].started_ns != 0);
  recorder.keep(captured.ticket);
  CHECK(recorder.latest_on_device(2, captured.ticket)[0].started_ns == 0);  // of the replay
  for (int n = 0; n < 9; ++n) recorder.started(recorder.note(op).ticket);
  const auto running = recorder.find(captured.ticket);
  CHECK((running.ticket == captured.ticket && running.number == 1 && running.composition == 3));
  auto all = recorder.latest_on_device(2, captured.ticket);
  REQUIRE(all.size() == 3);
  CHECK((all[0].number == 1 && all[0].count == 10 && all[0].state == OpState::running));
  CHECK((all[0].started_ns == 0 && all[0].queued_ns != 0));  // tools sort by that time
  CHECK(all[0].queued_ns <= all[1].queued_ns + 100'000);
  CHECK((all[1].number == 10 && all[1].state == OpState::launched));
  // One that was not kept runs, too, under no number.
  CHECK((recorder.find(other.ticket).ticket == other.ticket));
  CHECK(recorder.find(other.ticket).number == 0);
  all = recorder.latest_on_device(2, other.ticket);
  REQUIRE(all.size() == 3);
  CHECK((all[0].number == 0 && all[0].state == OpState::running && all[0].call == other.ticket));
  CHECK((all[0].queued_ns != 0 && all[0].queued_ns <= all[1].queued_ns + 100'000));
  CHECK(std::string_view{all[0].what} == "an operation that left the flight recorder");
  CHECK(recorder.latest_on_device(2, 99).size() == 2);  // nobody has called that
  CHECK(recorder.find(99).ticket == 0);
}

TEST_CASE("what is kept for graphs has a bound") {
  constexpr Word kept = detail::FlightRecorder::max_kept;
  detail::FlightRecorder recorder{4};
  for (Word n = 1; n <= kept + 10; ++n) recorder.keep(recorder.note(named("op")).ticket);
  CHECK(recorder.find(10).number == 0);
  CHECK(recorder.find(11).number == 11);
}

TEST_CASE("a receive that waits does not hide a collective that runs") {
  detail::FlightRecorder recorder{8};
  Word from = 1;
  const auto receive = recorder.note(named("send_recv"), true);
  recorder.started(receive.ticket);
  const auto sum = recorder.note(named("all_reduce"));
  CHECK(recorder.oldest_running(from).ticket == receive.ticket);
  recorder.started(sum.ticket);
  CHECK(recorder.oldest_running(from).ticket == sum.ticket);
  recorder.ended(sum.ticket, true);
  CHECK(recorder.oldest_running(from).ticket == receive.ticket);
  CHECK(from == receive.ticket);
}

TEST_CASE("the flight recorder can be read while other threads write") {
  detail::FlightRecorder flight_recorder{16};
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (int t = 0; t < 2; ++t) {
    writers.emplace_back([&] {
      while (!stop) {
        const Word ticket = flight_recorder.note(named("op")).ticket;
        flight_recorder.started(ticket);
        flight_recorder.ended(ticket, true);
      }
    });
  }
  for (int i = 0; i < 200; ++i) {
    Word before = 0;
    for (const auto& op : flight_recorder.latest(16)) {
      CHECK(op.number > before);
      before = op.number;
    }
    std::this_thread::yield();
  }
  stop = true;
  for (auto& w : writers) w.join();
}

TEST_CASE("the oldest operation that runs is found from where all before have ended") {
  detail::FlightRecorder recorder{4};
  Word from = 1;
  CHECK(recorder.oldest_running(from).ticket == 0);
  Operation op;
  op.composition = 3;
  const auto first = recorder.note(op), second = recorder.note(op);
  CHECK(recorder.oldest_running(from).ticket == 0);  // both are queued
  CHECK(from == 1);
  recorder.started(second.ticket);
  const auto running = recorder.oldest_running(from);
  CHECK((running.ticket == second.ticket && running.number == 2 && running.composition == 3));
  CHECK(from == 1);
  recorder.started(first.ticket);
  CHECK(recorder.oldest_running(from).ticket == first.ticket);
  recorder.ended(first.ticket, true);
  CHECK(recorder.oldest_running(from).ticket == second.ticket);
  CHECK(from == second.ticket);
  CHECK(recorder.find(second.ticket).number == 2);
  CHECK(recorder.find(0).ticket == 0);
  for (int n = 0; n < 6; ++n) {
    const auto next = recorder.note(op);
    recorder.started(next.ticket);
    recorder.ended(next.ticket, n % 2 == 0);
  }
  CHECK(recorder.oldest_running(from).ticket == 0);  // the entry of `second` is overwritten
  CHECK(from == 9);
  CHECK(recorder.find(second.ticket).number == 0);
  CHECK(recorder.find(8).number == 8);
}
