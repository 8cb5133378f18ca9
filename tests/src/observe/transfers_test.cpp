// What the proxies of ranks note about the steps that they move over TCP.

#include <string>
#include <vector>

#include "support/environment.hpp"
#include "support/noted_transfers.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::test::transfers;

TEST_CASE("each step over TCP is in the records of both ends, with bytes, times and interface") {
  const Environment wanted{{{"CCL_TRACE_TRANSFERS", "5000"}, {"CCL_SOCKET_IFNAME", "lo"}}};
  check_both_ends(sums_over(Via::socket), "lo");
}

TEST_CASE("pieces of a step over several sockets are apart") {
  const Environment wanted{{{"CCL_TRACE_TRANSFERS", "5000"},
                            {"CCL_SOCKET_IFNAME", "lo"},
                            {"CCL_SOCKET_NTHREADS", "1"},
                            {"CCL_NSOCKS_PERTHREAD", "1"}}};
  check_both_ends(sums_over(Via::socket), "lo");
}

TEST_CASE("only the latest steps are kept, and none unless they are wanted") {
  for (const char* const size : {"0", "7"}) {
    const Environment wanted{{{"CCL_TRACE_TRANSFERS", size}, {"CCL_SOCKET_IFNAME", "lo"}}};
    check_well(on_ranks(2, {}, [&](const Communicator& comm) -> Result<void> {
      CCL_TRY(const auto sums, RingSums::create(comm, Via::socket, plan));
      std::vector<float> in(count, 1), out(count);
      CCL_CHECK(sums(in.data(), out.data(), count));
      const auto kept = comm.flight_record().transfers.size();
      return kept == std::size_t(std::stoi(size)) ? Result<void>{}
                                                  : fail(Errc::internal, std::to_string(kept));
    }));
  }
}
