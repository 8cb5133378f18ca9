// Collectives over wires, whose kernels run on GPUs that are played on the CPU.
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/checked.hpp>
#include <ccl/collective.cuh>
#include <ccl/hooked.hpp>
#include <ccl/transport/p2p.hpp>

#include <limits>
#include <string>
#include <vector>

#include "support/played/calls.hpp"
#include "support/processes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
constexpr int multiprocessors = 4;
/// Small slots, so that a message takes many rounds. The protocols' own slots take long to clear.
constexpr Plan small{.channels = 4, .slot_count = 4, .slot_bytes = 32 << 10};
/// Hooks of calls on GPUs.
struct Lines {
  std::vector<std::string>* lines;
  void on_call(const CallEvent& event) const { add("call", event); }
  void on_launch(const CallEvent& event) const { add("launch", event); }
  void on_end(const CallEvent& event, const Result<void>& result) const {
    add(result ? "end" : "failed", event);
  }
  void add(const char* kind, const CallEvent& event) const {
    const Operation& op = event.operation;
    lines->push_back(std::string{kind} + " " + op.what + " " + std::to_string(op.number) + " " +
                     std::string{name(op.state)} + (event.stream.cuda() ? "" : " nowhere"));
  }
};
}  // namespace

TEST_CASE("hooks receive launches on GPUs, and that one was refused") {
  played::install(2, multiprocessors);
  auto comms = played::create_ranks(2);
  played::on_each(comms, [&](const played::Rank& rank) -> std::string {
    std::vector<std::string> lines;
    using Sums = Hooked<Collective<AllReduce, Ring, LL, P2pTransport>, Lines>;
    const auto sums = Sums::create(rank.comm, Lines{&lines}, small);
    if (!sums) return sums.error().message();
    std::vector<float> data(100, 1);
    const auto done = (*sums)(data.data(), data.data(), 100, Sum{}, rank.stream);
    const auto refused = (*sums)(data.data(), data.data(), -1, Sum{}, rank.stream);
    rank.synchronize();
    if (!done) return done.error().message();
    if (refused) return "a negative count was not refused";
    const std::vector<std::string> expected{
        "call all_reduce 0 queued", "launch all_reduce/Ring/LL/p2p 1 launched",
        "call all_reduce 0 queued", "failed all_reduce 0 failed"};
    std::string all;
    for (const auto& line : lines) all += line + "; ";
    return lines == expected ? "" : all;
  });
}

TEST_CASE("an all-reduce by a ring runs on played GPUs with each protocol") {
  played::install(8, multiprocessors);
  for (const int ranks : {2, 3, 8}) {
    auto comms = played::create_ranks(ranks);
    for (const Index count : {Index{0}, Index{1}, Index{20'000}}) {
      played::all_reduces<Ring, Simple, P2pTransport>(comms, count, small);
      played::all_reduces<Ring, LL, P2pTransport>(comms, count, small);
      played::all_reduces<Ring, LL128, P2pTransport>(comms, count, small);
    }
  }
}

TEST_CASE("checked compositions run on played GPUs with each protocol") {
  played::install(8, multiprocessors);
  for (const int ranks : {2, 5}) {
    auto comms = played::create_ranks(ranks);
    for (const Index count : {Index{0}, Index{1}, Index{20'000}}) {
      played::all_reduces<Checked<Ring>, Simple, P2pTransport>(comms, count, small);
      played::all_reduces<Checked<Ring>, LL, P2pTransport>(comms, count, small);
      played::all_reduces<Checked<Ring>, LL128, P2pTransport>(comms, count, small);
      played::all_reduces<Checked<Tree>, LL, P2pTransport>(comms, count, small);
    }
  }
}

namespace {
/// Each rank makes `call(rank, collective, data)`. All must fail with a text that contains `text`.
template <class Proto, class Call>
void check_failure(Errc code, const std::string& text, Call call) {
  auto comms = played::create_ranks(3);
  played::on_each(comms, [&](const played::Rank& rank) -> std::string {
    const auto sums =
        Collective<AllReduce, Checked<Ring>, Proto, P2pTransport>::create(rank.comm, small);
    if (!sums) return sums.error().message();
    std::vector<float> data(5000, 1), out(5000);
    const auto done = call(
        rank,
        [&](Index count) { return (*sums)(data.data(), out.data(), count, Sum{}, rank.stream); },
        data);
    if (!done) return done.error().message();
    Result<void> status;
    if (!wait_until([&] { return !(status = rank.comm.status()); }, 60)) return "no failure";
    rank.synchronize();
    const Error& error = status.error();
    const bool good = error.code == code && error.what.find(text) != std::string::npos;
    return good ? "" : error.message();
  });
}
}  // namespace

TEMPLATE_TEST_CASE("a NaN and another call are found on played GPUs", "", Simple, LL, LL128) {
  played::install(3, multiprocessors);
  check_failure<TestType>(Errc::not_a_number,
                          "element 1234 of the input of rank 2 is NaN (float, found",
                          [](const played::Rank& rank, auto call, std::vector<float>& data) {
                            if (rank.rank == 2)
                              data[1234] = data[4321] = std::numeric_limits<float>::quiet_NaN();
                            return call(5000);
                          });
  check_failure<TestType>(Errc::mismatch, "4000 float, sum",
                          [](const played::Rank& rank, auto call, std::vector<float>&) {
                            return call(rank.rank == 1 ? 4000 : 5000);
                          });
}

TEST_CASE("an all-reduce by two trees runs on played GPUs, with the plan of ccl") {
  played::install(8, multiprocessors);
  auto comms = played::create_ranks(5);
  played::all_reduces<Tree, LL, P2pTransport>(comms, 3000);
}

TEST_CASE("messages between pairs run on played GPUs") {
  played::install(8, multiprocessors);
  auto comms = played::create_ranks(6);
  for (const Index count : {Index{0}, Index{1}, Index{3000}}) {
    played::all_to_alls<Pairwise, LL, P2pTransport>(comms, count, small);
    played::send_recvs<Pairwise, LL, P2pTransport>(comms, count, small);
  }
}

TEST_CASE("an exchange over wires that waits names its own call") {
  played::install(2, multiprocessors);
  auto comms = played::create_ranks(2);
  std::vector<float> in[2] = {std::vector<float>(100), std::vector<float>(100)},
                     out[2] = {in[0], in[1]};
  using Messages = Collective<AllToAll, Pairwise, Simple, P2pTransport>;
  played::wait_in_own_calls<Messages>(
      comms, small, [&](const Messages& all, const played::Rank& rank) {
        return all(in[rank.rank].data(), out[rank.rank].data(), 50, rank.stream);
      });
}
