// Idle pairs of ranks disconnect whatever operation has connected them, and its next call connects
// them again.
#include <ccl/algo/pairwise.hpp>
#include <ccl/collective/all_gather.hpp>
#include <ccl/collective/all_to_all.hpp>
#include <ccl/collective/all_to_all_v.hpp>
#include <ccl/collective/broadcast.hpp>
#include <ccl/collective/gather.hpp>
#include <ccl/collective/scatter.hpp>
#include <ccl/collective/send_recv.hpp>
#include <ccl/group.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/shm.hpp>
#include <ccl/transport/socket.hpp>

#include <string>
#include <utility>
#include <vector>

#include "comm/state.hpp"
#include "support/environment.hpp"
#include "support/on_ranks.hpp"
#include "support/processes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr int ranks = 3, root = 1;
using Ints = std::vector<int>;

Result<void> expect(bool right, std::string what) {
  if (right) return {};
  return fail(Errc::internal, std::move(what));
}

/// Calls `call(round)` three times, each after all pairs have disconnected. `edges`: those that
/// this rank has in a call.
template <class Call>
Result<void> again(const Communicator& comm, const char* name, int edges, Call call) {
  detail::ConnectionCounts& counts = detail::Access::state(comm)->connections;
  for (int round = 0; round < 3; ++round) {
    const Word made = counts.made;
    CCL_CHECK(call(round));
    const bool closed = test::wait_until([&] { return counts.open == 0; }, 20);
    CCL_CHECK(expect(closed && counts.bytes == 0, name + std::string{": open connections"}));
    CCL_CHECK(expect(counts.made == made + Word(edges), name + std::string{": wrong number made"}));
  }
  return {};
}

template <class Op, class Transport>
using By = Collective<Op, Pairwise, Simple, Transport>;

/// Value of rank `from` for rank `to`.
int value(int round, int from, int to) {
  return 100 * round + 10 * from + to;
}

template <class Transport>
Result<void> to_all(const Communicator& comm) {
  CCL_TRY(const auto plain, (By<AllToAll, Transport>::create(comm)));
  CCL_TRY(const auto sized, (By<AllToAllV, Transport>::create(comm)));
  const int me = comm.rank();
  CCL_CHECK(again(comm, "AllToAll", 4, [&](int round) -> Result<void> {
    Ints in, out(ranks), wanted;
    for (int p = 0; p < ranks; ++p) in.push_back(value(round, me, p));
    for (int p = 0; p < ranks; ++p) wanted.push_back(value(round, p, me));
    CCL_CHECK(plain(in.data(), out.data(), 1));
    return expect(out == wanted, "AllToAll");
  }));
  const int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
  CCL_CHECK(again(comm, "AllToAllV", 2, [&](int round) -> Result<void> {
    const int in = value(round, me, right);
    int out = -1;
    std::vector<Index> sends(ranks), recvs(ranks), offsets(ranks);
    sends[std::size_t(right)] = recvs[std::size_t(left)] = 1;
    CCL_CHECK(sized(&in, sends, offsets, &out, recvs, offsets));
    return expect(out == value(round, left, me), "AllToAllV");
  }));
  return again(comm, "AllToAllV with counts in memory", 4, [&](int round) -> Result<void> {
    Ints in, out(ranks, -1), sends(ranks, 1), recvs(ranks, -1), wanted;
    for (int p = 0; p < ranks; ++p) in.push_back(value(round, me, p));
    for (int p = 0; p < ranks; ++p) wanted.push_back(value(round, p, me));
    CountedRows rows;
    rows.send_counts = sends.data();
    rows.recv_counts = recvs.data();
    rows.send_stride = rows.recv_stride = 1;
    CCL_CHECK(sized.counted(in.data(), out.data(), rows));
    return expect(out == wanted && recvs == Ints(ranks, 1), "AllToAllV with counts in memory");
  });
}

template <class Transport>
Result<void> with_root(const Communicator& comm) {
  CCL_TRY(const auto gather, (By<Gather, Transport>::create(comm)));
  CCL_TRY(const auto scatter, (By<Scatter, Transport>::create(comm)));
  CCL_TRY(const auto broadcast, (By<Broadcast, Transport>::create(comm)));
  const int me = comm.rank(), edges = me == root ? ranks - 1 : 1;
  CCL_CHECK(again(comm, "Gather", edges, [&](int round) -> Result<void> {
    const int in = value(round, me, root);
    Ints out(ranks, -1), wanted;
    for (int p = 0; p < ranks; ++p) wanted.push_back(value(round, p, root));
    CCL_CHECK(gather(&in, out.data(), 1, root));
    return expect(me != root || out == wanted, "Gather");
  }));
  CCL_CHECK(again(comm, "Scatter", edges, [&](int round) -> Result<void> {
    Ints in;
    int out = -1;
    for (int p = 0; p < ranks; ++p) in.push_back(value(round, root, p));
    CCL_CHECK(scatter(in.data(), &out, 1, root));
    return expect(out == value(round, root, me), "Scatter");
  }));
  return again(comm, "Broadcast", edges, [&](int round) -> Result<void> {
    const int in = value(round, me, 0);
    int out = -1;
    CCL_CHECK(broadcast(&in, &out, 1, root));
    return expect(out == value(round, root, 0), "Broadcast");
  });
}

template <class Transport>
Result<void> in_groups(const Communicator& comm) {
  CCL_TRY(const auto pairs, (By<SendRecv, Transport>::create(comm)));
  CCL_TRY(const auto gather, (By<AllGather, Transport>::create(comm)));
  const int me = comm.rank(), right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
  CCL_CHECK(again(comm, "SendRecv", 2, [&](int round) -> Result<void> {
    const int in = value(round, me, right);
    int out = -1;
    CCL_CHECK(pairs(&in, 1, right, &out, 1, left));
    return expect(out == value(round, left, me), "SendRecv");
  }));
  CCL_CHECK(again(comm, "group of messages", 4, [&](int round) -> Result<void> {
    using Calls = By<SendRecv, Transport>;
    const int in[2] = {value(round, me, right), value(round, me, left)};
    int out[2] = {-1, -1};
    CCL_CHECK(
        pairs.group({Calls::send_message(in, 1, right), Calls::send_message(in + 1, 1, left),
                     Calls::recv_message(out, 1, left), Calls::recv_message(out + 1, 1, right)}));
    return expect(out[0] == value(round, left, me) && out[1] == value(round, right, me),
                  "group of messages");
  }));
  return again(comm, "group of calls", 2 + 4, [&](int round) -> Result<void> {
    const int in = value(round, me, right);
    int out = -1;
    Ints all(ranks, -1), wanted;
    for (int p = 0; p < ranks; ++p) wanted.push_back(value(round, p, (p + 1) % ranks));
    CCL_CHECK(group(pairs.bind(&in, 1, right, &out, 1, left), gather.bind(&in, all.data(), 1)));
    return expect(out == value(round, left, me) && all == wanted, "group of calls");
  });
}

}  // namespace

TEMPLATE_TEST_CASE("pairs that any operation has connected disconnect when they are idle", "",
                   ShmTransport, SocketTransport) {
  const Environment idle{"CCL_CONNECTION_IDLE", "0.04"};
  Config config;
  config.timeout_s = config.init_timeout_s = 30;
  const auto run = GENERATE(to_all<TestType>, with_root<TestType>, in_groups<TestType>);
  check_well(on_ranks(ranks, config, [&](const Communicator& comm) -> Result<void> {
    CCL_CHECK(run(comm));
    return comm.barrier();
  }));
}
