// Plans of ranks whose settings differ: the error names what differs, on all ranks.

#include <string>
#include <thread>
#include <vector>

#include "support/calls/rings.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

/// Errors of ranks that differ in their limits of channels, where rank 1 has those of `other`.
std::vector<std::string> errors_of(const Config& other) {
  constexpr int ranks = 3;
  const auto id = create_unique_id();
  REQUIRE(id);
  std::vector<std::string> errors(ranks, "no error");
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      Config config = r == 1 ? other : Config{};
      config.device = Config::cpu;
      const auto comm = Communicator::create(*id, r, ranks, config);
      if (!comm) return;
      const auto sums = RingSums::create(*comm, Via::loopback, Plan{2, 8, 256});
      if (!sums && sums.error().code == Errc::mismatch) {
        errors[std::size_t(r)] = sums.error().message();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

bool contains(const std::string& text, const char* words) {
  return text.find(words) != text.npos;
}

}  // namespace

TEST_CASE("plans that differ by a limit of channels name the limit on all ranks") {
  Config many, one;
  many.min_channels = 7;
  one.max_channels = 1;
  const auto least = errors_of(many), most = errors_of(one);
  for (const std::size_t r : {0, 2}) {
    INFO(least[r] << "\n" << most[r]);
    const std::string own = std::to_string(r);
    CHECK(contains(least[r], ("(CCL_MIN_CTAS or Config::min_channels is 7 on rank 1 and not set on "
                              "rank " +
                              own + ")")
                                 .c_str()));
    CHECK(contains(most[r], ("(CCL_MAX_CTAS or Config::max_channels is 1 on rank 1 and not set on "
                             "rank " +
                             own + ")")
                                .c_str()));
  }
  INFO(least[1]);
  CHECK(contains(least[1], "is not set on rank 0 and 7 on rank 1)"));
}
