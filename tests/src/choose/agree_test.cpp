#include <ccl/ccl.hpp>

#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;

namespace {

constexpr int ranks = 3;
using Sums = Collective<AllReduce, AutoOf<Candidate<Doubling, Simple>, Candidate<Ring, Simple>>,
                        Auto, LoopbackTransport>;
using Rings = Collective<AllReduce, AutoOf<Candidate<Ring, Simple>>, Auto, LoopbackTransport>;
using Gathers = Collective<AllGather, AutoOf<Candidate<Ring, Simple>>, Auto, LoopbackTransport>;

/// Returns the errors of ranks of which rank 1 creates `Other` and the others `Sums`.
template <class Other>
std::vector<Error> errors_with() {
  const auto comms = Communicator::create_all(ranks);
  REQUIRE(comms);
  std::vector<Error> errors(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto& comm = (*comms)[std::size_t(r)];
      Error& error = errors[std::size_t(r)];
      if (r != 1) {
        const auto made = Sums::create(comm);
        if (!made) error = made.error();
      } else {
        const auto made = Other::create(comm);
        if (!made) error = made.error();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& comm : *comms) CHECK_FALSE(comm.status());
  return errors;
}

bool contains(const Error& error, const std::string& text) {
  return error.what.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("ranks that create different operations by Auto are told which") {
  const auto errors = errors_with<Gathers>();
  for (const Error& error : errors) {
    INFO(error.message());
    CHECK(error.code == Errc::mismatch);
  }
  CHECK(contains(errors[0], "rank 1 creates all_gather where rank 0 creates all_reduce"));
  CHECK(contains(errors[1], "rank 0 creates all_reduce where rank 1 creates all_gather"));
  CHECK(contains(errors[2], "rank 1 creates all_gather where rank 2 creates all_reduce"));
}

TEST_CASE("ranks that choose from different lists are told so") {
  const auto errors = errors_with<Rings>();
  for (const Error& error : errors) {
    INFO(error.message());
    CHECK(error.code == Errc::mismatch);
    CHECK(contains(error, "choose all_reduce from different lists of candidates"));
  }
  CHECK(errors[0].peer == 1);
  CHECK(errors[1].peer == 0);
}
