// Choices of `Auto` among emulated GPUs (FakeGpus).
#include <ccl/auto.hpp>
#include <ccl/detail/choose/chooser.hpp>

#include <array>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/fake_multicast.hpp"
#include "support/gpu_ranks.hpp"

using namespace ccl;
using namespace ccl::test;
using detail::CallConstraints;
using detail::CandidateFacts;
using detail::Chooser;

namespace {

template <class Op, class... Cs>
auto facts_in(Candidates<Cs...>) {
  return std::array<CandidateFacts, sizeof...(Cs)>{detail::facts_of<Op, Cs, DefaultTransport>()...};
}
/// Candidates of ccl's list for an operation.
template <class Op>
const auto& all_facts() {
  static const auto facts = facts_in<Op>(typename detail::DefaultCandidates<Op>::List{});
  return facts;
}

/// Choices among so many GPUs from ccl's list. `nvlink`: of all pairs; else all have PCIe.
template <class Op = AllReduce>
Chooser among(int gpu_count, bool nvlink = true, bool deterministic = false,
              std::span<const CandidateFacts> facts = all_facts<Op>()) {
  std::vector<int> devices;
  const int first = nvlink ? 0 : 100;  // a pair's path is remembered
  for (int g = 0; g < gpu_count; ++g) devices.push_back(first + g);
  FakeGpus& all = gpus(first + gpu_count);
  for (const int a : devices) {
    all.multiprocessors[a] = 132;
    for (const int b : devices) {
      if (a < b) all.link(a, b, {true, nvlink, FakePath::well});
    }
  }
  auto comms = create(devices);
  std::vector<Result<Chooser>> made(comms.size(), fail(Errc::internal, "not created"));
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < comms.size(); ++r) {
    threads.emplace_back([&, r] {
      if (comms[r]) made[r] = Chooser::create(*comms[r], {Op::name, facts, deterministic, true});
    });
  }
  for (auto& thread : threads) thread.join();
  for (std::size_t r = 0; r < comms.size(); ++r) {
    INFO((comms[r] ? made[r] ? std::string{} : made[r].error().message()
                   : comms[r].error().message()));
    REQUIRE(made[r]);
    REQUIRE(made[r]->kept() == made[0]->kept());
  }
  return *made[0];
}
template <class Op = AllReduce>
std::string picked(const Chooser& chooser, Index bytes, const CallConstraints& demands = {}) {
  const int at = chooser.pick(bytes, demands);
  REQUIRE(at >= 0);
  return all_facts<Op>()[std::size_t(at)].name();
}

}  // namespace

TEST_CASE("among 8 GPUs sums of floats of some megabytes go without flags, other reductions not") {
  const Environment all_blocks{"CCL_MAX_CTAS", "128"};  // as in the measurements
  const Chooser chooser = among(8);
  CallConstraints any_elements, scaled;
  any_elements.any_elements = true;
  scaled.any_reduction = true;
  CHECK(picked(chooser, 1024) == "OneShot/LL128");
  CHECK(picked(chooser, 256 << 10) == "TwoShot/LL128");
  for (const Index mib : {1, 4, 16}) {
    CHECK(picked(chooser, mib << 20) == "TwoShot/Sentinel");
    CHECK(picked(chooser, mib << 20, scaled) == "TwoShot/Sentinel");
    CHECK(picked(chooser, mib << 20, any_elements) == "TwoShot/LL128");
  }
  CHECK(picked(chooser, Index{1} << 30) == "Ring/Simple");
}

TEST_CASE("among fewer GPUs, where nobody has measured that, they have flags") {
  for (const int ranks : {2, 3, 4, 5, 6, 7}) {
    INFO(ranks << " ranks");
    const Chooser chooser = among(ranks);
    CHECK(picked(chooser, 256) == "OneShot/LL128");
    if (ranks > 2) CHECK(picked(chooser, 1 << 20) == "TwoShot/LL128");
    for (Index bytes = 256; bytes <= Index{1} << 30; bytes *= 2) {
      CHECK(picked(chooser, bytes) != "TwoShot/Sentinel");
    }
  }
}

TEST_CASE("among 9 to 72 GPUs of an NVLink domain, peers address each other as among 8") {
  const Environment no_trials{"CCL_P2P_CHECK", "0"};  // of each path between two GPUs
  for (const int ranks : {9, 16, 17, max_view_ranks}) {
    INFO(ranks << " ranks");
    const Chooser chooser = among(ranks);
    CHECK(picked(chooser, 256) == "OneShot/LL");
    CHECK(picked(chooser, 64 << 10) == "TwoShot/LL");
    CHECK(picked<AllToAll>(among<AllToAll>(ranks), 64 << 20) == "Direct/Simple");
    const Choice small = chooser.explain(256, chooser.pick(256, {}), {});
    CHECK(small.composition == "OneShot/LL");
    // One hop and a batch of tiles at a time, which every batch of 8 ranks makes longer.
    CHECK(small.us > among(8).explain(256, 0, {}).us);
  }
}

TEST_CASE("more GPUs than a peer view holds go by wires, and why is said") {
  const Environment no_trials{"CCL_P2P_CHECK", "0"};
  const Chooser chooser = among(max_view_ranks + 1);
  for (Index bytes = 256; bytes <= Index{1} << 30; bytes *= 4) {
    const std::string composition = picked(chooser, bytes);
    CHECK(composition.find("Shot") == std::string::npos);
    CHECK(composition.find("Direct") == std::string::npos);
  }
  const Choice choice = chooser.explain(256, chooser.pick(256), {});
  CHECK(choice.why.find("a peer view has at most 72 ranks") != std::string::npos);
}

TEST_CASE("over PCIe, where lines may tear, few bytes go by one-shot with words") {
  for (const int ranks : {2, 3, 4, 8}) {
    INFO(ranks << " ranks");
    const Chooser chooser = among(ranks, false);
    CHECK(chooser.path() == detail::Path::pcie);
    CHECK(picked(chooser, 256) == "OneShot/LL");
    for (Index bytes = 256; bytes <= Index{1} << 30; bytes *= 2) {
      const std::string composition = picked(chooser, bytes);
      CHECK(composition.find("LL128") == std::string::npos);
    }
  }
}

TEST_CASE("over NVLink one-shot with words is never taken") {
  const Chooser chooser = among(4);
  for (Index bytes = 1; bytes <= Index{1} << 30; bytes *= 2) {
    CHECK(picked(chooser, bytes) != "OneShot/LL");
  }
}

TEST_CASE("over PCIe one order of sums is one that suits all sizes") {
  const Chooser chooser = among<ReduceScatter>(4, false, true);
  for (Index bytes = 256; bytes <= Index{1} << 30; bytes *= 2) {
    CHECK(picked<ReduceScatter>(chooser, bytes).find("Ring") == 0);
  }
  CHECK(picked<ReduceScatter>(among<ReduceScatter>(4, true, true), 256) == "OneShot/LL128");
}

TEST_CASE("a candidate that is dropped is not picked again, and repeated picks are equal") {
  Chooser chooser = among(4);
  for (int round = 0; round < 2; ++round) {
    for (Index bytes = 1; bytes <= Index{1} << 30; bytes *= 8) {
      const Chooser fresh = chooser;  // a copy has kept no picks
      CHECK(chooser.pick(bytes) == fresh.pick(bytes));
      CHECK(chooser.pick(bytes, {.any_reduction = true}) ==
            fresh.pick(bytes, {.any_reduction = true}));
    }
  }
  const int small = chooser.pick(1);
  REQUIRE(chooser.drop(small, {Errc::internal, "a test drops it"}));
  CHECK(chooser.pick(1) != small);
  CHECK(chooser.pick(1) >= 0);
}

namespace {
/// The program has code for switches, as <ccl/nvls.cuh> has it say.
struct SwitchCode {
  SwitchCode() { detail::program_has_switch_code = true; }
  ~SwitchCode() { detail::program_has_switch_code = false; }
};
}  // namespace

TEST_CASE("sums go by switches where they pay, if the setting and the program allow it") {
  FakeMulticast& fake = FakeMulticast::install();
  const Environment all_blocks{"CCL_MAX_CTAS", "128"};
  CHECK(picked(among(8), Index{1} << 28) != "NVLS/Simple");
  {
    const SwitchCode code;
    CHECK(picked(among(8), Index{1} << 28) != "NVLS/Simple");
    const Environment of_nccl{"NCCL_NVLS_ENABLE", "1"};
    CHECK(picked(among(8), Index{1} << 28) != "NVLS/Simple");
  }
  const Environment setting{"CCL_NVLS_ENABLE", "1"};
  CHECK(picked(among(8), Index{1} << 28) != "NVLS/Simple");
  const SwitchCode code;
  const Chooser chooser = among(8);
  CHECK(picked(chooser, Index{1} << 28) == "NVLS/Simple");
  CHECK(picked(chooser, 64) != "NVLS/Simple");
  CallConstraints product;
  product.no_switch = true;
  CHECK(picked(chooser, Index{1} << 28, product) != "NVLS/Simple");
  CHECK(picked(among(2), Index{1} << 28) != "NVLS/Simple");
  CHECK(picked(among(8, true, true), Index{1} << 28) != "NVLS/Simple");
  const Environment excluded{"CCL_TRANSPORT", "^nvls"};
  CHECK(picked(among(8), Index{1} << 28) != "NVLS/Simple");
  CHECK(fake.so_far().empty());  // a choice calls no function of multicast
}

TEST_CASE("candidates for switches alone are not taken where a transport emulates them") {
  FakeMulticast::install();
  const Environment setting{"CCL_NVLS_ENABLE", "1"};
  const SwitchCode code;
  using Emulated = AnyOf<EmulatedNvlsTransport, P2pTransport>;
  using Wires = OnGpus<Candidate<Ring, Simple>>;
  const auto facts = std::array{detail::facts_of<AllReduce, detail::Switches, Emulated>(),
                                detail::facts_of<AllReduce, Wires, Emulated>()};
  REQUIRE(facts[0].multicast == MulticastKind::emulated);
  const Chooser chooser = among(3, true, false, facts);
  CHECK_FALSE(chooser.usable(0));
  CHECK(chooser.usable(1));
}

TEST_CASE(
    "if ranks can run no common candidate, all of them say which rank refuses what, and why") {
  Config config;
  config.device = Config::cpu;
  const auto comms = Communicator::create_all(3, config);
  REQUIRE(comms);
  std::vector<std::string> errors(3);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      auto facts =
          std::array{detail::facts_of<AllReduce, Candidate<Ring, Simple>, DefaultTransport>(),
                     detail::facts_of<AllReduce, Candidate<Tree, Simple>, DefaultTransport>()};
      if (r == 1) facts[0].on_cpus = facts[1].on_cpus = false;
      const auto made = Chooser::create((*comms)[r], {"all_reduce", facts, false, true});
      if (made) return;
      errors[r] = made.error().message();
      if (r != 1 && (made.error().code != Errc::mismatch || made.error().peer != 1)) {
        errors[r] = "another error: " + errors[r];
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const std::size_t r : {0, 2}) {
    INFO(errors[r]);
    CHECK(errors[r].find("all_reduce has no candidate left (Ring/Simple, Tree/Simple: rank 1 "
                         "cannot run it (it says of Ring/Simple: for GPUs only)); give all ranks "
                         "the same settings and networks") != std::string::npos);
  }
  INFO(errors[1]);
  CHECK(errors[1].find("(Ring/Simple, Tree/Simple: for GPUs only)") != std::string::npos);
}
