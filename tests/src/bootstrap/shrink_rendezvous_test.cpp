// Shrinks in which the network thread runs out of memory, at each of its allocations.
#include <ccl/detail/runtime/bootstrap.hpp>

#include <atomic>
#include <barrier>
#include <vector>

#include "support/bootstrap_ranks.hpp"
#include "support/replaced_new.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr double limit_s = 10;  // no rank may wait for so long

thread_local bool is_rank = false;  // the network thread is none
std::atomic<long> passed{0}, failing{0};

bool may_allocate() {
  return is_rank || passed.fetch_add(1) + 1 != failing;
}

/// Two ranks shrink to the same two. Allocation `place` of the network thread fails; 0: none.
std::vector<Error> shrink(long place) {
  const UniqueId id = create_unique_id().value();
  passed = 0;
  failing = place;
  std::barrier both{2};
  return on_ranks(2, [&](int rank) -> Result<void> {
    is_rank = true;
    auto b = detail::Bootstrap::join({&id, 1}, rank, 2, {limit_s, nullptr});
    both.arrive_and_wait();
    if (!b) return fail(b.error());
    if (rank == 0) allocation_hook = &may_allocate;
    both.arrive_and_wait();
    auto rest = (*b)->shrink({}, {limit_s, nullptr});
    both.arrive_and_wait();
    if (rank == 0) allocation_hook = nullptr;
    both.arrive_and_wait();
    return rest ? Result<void>{} : fail(rest.error());
  });
}

}  // namespace

TEST_CASE("the network thread is out of memory in a shrink: no rank waits to its limit") {
  const Interfaces lo;
  const Environment quiet{"CCL_DEBUG", "NONE"};
  is_rank = true;
  all_ok(shrink(0));
  const long places = passed + 10;  // some depend on the order of events
  REQUIRE(places > 20);
  int failed = 0;
  for (long place = 1; place <= places; ++place) {
    const auto errors = shrink(place);
    for (const Error& error : errors) {
      INFO("place " << place << ": " << error.message());
      CHECK(error.code != Errc::timed_out);
      CHECK(error.code != Errc::internal);
      failed += error.code != Errc::ok;
    }
  }
  CHECK(failed > 0);
}
