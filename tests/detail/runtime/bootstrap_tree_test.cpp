// All-gathers of many ranks, which go along a tree.
#include <ccl/detail/runtime/bootstrap.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/bootstrap_ranks.hpp"
#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
constexpr int many = 70;

/// Each rank makes `call`; the errors, by rank.
std::vector<Error> run(const std::function<Result<void>(detail::Bootstrap&)>& call) {
  const Interfaces lo;
  const auto ids = some_ids(1);
  return on_ranks(many, [&](int rank) -> Result<void> {
    CCL_TRY(auto b, detail::Bootstrap::join(ids, rank, many, {30, nullptr, many}));
    return call(*b);
  });
}
}  // namespace

TEST_CASE("many ranks gather, also when one is late") {
  all_ok(run([](detail::Bootstrap& b) -> Result<void> {
    for (int i = 0; i < 3; ++i) {
      if (b.rank() == 11 + i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      CCL_CHECK(gather_works(b));
    }
    std::vector<char> big(std::size_t(many) * 3000, char(b.rank()));
    CCL_CHECK(b.all_gather(big.data(), 3000));
    for (int r = 0; r < many; ++r) EXPECT(big[std::size_t(r) * 3000 + 2999] == char(r));
    CCL_CHECK(b.barrier());
    CCL_TRY(auto half, b.split(b.rank() < 66 ? 0 : 1, 0));
    CCL_CHECK(gather_works(*half));
    CCL_CHECK(half->finalize());
    return b.finalize();
  }));
}

TEST_CASE("a rank among many that gathers something else is named to all") {
  const auto errors = run([](detail::Bootstrap& b) -> Result<void> {
    std::vector<int> all(many);
    return b.all_gather(all.data(), sizeof(int), {},
                        {b.rank() == 57 ? "the creation of" : "a call of", "Ring"});
  });
  for (const Error& e : errors) {
    INFO(e.message());
    CHECK(e.code == Errc::mismatch);
    CHECK(e.what.find("rank 57 is in the creation of Ring where rank ") != std::string::npos);
  }
}

TEST_CASE("a rank among many that gives parts of another size is named to all") {
  const auto errors = run([](detail::Bootstrap& b) -> Result<void> {
    std::vector<int> all(2 * many);
    return b.all_gather(all.data(), b.rank() == 57 ? 8 : 4);
  });
  for (const Error& e : errors) {
    INFO(e.message());
    CHECK(e.code == Errc::mismatch);
    CHECK(e.what.find("rank 57 gave 8 bytes to all_gather, rank ") != std::string::npos);
  }
}

TEST_CASE("many ranks gather, also if the calls of some have no limit") {
  for (const int without : {-1, 3}) {
    all_ok(run([=](detail::Bootstrap& b) -> Result<void> {
      const double limit_s = b.rank() == without ? 0 : 20;
      CCL_CHECK(b.share_call_limit(limit_s));
      std::vector<int> all(many, -1);
      for (int i = 0; i < 2; ++i) {
        all[std::size_t(b.rank())] = b.rank();
        CCL_CHECK(b.all_gather(all.data(), sizeof(int), limit_s));
        for (int r = 0; r < many; ++r) EXPECT(all[std::size_t(r)] == r);
        std::fill(all.begin(), all.end(), -1);
      }
      return b.finalize();
    }));
  }
}

TEST_CASE("a rank among many that does not come is named when the limit has passed") {
  const auto errors = run([](detail::Bootstrap& b) -> Result<void> {
    std::vector<int> all(many);
    CCL_CHECK(b.share_call_limit(3.0));
    CCL_CHECK(b.barrier());  // all begin at once, so that their limits pass in the tree's order
    if (b.rank() != 57) {
      const auto done = b.all_gather(all.data(), sizeof(int), 3.0);
      if (!done) b.abort(done.error());  // as a communicator does
      return done;
    }
    while (b.status().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return b.status().result();
  });
  for (const Error& e : errors) {
    INFO(e.message());
    CHECK(e.code != Errc::ok);
    CHECK(e.message().find("rank 57") != std::string::npos);
  }
}
