// Causes that a diagnosis finds in the statuses of ranks.
#include "observe/diagnosis.hpp"

#include <ccl/comm/report.hpp>

#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/rank_statuses.hpp"

using namespace ccl;
using namespace ccl::test;

TEST_CASE("a rank that does not answer is behind") {
  auto all = ring(4);
  all[2].answered = false;
  const Report report = diagnose(all, 0);
  INFO(report.summary);
  CHECK(report.behind == 2);
  CHECK(report.operation.number == 5);
  CHECK((report.waiting == 3 && report.step == 12));
  CHECK(report.cause == Cause::no_answer);
  CHECK(mentions(report.summary, "rank 2 on here does not answer"));
  CHECK(mentions(report.summary, "operation 5 (all_reduce, 10 float)"));
  CHECK(mentions(report.summary, "rank 3 waits for it at step 12"));
  CHECK(mentions(report.text(), "rank 2: no answer"));
  CHECK(mentions(report.text(), "ranks 0-1, 3: operation 5"));
}

TEST_CASE("of several ranks without an answer, the one at the end of the waiting is named first") {
  auto all = ring(6);
  all[1].answered = all[4].answered = false;
  const Report report = diagnose(all, 0);  // 0 waits for 5, which waits for 4
  CHECK(report.behind == 4);
  CHECK(mentions(report.summary, "ranks 1, 4 on here do not answer"));
  CHECK(diagnose(all, 3).behind == 1);
}

TEST_CASE("a rank that has departed is behind if another one waits for it") {
  auto all = ring(4);
  all[2] = {};
  all[2].rank = 2;
  all[2].host = "here";
  const Report report = detail::diagnose(all, 0, {2});
  INFO(report.summary);
  CHECK((report.behind == 2 && report.waiting == 3 && report.cause == Cause::no_answer));
  CHECK(mentions(report.summary, "rank 2 on here has departed (its process exited)"));
  CHECK_FALSE(mentions(report.summary, "does not answer"));

  all[3].waits = {};  // the ranks that are left wait for each other
  all[3].operations.pop_back();
  all[3].called = 4;
  const Report late = detail::diagnose(all, 0, {2});
  INFO(late.summary);
  CHECK((late.behind == 3 && late.waiting == 0 && late.cause == Cause::not_called));
  CHECK_FALSE(mentions(late.summary, "rank 2"));

  for (RankStatus& of : all) {  // nor is it missed in a call of all ranks
    of.operations.clear();
    of.waits = {};
    if (of.rank < 2) of.rendezvous = "split";
  }
  CHECK(detail::diagnose(all, 0, {2}).behind == 3);
  all[3].rendezvous = "split";
  CHECK(detail::diagnose(all, 0, {2}).behind == -1);

  all[1].answered = false;  // one that is silent comes before
  CHECK(detail::diagnose(all, 0, {2}).behind == 1);
}

TEST_CASE("of records, a rank without one is not said to be stopped") {
  auto all = ring(4);
  all[1].answered = all[2].answered = false;
  const Report report = diagnose(all, -1);
  INFO(report.summary);
  CHECK(report.behind == 2);
  CHECK(report.cause == Cause::no_answer);
  CHECK(mentions(report.summary, "ranks 1-2 left no record (killed, or not asked for one)"));
}

TEST_CASE("a rank that has not called what the others run is behind") {
  auto all = ring(4);
  all[2].operations.pop_back();
  all[2].called = 4;
  all[2].waits = {};
  const Report report = diagnose(all, 1);
  INFO(report.summary);
  CHECK(report.behind == 2);
  CHECK(report.operation.number == 5);
  CHECK((report.waiting == 3 && report.step == 12));
  CHECK(report.cause == Cause::not_called);
  CHECK(
      mentions(report.summary, "rank 2 on here has not called operation 5 (all_reduce, 10 float)"));
  all[2].rendezvous = "finalize";
  const Report ends = diagnose(all, 0);
  CHECK(ends.cause == Cause::other_step);
  CHECK(mentions(ends.summary, "10 float) (it is in finalize; its last is operation 4"));
  CHECK(mentions(ends.text(), "has called 4, is in finalize\n"));
  CHECK(mentions(report.summary, "its last is operation 4 (all_reduce, 10 float), done"));
}

TEST_CASE("a rank that others wait for in a call of all ranks is behind") {
  auto all = ring(4);
  for (RankStatus& of : all) {
    of.operations.back().state = OpState::done;
    of.waits = {};
    if (of.rank != 2) of.rendezvous = "finalize";
  }
  Report report = diagnose(all, 1);
  INFO(report.summary);
  CHECK((report.behind == 2 && report.waiting == 0 && report.cause == Cause::not_called));
  CHECK(
      mentions(report.summary, "rank 2 on here has not called finalize (its last is operation 5"));
  all[2].rendezvous = "split";
  report = diagnose(all, 1);
  CHECK((report.behind == 2 && report.cause == Cause::other_step));
  CHECK(mentions(report.summary, "rank 2 on here is in split where the others are in finalize"));
  all[2].rendezvous = "finalize";
  report = diagnose(all, 1);
  CHECK((report.behind == -1 && report.cause == Cause::none));
  CHECK(report.summary == "no operation runs");
}

TEST_CASE("a rank that takes longer in a call which others have left is in no other call") {
  auto all = ring(4);
  for (RankStatus& of : all) of.rendezvous_number = 7;
  all[2].operations.pop_back();
  all[2].called = 4;
  all[2].waits = {};
  all[2].rendezvous = "the creation of Ring";
  Report report = diagnose(all, 1);
  INFO(report.summary);
  CHECK((report.behind == 2 && report.cause == Cause::not_called));
  CHECK(mentions(report.summary, "it is in the creation of Ring"));
  all[2].rendezvous_number = 8;  // the others have not called it
  CHECK(diagnose(all, 1).cause == Cause::other_step);

  for (RankStatus& of : all) {
    of.operations.back().state = OpState::done;
    of.waits = {};
    of.rendezvous = "the creation of Ring";
    of.rendezvous_number = 7;
  }
  all[0].rendezvous = "the creation of Tree";
  all[0].rendezvous_number = 8;
  report = diagnose(all, 0);
  CHECK((report.behind == 1 && report.waiting == 0 && report.cause == Cause::not_called));
  CHECK(mentions(report.summary,
                 "ranks 1-3 on here have not called the creation of Tree (rank 1: it is in the "
                 "creation of Ring"));
  for (const int r : {1, 2}) all[std::size_t(r)].rendezvous.clear();  // and compute
  all[0].rendezvous = all[3].rendezvous;
  all[0].rendezvous_number = 7;
  report = diagnose(all, 0);
  CHECK((report.behind == 0 && report.cause == Cause::not_called));
  CHECK(mentions(report.summary,
                 "ranks 0, 3 on here have not left the creation of Ring, as ranks "
                 "1-2 have"));
  all[2].rendezvous_number = 6;
  report = diagnose(all, 0);
  CHECK((report.behind == 2 && report.waiting == 0));
  CHECK(mentions(report.summary, "rank 2 on here has not called the creation of Ring"));

  for (RankStatus& of : all) {  // as one call
    of.rendezvous = "the creation of Ring";
    of.rendezvous_number = 8;
  }
  all[0].rendezvous = "the creation of Tree";
  report = diagnose(all, 0);
  CHECK((report.behind == 0 && report.cause == Cause::other_step));
}

TEST_CASE("a receive that waits on purpose hides no collective") {
  auto all = ring(4);
  for (const int r : {0, 1}) {
    Operation receive = op(0, OpState::running, "send_recv");
    receive.composition = 1;
    all[std::size_t(r)].operations.insert(all[std::size_t(r)].operations.begin(), receive);
  }
  all[2].operations.pop_back();
  all[2].called = 4;
  all[2].waits = {};
  for (const int asking : {0, 1, 3}) {
    const Report report = diagnose(all, asking);
    INFO(report.summary);
    CHECK((report.behind == 2 && report.cause == Cause::not_called));
    CHECK(report.operation.number == 5);
  }
}

TEST_CASE("a replay of a graph runs since nobody knows when") {
  auto all = ring(2);  // without times
  CHECK(mentions(diagnose(all, 0).text(), "operation 5 (all_reduce, 10 float), waits for rank"));
  all[0].now_ns = 3'000'000'000;
  all[0].operations.back().started_ns = 1'000'000'000;
  CHECK(mentions(diagnose(all, 0).text(), "10 float) for 2.000 s, waits for rank"));
}

TEST_CASE("statuses that name ranks of another job do no harm") {
  auto all = ring(2);
  all[0].waits = {7, 1};
  CHECK(diagnose(all, 5).operation.number == 5);
}

TEST_CASE("the earliest operation that hangs counts, not that of the asking rank") {
  auto all = ring(4);
  // Rank 0 is one operation ahead; rank 1 has not called operation 5.
  all[0].operations.back().state = OpState::done;
  all[0].operations.push_back(op(6, OpState::running));
  all[0].called = 6;
  all[1].operations.pop_back();
  all[1].called = 4;
  const Report report = diagnose(all, 0);
  CHECK(report.behind == 1);
  CHECK(report.operation.number == 5);
}

TEST_CASE("a GPU whose host is many calls ahead has not begun what its status leaves out") {
  auto all = ring(3);
  for (RankStatus& of : all) of.called = 30;
  auto& late = all[1].operations;
  late.clear();
  for (Word n = 23; n <= 30; ++n) late.push_back(op(n, OpState::launched));
  all[1].waits = {};
  Report report = diagnose(all, 2);
  INFO(report.summary);
  CHECK((report.behind == 1 && report.cause == Cause::queued && report.operation.number == 5));
  CHECK(mentions(report.summary, "has launched operation 5"));
  all[1].shortage = "132 of 256 blocks";
  CHECK(diagnose(all, 2).cause == Cause::no_place);
  // One that waits in a later operation has done it.
  all[1].shortage.clear();
  late.front().state = OpState::running;
  CHECK(diagnose(all, 2).cause != Cause::queued);
}

TEST_CASE("a rank that called something else is named, with both calls") {
  auto all = ring(4);
  all[1].operations[3] = op(4, OpState::done, "broadcast");
  Report report = diagnose(all, 0);
  INFO(report.summary);
  CHECK(report.behind == 1);
  CHECK(report.cause == Cause::other_operation);
  CHECK(report.operation.number == 4);
  CHECK(mentions(report.summary,
                 "rank 1 called broadcast, 10 float as operation 4 where ranks 0, 2-3 "
                 "called all_reduce, 10 float"));
  all = ring(4);
  all[3].operations[2] = op(3, OpState::done, "all_reduce", 11);
  report = diagnose(all, 0);
  CHECK(report.behind == 3);
  CHECK(mentions(report.summary, "rank 3 called all_reduce, 11 float as operation 3"));
  CHECK(report.cause == Cause::other_count);
}

TEST_CASE("each difference of a call has its cause") {
  const auto cause = [](auto&& change) {
    auto all = ring(4);
    change(all[1].operations[2]);
    const Report report = diagnose(all, 0);
    CHECK(report.behind == 1);
    CHECK(report.operation.number == 3);
    return report.cause;
  };
  using Op = Operation;
  CHECK(cause([](Op& of) { std::strcpy(of.type, "double"); }) == Cause::other_type);
  CHECK(cause([](Op& of) { of.count = 11; }) == Cause::other_count);
  CHECK(cause([](Op& of) { std::strcpy(of.redop, "max"); }) == Cause::other_reduction);
  CHECK(cause([](Op& of) { of.root = 1; }) == Cause::other_root);
  CHECK(cause([](Op& of) { of.composition = 1; }) == Cause::other_operation);
  CHECK(cause([](Op& of) { of.call = 7; }) == Cause::other_operation);
  // Of several, the one that says most.
  CHECK(cause([](Op& of) { std::strcpy(of.type, "double"), of.count = 5; }) == Cause::other_type);
}

TEST_CASE("names of causes, and those that time does not remove") {
  CHECK(name(Cause::none) == "none");
  CHECK(name(Cause::other_count) == "other_count");
  CHECK(name(Cause::stuck_proxy) == "stuck_proxy");
  CHECK(name(Cause::working) == "working");
  CHECK(certain(Cause::other_root));
  CHECK_FALSE(certain(Cause::not_called));
  CHECK_FALSE(certain(Cause::none));
}

TEST_CASE("a rank whose proxy does not run is behind") {
  auto all = ring(4);
  all[1].proxy_stuck_s = 4;
  const Report report = diagnose(all, 3);
  INFO(report.summary);
  CHECK(report.behind == 1);
  CHECK(report.waiting == 2);
  CHECK(report.cause == Cause::stuck_proxy);
  CHECK(mentions(report.summary, "has not run for 4.0 s"));
  all[2].called = 4;
  all[2].operations.pop_back();
  CHECK(diagnose(all, 3).cause == Cause::not_called);
}

TEST_CASE("what a rank has sent over a network and its peer has not received is a silent link") {
  auto all = ring(4);
  // Rank 2 waits for step 12 of rank 1, which has sent 13 steps.
  all[2].steps = {{1, 0, false, 12, 12, 0, true}};
  all[1].steps = {{2, 0, true, 13, 12, 0, true}};
  Report report = diagnose(all, 0);
  INFO(report.summary);
  CHECK(report.cause == Cause::silent_link);
  CHECK((report.behind == 1 && report.waiting == 2));
  CHECK(mentions(report.summary,
                 "the network does not deliver what rank 1 on here has sent to rank 2 on here: "
                 "step 12 of channel 0"));
  SECTION("also if the sender has done its part, and its status tells of other operations") {
    all[1].operations.back().state = OpState::done;
    CHECK(diagnose(all, 0).cause == Cause::silent_link);
  }
  SECTION("also if the sender has destroyed the composition after its part") {
    all[1].operations.back().state = OpState::done;
    all[1].steps.clear();
    report = diagnose(all, 0);
    CHECK(report.cause == Cause::silent_link);
    CHECK((report.behind == 1 && report.waiting == 2));
    CHECK(mentions(report.summary, "its part of which is done"));
    all[1].operations.back().state = OpState::running;
    CHECK(diagnose(all, 0).cause != Cause::silent_link);
  }
  SECTION("the credit counts, too") {
    all[2].waits = {3, 12};
    all[2].steps = {{3, 1, true, 12, 4, 0, true}};
    all[3].steps = {{2, 1, false, 12, 5, 0, true}};
    report = diagnose(all, 0);
    CHECK(report.cause == Cause::silent_link);
    CHECK((report.behind == 3 && report.waiting == 2));
  }
  SECTION(
      "not if all has arrived, in shared memory, on another channel or in another composition") {
    const auto sound = [&](auto&& change) {
      auto other = all;
      change(other);
      return diagnose(other, 0).cause != Cause::silent_link;
    };
    CHECK(sound([](auto& of) { of[1].steps[0].filled = 12; }));
    CHECK(sound([](auto& of) { of[2].steps[0].proxied = false; }));
    CHECK(sound([](auto& of) { of[1].steps[0].channel = 1; }));
    CHECK(sound([](auto& of) { of[1].steps[0].composition = 1; }));
    CHECK(sound([](auto& of) { of[1].steps[0].peer = 3; }));
    CHECK(sound([](auto& of) { of[2].waits = {3, 12}; }));
  }
}

TEST_CASE("ranks that wait for each other in two communicators are a circle") {
  auto all = ring(4);
  for (int r = 0; r < 4; ++r) all[r].pid = 100 + r;
  all[2].operations.pop_back();
  all[2].called = 4;
  all[2].waits = {};
  all[2].elsewhere = {"operation 1 (all_reduce) of communicator pair", "here", 100};
  const Report report = diagnose(all, 1);
  INFO(report.summary);
  CHECK(report.cause == Cause::communicators);
  CHECK(report.behind == 2);
  CHECK(mentions(report.summary, "it is in operation 1 (all_reduce) of communicator pair"));
  // Another process, or the same number on another host, is no rank of this communicator.
  all[2].elsewhere.peer_pid = 99;
  CHECK(diagnose(all, 1).cause == Cause::not_called);
  all[2].elsewhere.peer_pid = 100;
  all[2].elsewhere.peer_host = "there";
  CHECK(diagnose(all, 1).cause == Cause::not_called);
}

TEST_CASE("messages between some ranks are no difference") {
  auto all = ring(3);
  Operation message = op(0, OpState::done, "send_recv");
  all[1].operations.insert(all[1].operations.begin() + 1, message);
  all[2].operations.pop_back();
  all[2].called = 4;
  CHECK(diagnose(all, 0).behind == 2);
}

TEST_CASE("within one operation, the rank that waits for nobody is behind") {
  auto all = ring(4);
  all[2].waits = {};
  const Report report = diagnose(all, 0);
  CHECK(report.behind == 2);
  CHECK(report.waiting == 3);
  CHECK(mentions(report.summary, "rank 2 on here waits for nobody"));
  CHECK(report.cause == Cause::working);
  all[2].waits = {1, 7};
  CHECK(mentions(diagnose(all, 0).summary, "wait for each other in a circle"));
  CHECK(diagnose(all, 0).behind == 2);
  CHECK(diagnose(all, 0).cause == Cause::circle);
}

TEST_CASE("a rank whose stream is busy with something else holds the others up") {
  auto all = ring(3);
  all[1].operations.back().state = OpState::queued;
  all[1].operations.push_back(op(0, OpState::running, "send_recv"));
  all[1].waits = {0, 3};
  const Report report = diagnose(all, 2);
  INFO(report.summary);
  CHECK(report.behind == 1);
  CHECK(mentions(report.summary, "has not begun operation 5"));
  CHECK(mentions(report.summary, "of send_recv"));
  CHECK(report.cause == Cause::queued);
}

TEST_CASE("of GPUs that have not said that they wait, one is behind if others wait for it") {
  // A broadcast from 0, whose GPU may be through; that of rank 2 has other work to do first.
  auto all = ring(4);
  for (const int r : {0, 2}) {
    all[r].operations.back().state = OpState::launched;
    all[r].waits = {};
  }
  all[1].waits = {2, 7};
  for (int asking = 0; asking < 4; ++asking) {
    const Report report = diagnose(all, asking);
    INFO(report.summary);
    CHECK(report.behind == 2);
    CHECK(mentions(report.summary, "rank 2 on here has launched operation 5"));
    CHECK(mentions(report.summary, "it is behind other work, or it computes"));
    CHECK(mentions(report.summary, "; rank "));
    CHECK(report.cause == Cause::queued);
  }
  all[2].shortage = "132 of 256 blocks";
  CHECK(diagnose(all, 0).cause == Cause::no_place);
  CHECK(mentions(diagnose(all, 0).summary, "132 of 256 blocks"));
  all[2].operations.back().state = OpState::running;
  all[1].waits = {2, 7};
  all[2].waits = {};
  CHECK(diagnose(all, 3).behind == 2);
}

TEST_CASE("where nothing runs, nobody is behind") {
  auto all = ring(2);
  for (auto& of : all) of.operations.back().state = OpState::done;
  const Report report = diagnose(all, 0);
  CHECK(report.behind == -1);
  CHECK(report.cause == Cause::none);
  CHECK(report.summary == "no operation runs");
}

TEST_CASE("a network that reduces is behind if all ranks wait for it at the end") {
  auto all = ring(4);  // hosts of ranks 0 and 1, and of ranks 2 and 3, whose heads are 0 and 2
  for (const int head : {0, 2}) {
    WireSteps up, down;
    up.peer = down.peer = head;
    up.sends = true;
    up.filled = 13;
    down.filled = 12;
    up.drained = down.drained = 12;
    up.composition = down.composition = 0;
    up.proxied = down.proxied = true;
    all[head].steps = {up, down};
    all[head].waits = {head, 12};
  }
  all[2].waits.step = 11;
  const Report report = diagnose(all, 1);
  INFO(report.text());
  CHECK(report.cause == Cause::silent_link);
  CHECK(report.behind == 2);
  CHECK(mentions(report.summary, "the network that reduces between hosts does not return"));
  CHECK(mentions(report.summary, "rank 2 on here waits for it at step 11"));
  CHECK(mentions(report.text(), "waits for the network that reduces between hosts at step 12"));
  CHECK(mentions(report.text(), "to the network that reduces, channel 0: 13 steps filled"));
  // A rank at work holds up its host's head, which the network waits for.
  all[2].waits = {3, 12};
  all[3].waits = {};
  const Report busy = diagnose(all, 1);
  INFO(busy.summary);
  CHECK(busy.cause == Cause::working);
  CHECK(busy.behind == 3);
}
