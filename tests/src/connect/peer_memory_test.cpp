// Algorithms over peers' memory among emulated GPUs (FakeGpus).
#include <ccl/algo/copy_engine.hpp>
#include <ccl/algo/one_shot.hpp>
#include <ccl/collective/all_gather.hpp>
#include <ccl/collective/all_reduce.hpp>
#include <ccl/collective/fused.hpp>
#include <ccl/epilogue/add_rms_norm.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>

#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/gpu_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
/// Little scratch: ccl's own of 72 ranks takes gigabytes.
constexpr Plan little{.channels = 1, .slot_count = 2, .slot_bytes = 64 << 10};

/// A list of the program's own, without a kernel for more ranks than are unrolled.
struct OfEight : OneShot {
  using RankCounts = ccl::RankCounts<8>;
};

/// Results of `create(comm)` on a thread for each rank.
template <class F>
std::vector<Result<void>> on_all(std::vector<Result<Communicator>>& comms, F create) {
  std::vector<Result<void>> made(comms.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < comms.size(); ++r) {
    threads.emplace_back(
        [&, r] { made[r] = comms[r] ? create(*comms[r]) : Result<void>{fail(comms[r].error())}; });
  }
  for (auto& thread : threads) thread.join();
  return made;
}
template <class Op, class Algo, class Proto>
std::vector<Result<void>> create_all(std::vector<Result<Communicator>>& comms) {
  return on_all(comms, [](const Communicator& comm) -> Result<void> {
    auto one = Collective<Op, Algo, Proto, DefaultTransport>::create(comm, little);
    if (!one) return fail(std::move(one).error());
    return {};
  });
}
template <class Proto>
std::vector<Result<void>> create_one_shot(std::vector<Result<Communicator>>& comms) {
  return create_all<AllReduce, OneShot, Proto>(comms);
}
/// Rank r on device 5 + r.
std::vector<Result<Communicator>> create_on(int ranks) {
  std::vector<int> devices;
  for (int g = 0; g < ranks; ++g) devices.push_back(5 + g);
  return create(devices);
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
  gpus(80);
  for (const int ranks : {2, 3, 4, 5, 6, 7, 8, 9, 16, 17}) {
    auto comms = create_on(ranks);
    for (const auto& made : create_one_shot<LL128>(comms)) {
      INFO(ranks << " ranks: " << (made ? std::string{} : made.error().message()));
      CHECK(made);
    }
  }
  const Environment no_trials{"CCL_P2P_CHECK", "0"};  // of each path between two GPUs
  for (const int ranks : {max_view_ranks, max_view_ranks + 1}) {
    auto comms = create_on(ranks);
    for (const auto& made : create_one_shot<LL128>(comms)) {
      INFO(ranks << " ranks: " << (made ? std::string{} : made.error().message()));
      CHECK(bool(made) == (ranks <= max_view_ranks));
      if (ranks <= max_view_ranks) continue;
      CHECK(made.error().code == Errc::not_supported);
      CHECK(mentions(made.error().what, "no kernels for 73 ranks"));
      CHECK(mentions(made.error().what, "at most 72"));
    }
  }
}

TEST_CASE("fused kernels are refused at creation for more ranks than are unrolled") {
  gpus(80);
  using OneHop = Fused<AsIs<float>, Collective<AllReduce, OneShot, LL128, DefaultTransport>,
                       AddRmsNorm<float>>;
  for (const int ranks : {8, 9}) {
    auto comms = create_on(ranks);
    for (const auto& made : on_all(comms, [](const Communicator& comm) -> Result<void> {
           auto one = OneHop::create(comm, little);
           if (!one) return fail(std::move(one).error());
           return {};
         })) {
      INFO(ranks << " ranks: " << (made ? std::string{} : made.error().message()));
      CHECK(bool(made) == (ranks == 8));
      if (made) continue;
      CHECK(made.error().code == Errc::not_supported);
      CHECK(mentions(made.error().what, "at most 8"));
    }
  }
}

TEST_CASE("copy engines and lists of the program's own say which ranks they have kernels for") {
  gpus(80);
  auto comms = create_on(9);
  for (const auto& made : create_all<AllGather, CopyEngine, Simple>(comms)) {
    REQUIRE(!made);
    CHECK(made.error().code == Errc::not_supported);
    CHECK(mentions(made.error().what, "no kernels for 9 ranks"));
    CHECK(mentions(made.error().what, "at most 8"));
  }
  for (const auto& made : create_all<AllReduce, OfEight, LL>(comms)) {
    REQUIRE(!made);
    CHECK(mentions(made.error().what, "list that number in its RankCounts"));
  }
}
