// Decisions of the watch, in played time.
#include "comm/observe/stall_policy.hpp"

#include "support/catch.hpp"

using namespace ccl;
using detail::StallPolicy;

namespace {

Report late(Cause cause, int behind = 2) {
  Report report;
  report.ranks.resize(4);
  report.cause = cause;
  report.behind = behind;
  report.waiting = 3;
  report.operation.number = 7;
  return report;
}

/// A communicator whose operations pause, looked at twice a second.
struct Played {
  StallPolicy policy;
  double now_s = 1000;
  Word ticket = 1;
  int asked = 0, said = 0;
  double said_after_s = 0;

  explicit Played(double limit_s = 90, int rank = 0) : policy{limit_s, rank} {}

  /// Runs one operation that makes no progress for `pause_s`. All questions get `answer`.
  void pause(double pause_s, const Report& answer) {
    ++ticket;
    (void)policy.look(now_s, ticket, 1);
    for (double gone = 0.5; gone <= pause_s; gone += 0.5) {
      now_s += 0.5;
      if (!policy.look(now_s, ticket, 1)) continue;
      ++asked;
      if (!policy.judge(now_s, answer)) continue;
      ++said;
      said_after_s = gone;
    }
  }
};

}  // namespace

TEST_CASE("a rank that pauses for a minute is no alarm, and one that does not come is") {
  Played job;
  for (int n = 0; n < 5; ++n) job.pause(60, late(Cause::not_called));
  CHECK(job.said == 0);
  CHECK(job.asked > 0);
  CHECK(job.asked <= 5 * 6);  // the distance of questions grows
  job.pause(3600, late(Cause::not_called));
  CHECK(job.said == 1);  // of many questions with one answer
  CHECK(job.said_after_s == job.policy.bound_s());
  CHECK(job.said_after_s == 120);  // twice the longest pause so far
}

TEST_CASE("one long pause is forgotten, and long pauses that come again are not") {
  constexpr double hour_s = 3600;
  const auto answer = late(Cause::not_called);
  const auto works_for = [](Played& job, double gone_s) {
    (void)job.policy.look(job.now_s, 0, 0);  // between operations
    job.now_s += gone_s;
    job.pause(0, {});
  };
  Played once;
  once.pause(1200, late(Cause::none));
  works_for(once, 0);
  CHECK(once.policy.bound_s() == 2400);
  works_for(once, 2 * hour_s);
  CHECK(once.policy.bound_s() == Approx(1200));
  works_for(once, 6 * hour_s);
  CHECK(once.policy.bound_s() == Approx(150));
  works_for(once, 2 * hour_s);
  CHECK(once.policy.bound_s() == 90);
  once.pause(95, answer);
  CHECK(once.said == 1);

  Played often;
  often.pause(1200, late(Cause::none));
  for (int n = 0; n < 50; ++n) {  // a checkpoint of 20 minutes every two hours
    works_for(often, 2 * hour_s - 1200);
    often.pause(1200, answer);
  }
  CHECK(often.said == 0);
}

TEST_CASE("short pauses do not keep a long one in memory") {
  Played job;
  job.pause(1200, late(Cause::none));
  for (int n = 0; n < 3000; ++n) job.pause(20, late(Cause::none));  // in 16 hours
  job.pause(0, {});
  CHECK(job.policy.bound_s() == 90);
}

TEST_CASE("the least bound holds without a history") {
  Played job;
  job.pause(89, late(Cause::not_called));
  CHECK(job.said == 0);
  Played other;
  other.pause(95, late(Cause::not_called));
  CHECK(other.said == 1);
  CHECK(other.said_after_s == 90);
}

TEST_CASE("a certain cause is said when it was found twice, within ten seconds") {
  for (const Cause cause :
       {Cause::other_operation, Cause::other_type, Cause::other_count, Cause::other_reduction,
        Cause::other_root, Cause::other_step, Cause::communicators, Cause::no_answer,
        Cause::silent_link, Cause::stuck_proxy}) {
    Played job;
    job.pause(60, late(Cause::not_called));  // in the history
    job.asked = 0;
    job.pause(80, late(cause));
    INFO(name(cause));
    CHECK(job.said == 1);
    CHECK(job.said_after_s <= 5);
  }
  for (const Cause cause : {Cause::none, Cause::not_called, Cause::queued, Cause::no_place,
                            Cause::circle, Cause::working}) {
    Played job;
    job.pause(80, late(cause));
    INFO(name(cause));
    CHECK(job.said == 0);
  }
}

TEST_CASE("what is seen once only is not said") {
  Played job;
  (void)job.policy.look(job.now_s, 1, 1);
  for (int n = 0; n < 40; ++n) {
    job.now_s += 0.5;
    // Another rank each time.
    if (job.policy.look(job.now_s, 1, 1)) {
      CHECK_FALSE(job.policy.judge(job.now_s, late(Cause::no_answer, ++job.asked % 2)));
    }
  }
  CHECK(job.asked >= 2);
}

TEST_CASE("a silent link moves no byte between two answers") {
  Report answer = late(Cause::silent_link);
  StallPolicy policy{90, 0};
  (void)policy.look(0, 1, 1);
  CHECK_FALSE(policy.look(2, 1, 1));
  REQUIRE(policy.look(3, 1, 1));
  CHECK_FALSE(policy.judge(3, answer));
  CHECK_FALSE(policy.look(3.5, 1, 1));
  REQUIRE(policy.look(4, 1, 1));
  answer.ranks[3].network_bytes = 1;
  CHECK_FALSE(policy.judge(4, answer));
  REQUIRE(policy.look(5, 1, 1));
  CHECK(policy.judge(5, answer));
}

TEST_CASE("a network that reduces is silent if its head moves no byte between two answers") {
  Report answer = late(Cause::silent_link);
  RankStatus& head = answer.ranks[std::size_t(answer.behind)];
  head.rank = head.waits.peer = answer.behind;
  head.steps.resize(1);
  head.steps[0].peer = answer.behind;
  StallPolicy policy{90, 0};
  (void)policy.look(0, 1, 1);
  CHECK_FALSE(policy.look(2, 1, 1));
  REQUIRE(policy.look(3, 1, 1));
  CHECK_FALSE(policy.judge(3, answer));
  CHECK_FALSE(policy.look(3.5, 1, 1));
  REQUIRE(policy.look(4, 1, 1));
  head.network_bytes = 1;
  CHECK_FALSE(policy.judge(4, answer));
  REQUIRE(policy.look(5, 1, 1));
  CHECK(policy.judge(5, answer));
}

TEST_CASE("another finding about the same pause is said, the same one is not repeated") {
  Played job{5};
  job.pause(600, late(Cause::not_called));
  CHECK(job.said == 1);
  CHECK(job.asked < 12);
  for (int n = 0; n < 4000 && job.said == 1; ++n) {
    job.now_s += 0.5;
    if (!job.policy.look(job.now_s, job.ticket, 1)) continue;
    if (job.policy.judge(job.now_s, late(Cause::no_answer))) ++job.said;
  }
  CHECK(job.said == 2);
}

TEST_CASE("progress begins another pause") {
  Played job{5};
  (void)job.policy.look(job.now_s, 1, 1);
  for (Word step = 2; step < 100; ++step) {
    CHECK_FALSE(job.policy.look(job.now_s += 2, 1, step));
  }
  CHECK(job.policy.quiet_s(job.now_s) == 0);
  // The typical pause of two seconds moves the first question to four.
  CHECK(job.policy.first_look_s() == 4);
  CHECK(job.policy.bound_s() == 5);
}

TEST_CASE("the first look at an operation does not know its progress") {
  StallPolicy policy{90, 0};
  (void)policy.look(0, 1, 0);
  (void)policy.look(1, 1, 50);
  CHECK(policy.quiet_s(1) == 1);
  (void)policy.look(2, 1, 51);
  CHECK(policy.quiet_s(2) == 0);
}

TEST_CASE("a large job asks later, because each answer costs more") {
  CHECK(StallPolicy{90, 0, 4}.first_look_s() == 2.5);
  CHECK(StallPolicy{90, 0, 1000}.first_look_s() == 20);
  CHECK(StallPolicy{90, 0, 100'000}.first_look_s() == 90);
  CHECK(StallPolicy{5, 0, 1000}.first_look_s() == 5);
}

TEST_CASE("a low limit asks early, and its rank leads until the pause ends") {
  StallPolicy policy{1, 0};
  (void)policy.look(0, 1, 1);
  CHECK_FALSE(policy.leads());
  REQUIRE(policy.look(1, 1, 1));
  CHECK(policy.leads());
  CHECK_FALSE(policy.look(1.5, 1, 1));  // the answer has not come
  CHECK(policy.judge(2, late(Cause::not_called)));
  CHECK(policy.has_logged());
  CHECK_FALSE(policy.look(2.5, 0, 0));
  CHECK_FALSE(policy.leads());
  CHECK_FALSE(policy.has_logged());
}

TEST_CASE("a rank yields to another that asks, and asks when that one stops") {
  Played leader, other{90, 1};
  const auto answer = late(Cause::not_called);
  ++leader.ticket, ++other.ticket;
  (void)leader.policy.look(leader.now_s, leader.ticket, 1);
  (void)other.policy.look(other.now_s, other.ticket, 1);
  for (double gone = 0.5; gone < 300; gone += 0.5) {
    leader.now_s += 0.5, other.now_s += 0.5;
    if (leader.policy.look(leader.now_s, leader.ticket, 1)) {
      (void)leader.policy.judge(leader.now_s, answer);
      other.policy.yield(other.now_s);
    }
    if (other.policy.look(other.now_s, other.ticket, 1)) ++other.asked;
  }
  CHECK(other.asked == 0);
  for (double gone = 0.5; gone < 900 && other.asked == 0; gone += 0.5) {
    other.now_s += 0.5;
    if (other.policy.look(other.now_s, other.ticket, 1)) ++other.asked;
  }
  CHECK(other.asked == 1);
}
