// Algorithms over peers' memory among emulated GPUs (FakeGpus).
#include <ccl/algo/one_shot.hpp>
#include <ccl/collective/all_reduce.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>

#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/gpu_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
template <class Proto>
std::vector<Result<void>> create_one_shot(std::vector<Result<Communicator>>& comms) {
  std::vector<Result<void>> made(comms.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < comms.size(); ++r) {
    threads.emplace_back([&, r] {
      if (!comms[r]) return;
      auto one = Collective<AllReduce, OneShot, Proto, DefaultTransport>::create(*comms[r]);
      if (!one) made[r] = fail(std::move(one).error());
    });
  }
  for (auto& thread : threads) thread.join();
  return made;
}
}  // namespace

TEST_CASE("a protocol of whole lines is refused where lines may tear, as over wires") {
  FakeGpus& all = gpus();
  all.link(0, 1, {true, false, FakePath::well});  // PCIe
  auto comms = create({0, 1, 2});
  for (const auto& comm : comms) REQUIRE(comm);
  const auto refused = create_one_shot<LL128>(comms);
  for (const std::size_t r : {0u, 1u}) {
    REQUIRE(!refused[r]);
    const Error& error = refused[r].error();
    CHECK(error.code == Errc::not_supported);
    CHECK(error.peer == int(1 - r));
    CHECK(error.transport == "p2p");
    CHECK(mentions(error.what, "needs lines of 128 bytes that land whole"));
    CHECK(mentions(error.what, "use Simple or LL"));
  }
  REQUIRE(!refused[2]);  // its own edges are well, and its peers have none
  for (const auto& made : create_one_shot<LL>(comms)) {
    INFO((made ? std::string{} : made.error().message()));
    CHECK(made);
  }
}

TEST_CASE("a protocol of whole lines is taken over NVLink") {
  gpus();
  auto comms = create({3, 4});
  for (const auto& made : create_one_shot<LL128>(comms)) {
    INFO((made ? std::string{} : made.error().message()));
    CHECK(made);
  }
}

TEST_CASE("every number of ranks of a peer view is taken, and none above") {
  gpus();
  for (int ranks = 2; ranks <= max_view_ranks + 1; ++ranks) {
    std::vector<int> devices;
    for (int g = 0; g < ranks; ++g) devices.push_back(5 + g);
    auto comms = create(devices);
    for (const auto& made : create_one_shot<LL128>(comms)) {
      INFO(ranks << " ranks");
      CHECK(bool(made) == (ranks <= max_view_ranks));
      if (ranks <= max_view_ranks) continue;
      CHECK(made.error().code == Errc::not_supported);
      CHECK(mentions(made.error().what, "no kernels for 9 ranks"));
    }
  }
}
