#include <ccl/algo/tree.hpp>
#include <ccl/collective/all_reduce.hpp>
#include <ccl/detail/launch/in_flight.hpp>
#include <ccl/group.hpp>
#include <ccl/hierarchical.hpp>
#include <ccl/pipeline.hpp>
#include <ccl/proto/simple.hpp>

#include <chrono>
#include <future>
#include <vector>

#include "support/on_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

using Sum32 = Collective<AllReduce, Tree, Simple, DefaultTransport>;
using Levels = Collective<AllReduce, Hierarchical<Tree, Tree>, Simple, DefaultTransport>;
using Twice = Pipeline<On<World, AllReduce, Tree, Simple>, On<World, AllReduce, Tree, Simple>>;

/// Keeps a stream from what is queued behind it.
class StartGate {
 public:
  explicit StartGate(HostStream& stream) {
    stream.enqueue([shut = opened_.get_future().share()]() -> Result<void> {
      shut.wait();
      return {};
    });
  }
  void open() { opened_.set_value(); }

 private:
  std::promise<void> opened_;
};

}  // namespace

TEST_CASE("finalize waits for calls that are queued") {
  std::vector<std::vector<float>> got(3);
  const auto results = on_ranks(3, {}, [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto sum, Sum32::create(comm));
    CCL_TRY(const auto levels, Levels::create(comm));
    CCL_TRY(const auto twice, Twice::create(comm));
    std::vector<float> in{1, 2, 3}, out(15);
    HostStream stream;
    StartGate gate{stream};
    CCL_CHECK(sum(in.data(), &out[0], 3, Sum{}, stream));
    CCL_CHECK(levels(in.data(), &out[3], 3, Sum{}, stream));
    CCL_CHECK(twice(in.data(), &out[6], 3, Sum{}, stream));
    CCL_CHECK(group(stream, sum.bind(in.data(), &out[9], 3), sum.bind(in.data(), &out[12], 3)));
    const auto opener = std::async(std::launch::async, [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds{30});
      gate.open();
    });
    CCL_CHECK(comm.finalize());
    got[std::size_t(comm.rank())] = out;  // the stream has nothing left that writes there
    return stream.synchronize();
  });
  check_well(results);
  for (const auto& out : got) {
    CHECK(out == std::vector<float>{3, 6, 9, 3, 6, 9, 9, 18, 27, 3, 6, 9, 3, 6, 9});
  }
}

TEST_CASE("a stream that does not come to a call is an error of finalize at the deadline") {
  Config config;
  config.timeout_s = 0.2;
  const auto results = on_ranks(2, config, [](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto sum, Sum32::create(comm));
    float in = 1, out = 0;
    HostStream stream;
    StartGate gate{stream};
    CCL_CHECK(sum(&in, &out, 1, Sum{}, stream));
    const auto done = comm.finalize();
    gate.open();
    if (stream.synchronize()) return fail(Errc::internal, "the call ran behind the end");
    return done;
  });
  for (const auto& result : results) {
    REQUIRE_FALSE(result.has_value());
    const Errc code = result.error().code;  // the rank that the other one reports to gets aborted
    CHECK((code == Errc::timed_out || code == Errc::aborted));
    CHECK(result.error().what.find("synchronize the streams first") != std::string::npos);
  }
}

TEST_CASE("a function on a stream may finalize") {
  const auto results = on_ranks(2, {}, [](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto sum, Sum32::create(comm));
    float in = 1, out = 0;
    HostStream stream;
    CCL_CHECK(sum(&in, &out, 1, Sum{}, stream));
    stream.enqueue([&] { return comm.finalize(); });
    CCL_CHECK(stream.synchronize());
    return out == 2 ? Result<void>{} : fail(Errc::internal, "wrong");
  });
  check_well(results);
}
