#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/collective/all_reduce.hpp>
#include <ccl/collective/all_to_all.hpp>
#include <ccl/detail/base/selection.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/any_of.hpp>
#include <ccl/transport/loopback.hpp>
#include <ccl/transport/socket.hpp>

#include <thread>

#include "support/catch.hpp"
#include "support/environment.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Sums = Collective<AllReduce, Tree, Simple, LoopbackTransport>;
using SumsLL = Collective<AllReduce, Tree, LL, LoopbackTransport>;
using SumsLL128 = Collective<AllReduce, Tree, LL128, LoopbackTransport>;
using All = Collective<AllToAll, Pairwise, Simple, LoopbackTransport>;

/// Returns the composition that two ranks select.
template <class Composition>
Result<Plan> plan_of(Config config = {}, std::optional<Plan> plan = {}) {
  CCL_TRY(auto comms, Communicator::create_all(2, config));
  Result<Plan> plans[2] = {Plan{}, Plan{}};
  std::thread other;
  const auto make = [&](int r) {
    plans[r] = [&]() -> Result<Plan> {
      CCL_TRY(const auto made, Composition::create(comms[r], plan));
      return made.plan();
    }();
  };
  std::thread first{[&] { make(0); }};
  make(1);
  first.join();
  CHECK(plans[0].has_value() == plans[1].has_value());
  return plans[0];
}
Error error_of(const Result<Plan>& result) {
  return result ? Error{} : result.error();
}
}  // namespace

TEST_CASE("lists of names are read as NCCL reads them") {
  CHECK(detail::list_leaves("", "all_reduce", "Ring"));
  CHECK(detail::list_leaves("ring", "all_reduce", "Ring"));
  CHECK(detail::list_leaves("Tree, RING", "all_reduce", "Ring"));
  CHECK_FALSE(detail::list_leaves("tree", "all_reduce", "Ring"));
  CHECK_FALSE(detail::list_leaves("^ring,tree", "all_reduce", "Ring"));
  CHECK(detail::list_leaves("^tree", "all_reduce", "Ring"));
  CHECK_FALSE(detail::list_leaves("^LL", "all_reduce", "LL"));
  CHECK(detail::list_leaves("^LL", "all_reduce", "LL128"));
  CHECK(detail::list_leaves("allreduce:tree", "all_gather", "Ring"));
  CHECK_FALSE(detail::list_leaves("allreduce:tree", "all_reduce", "Ring"));
  CHECK(detail::list_leaves("tree;allreduce:ring", "all_reduce", "Ring"));
  CHECK(detail::list_leaves("all_reduce:ring;tree", "all_reduce", "Ring"));
  CHECK_FALSE(detail::list_leaves("ring;allgather:^ring;", "all_gather", "Ring"));
  CHECK(detail::list_leaves("ring;allgather:^ring", "reduce", "Ring"));
  CHECK(detail::list_leaves(",", "reduce", "Ring"));
}

TEST_CASE("a composition that CCL_ALGO or CCL_PROTO excludes is refused with the reason") {
  {
    const Environment env{"CCL_ALGO", "ring"};
    const Error error = error_of(plan_of<Sums>());
    CHECK(error.code == Errc::bad_setting);
    CHECK(error.what.find("CCL_ALGO is ring, which leaves Tree out") != error.what.npos);
    CHECK(plan_of<All>());  // has no choice
  }
  {
    const Environment env{"NCCL_PROTO", "^LL,LL128"};
    CHECK(plan_of<Sums>());
    const Error error = error_of(plan_of<SumsLL>());
    CHECK(error.code == Errc::bad_setting);
    CHECK(error.what.find("NCCL_PROTO is ^LL,LL128, which leaves LL out") != error.what.npos);
  }
  const Environment env{"CCL_ALGO", "allgather:ring"};
  CHECK(plan_of<Sums>());
}

TEST_CASE("buffers are of the bytes that the setting of their protocol says") {
  const Plan before = plan_of<Sums>().value();
  {
    const Environment a{"CCL_BUFFSIZE", "256K"}, b{"CCL_LL_BUFFSIZE", "64K"};
    const Environment c{"CCL_LL128_BUFFSIZE", "100000"};
    CHECK(plan_of<Sums>().value().slot_bytes == 32768);
    CHECK(plan_of<SumsLL>().value().slot_bytes == 8192);
    CHECK(plan_of<SumsLL128>().value().slot_bytes == 12416);  // whole lines
    CHECK(plan_of<Sums>({}, Plan{.slot_bytes = 4096}).value().slot_bytes == 4096);
  }
  const Environment env{"CCL_BUFFSIZE", "2M"};
  const auto slots = before.slot_count;
  CHECK(plan_of<Sums>().value() == Plan{.slot_count = slots, .slot_bytes = (2 << 20) / slots});
}

TEST_CASE("slots are larger where a proxy moves them") {
  using Any = AnyOf<LoopbackTransport, SocketTransport>;
  CHECK(plan_of<Sums>().value().slot_bytes == 128 << 10);
  CHECK(plan_of<Collective<AllReduce, Tree, Simple, SocketTransport>>().value().slot_bytes ==
        512 << 10);
  CHECK(plan_of<Collective<AllReduce, Tree, Simple, Any>>().value().slot_bytes == 128 << 10);
  const Environment env{"CCL_TRANSPORT", "socket"};
  CHECK(plan_of<Collective<AllReduce, Tree, Simple, Any>>().value().slot_bytes == 512 << 10);
}

TEST_CASE("channels stay between their bounds, of which those of the Config come first") {
  const Environment least{"CCL_MIN_CTAS", "2"}, most{"CCL_MAX_CTAS", "3"};
  const Plan one{.slot_bytes = 4096}, four{.channels = 4, .slot_bytes = 4096};
  CHECK(plan_of<Sums>().value().channels == 2);
  CHECK(plan_of<Sums>({}, one).value().channels == 2);
  CHECK(plan_of<Sums>({}, four).value().channels == 3);
  {
    // NCCL cuts the lower bound.
    const Environment theirs{"NCCL_MAX_CTAS", "1"}, none{"CCL_MAX_CTAS", ""};
    CHECK(plan_of<Sums>().value().channels == 1);
  }
  Config config;
  config.max_channels = 5;
  CHECK(plan_of<Sums>(config, four).value().channels == 4);
  config.channels = 1;
  CHECK(plan_of<Sums>(config, four).value().channels == 1);
  Config narrow;
  narrow.max_channels = 1;
  const auto refused = plan_of<Sums>(narrow);
  CHECK(error_of(refused).code == Errc::bad_setting);
  CHECK(error_of(refused).what.find("2 to 1 channels cannot be") != std::string::npos);
}
