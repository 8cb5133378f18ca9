// Exchanges of CPU ranks whose messages are one slice each, beside ranks that take the general way.
#include <ccl/algo/pairwise.hpp>
#include <ccl/collective/gather.hpp>
#include <ccl/collective/send_recv.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/detail/exchange/short_messages.hpp>
#include <ccl/detail/launch/short_call.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/shm.hpp>

#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "support/calls/rings.hpp"
#include "support/catch.hpp"
#include "support/on_ranks.hpp"

using namespace ccl;
using namespace ccl::test;
using detail::P2pOp;

namespace {

using Messages = Collective<SendRecv, Pairwise, Simple, ShmTransport>;
using ToRoot = Collective<Gather, Pairwise, Simple, ShmTransport>;

std::vector<Communicator> make(int ranks, double timeout_s = 20) {
  Config config;
  config.device = Config::cpu;
  config.timeout_s = timeout_s;
  auto comms = Communicator::create_all(ranks, config);
  REQUIRE(comms);
  return *std::move(comms);
}

/// Value of byte `i` of the message from one rank to another in a round.
unsigned char value(int from, int to, int round, std::size_t i) {
  return static_cast<unsigned char>(from * 64 + to * 16 + round * 7 + int(i));
}

/// Sends `bytes[from][to]` bytes from each rank to each, in one call, and checks what has come.
Result<void> exchange_all(const Communicator& comm, const Messages& messages, int round,
                          const std::vector<std::vector<std::size_t>>& bytes) {
  const int me = comm.rank(), ranks = comm.ranks();
  std::vector<std::vector<unsigned char>> sent, got;
  sent.resize(std::size_t(ranks)), got.resize(std::size_t(ranks));
  std::vector<P2pOp> ops;
  for (int p = 0; p < ranks; ++p) {
    auto &out = sent[std::size_t(p)], &in = got[std::size_t(p)];
    out.resize(bytes[std::size_t(me)][std::size_t(p)]);
    in.resize(bytes[std::size_t(p)][std::size_t(me)]);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = value(me, p, round, i);
    if (!out.empty()) ops.push_back(Messages::send_message(out.data(), Index(out.size()), p));
    if (!in.empty()) ops.push_back(Messages::recv_message(in.data(), Index(in.size()), p));
  }
  CCL_CHECK(messages.group(ops));
  long wrong = 0;
  for (int p = 0; p < ranks; ++p) {
    const auto& in = got[std::size_t(p)];
    for (std::size_t i = 0; i < in.size(); ++i) wrong += in[i] != value(p, me, round, i);
  }
  return wrong == 0 ? Result<void>{} : fail(Errc::internal, "wrong data");
}

}  // namespace

TEST_CASE("short messages and long ones take turns on the same wires") {
  // Of ranks 0, 1 and 2. A long message of one rank sends all of its messages the general way,
  // while its peers may move theirs the short way.
  const std::size_t sizes[] = {1, 8, 600, 40'000, 300'000};
  check_well(on_ranks(make(3), [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto messages, Messages::create(comm));
    for (int round = 0; round < 60; ++round) {
      std::vector<std::vector<std::size_t>> bytes(3, std::vector<std::size_t>(3));
      for (int from = 0; from < 3; ++from) {
        for (int to = 0; to < 3; ++to) {
          const int kind = (round * 5 + from * 3 + to) % 11;
          if (kind < 5) bytes[std::size_t(from)][std::size_t(to)] = sizes[kind];
          if (kind > 7) bytes[std::size_t(from)][std::size_t(to)] = 16;
        }
      }
      CCL_CHECK(exchange_all(comm, messages, round, bytes));
    }
    return comm.finalize();
  }));
}

TEST_CASE("a sender of short messages runs ahead by the slots of its wire") {
  check_well(on_ranks(make(2), [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto gather, ToRoot::create(comm));
    int got[2] = {};
    long wrong = 0;
    for (int n = 0; n < 2000; ++n) {
      if (comm.rank() == 0 && n % 500 == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds{5});
      }
      const int mine = 2 * n + comm.rank();
      CCL_CHECK(gather(&mine, got, 1, 0));
      if (comm.rank() == 0) wrong += got[0] != 2 * n || got[1] != 2 * n + 1;
    }
    if (wrong != 0) return fail(Errc::internal, "wrong data");
    return comm.finalize();
  }));
}

TEST_CASE("broadcasts of one slice and longer ones take turns on the same wires") {
  const Index sizes[] = {1, 64, 0, 70'000, 3, 512, 400'000, 0, 8};
  check_well(on_ranks(make(3), [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto broadcast, RingBroadcasts::create(comm, Via::shm));
    long wrong = 0;
    for (int round = 0; round < 90; ++round) {
      const int root = round / 4 % 3;
      const Index n = sizes[round % 9];
      const bool in_place = round % 2 == 0;
      std::vector<unsigned char> in(std::size_t(n) + 1), out(std::size_t(n) + 1);
      if (comm.rank() == root) {
        for (std::size_t i = 0; i < std::size_t(n); ++i) in[i] = value(root, 3, round, i);
      }
      unsigned char* const to = in_place ? in.data() : out.data();
      CCL_CHECK(broadcast(in.data(), to, n, root));
      for (std::size_t i = 0; i < std::size_t(n); ++i) wrong += to[i] != value(root, 3, round, i);
      wrong += to[n] != 0;  // nothing behind the buffer
    }
    if (wrong != 0) return fail(Errc::internal, "wrong data");
    return comm.finalize();
  }));
}

TEST_CASE("a short broadcast whose root does not call fails at its deadline and names it") {
  const auto results = on_ranks(make(2, 0.3), [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto broadcast, RingBroadcasts::create(comm, Via::shm));
    int data = comm.rank();
    CCL_CHECK(broadcast(&data, &data, 1, 0));
    return comm.rank() == 1 ? broadcast(&data, &data, 1, 0) : Result<void>{};
  });
  REQUIRE(!results[1]);
  CHECK(results[1].error().code == Errc::timed_out);
  CHECK(results[1].error().peer == 0);
  CHECK(results[1].error().what.find("in broadcast/Ring/Simple") != std::string::npos);
}

TEST_CASE("short calls are recorded as others are") {
  check_well(on_ranks(make(2), [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto gather, ToRoot::create(comm));
    CCL_TRY(const auto messages, Messages::create(comm));
    CCL_TRY(const auto broadcast, RingBroadcasts::create(comm, Via::shm));
    const int mine = 7, to = 1 - comm.rank();
    int got[2] = {};
    CCL_CHECK(gather(&mine, got, 1, 1));
    CCL_CHECK(messages(&mine, 1, to, got, 1, to));
    CCL_CHECK(broadcast(&mine, got, 1, 1));
    const auto ops = comm.flight_record().status.operations;
    if (ops.size() != 3) return fail(Errc::internal, "not three operations");
    const std::string_view names[] = {"gather/Pairwise/Simple/", "send_recv/Pairwise/Simple/",
                                      "broadcast/Ring/Simple/"};
    const Word numbers[] = {1, 0, 2};
    for (std::size_t i = 0; i < 3; ++i) {
      const Operation& op = ops[i];
      if (!std::string_view{op.what}.starts_with(names[i]) || op.number != numbers[i] ||
          op.call != 1 || op.composition != int(i) || op.state != OpState::done ||
          op.queued_ns == 0 || op.started_ns < op.queued_ns || op.ended_ns < op.started_ns) {
        return fail(Errc::internal, std::string{"recorded wrongly: "} + op.what);
      }
    }
    if (ops[0].count != 1 || ops[0].root != 1 || std::string_view{ops[0].type} != "int32") {
      return fail(Errc::internal, std::string{"description is wrong: "} + ops[0].type);
    }
    return comm.finalize();
  }));
}

TEST_CASE("a short call follows the calls that a stream still holds") {
  check_well(on_ranks(make(2), [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto gather, ToRoot::create(comm));
    HostStream stream;
    int got[2] = {}, last[2] = {};
    const int first = 1 + comm.rank(), second = 10 + comm.rank();
    stream.enqueue([]() -> Result<void> {
      std::this_thread::sleep_for(std::chrono::milliseconds{30});
      return {};
    });
    CCL_CHECK(gather(&first, got, 1, 0, stream));
    CCL_CHECK(gather(&second, last, 1, 0));
    CCL_CHECK(stream.synchronize());
    if (comm.rank() == 0 && (got[0] != 1 || got[1] != 2 || last[0] != 10 || last[1] != 11)) {
      return fail(Errc::internal, "another call's data");
    }
    return comm.finalize();
  }));
}

TEST_CASE("a short call whose peer does not call fails at its deadline and names it") {
  const auto comms = make(2, 0.3);
  const auto results = on_ranks(comms, [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto gather, ToRoot::create(comm));
    const int mine = 7;
    int got[2] = {};
    CCL_CHECK(gather(&mine, got, 1, 0));
    return comm.rank() == 0 ? gather(&mine, got, 1, 0) : Result<void>{};
  });
  REQUIRE(!results[0]);
  CHECK(results[0].error().code == Errc::timed_out);
  CHECK(results[0].error().peer == 1);
  CHECK(results[0].error().what.find("no progress for 0.3 s in gather") != std::string::npos);
  CHECK(results[1].has_value());
  // The communicator has failed, and a later call returns that.
  const auto status = comms[0].status();
  REQUIRE(!status);
  CHECK(status.error().code == Errc::timed_out);
}

TEST_CASE("abort ends a short call") {
  const auto comms = make(2);
  const auto results = on_ranks(comms, [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto gather, ToRoot::create(comm));
    const int mine = 7;
    int got[2] = {};
    CCL_CHECK(gather(&mine, got, 1, 0));
    if (comm.rank() == 0) return gather(&mine, got, 1, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
    comms[0].abort("the user called abort");
    return {};
  });
  REQUIRE(!results[0]);
  CHECK(results[0].error().code == Errc::aborted);
}
