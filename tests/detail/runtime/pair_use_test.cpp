#include <ccl/algo/pairwise.hpp>
#include <ccl/collective/send_recv.hpp>
#include <ccl/detail/runtime/pair_use.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/socket.hpp>

#include <chrono>
#include <latch>
#include <thread>

#include "comm/state.hpp"
#include "support/environment.hpp"
#include "support/on_ranks.hpp"

using namespace ccl;
using namespace ccl::test;
using ccl::detail::Access;

namespace {
Result<void> expect(bool right, const char* what) {
  if (right) return {};
  return fail(Errc::internal, what);
}

using Pairs = Collective<SendRecv, Pairwise, Simple, SocketTransport>;

}  // namespace

TEST_CASE("no connection closes while a call waits for a message over it") {
  const Environment idle{"CCL_CONNECTION_IDLE", "0.03"};
  Config config;
  config.timeout_s = 30;
  const int waits = GENERATE(0, 1);
  std::latch created{2};
  check_well(on_ranks(2, config, [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto pairs, Pairs::create(comm));
    created.arrive_and_wait();
    // Two messages in one call connect the pair and leave the call waiting for the second.
    int x[2] = {5, 6}, y[2] = {};
    if (comm.rank() == waits) {
      CCL_CHECK(pairs.group(
          {Pairs::recv_message(y, 1, 1 - waits), Pairs::recv_message(y + 1, 1, 1 - waits)}));
      return expect(y[0] == 5 && y[1] == 6, "wrong messages");
    }
    CCL_CHECK(pairs.send(x, 1, waits));
    std::this_thread::sleep_for(std::chrono::milliseconds{200});
    CCL_CHECK(
        expect(Access::state(comm)->connections.closed == 0, "a connection in use has closed"));
    return pairs.send(x + 1, 1, waits);
  }));
}
