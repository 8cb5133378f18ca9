// Peer views and windows of more ranks than have kernels of their own: of the hosts of one NVLink
// domain, into mapped buffers, and in groups. The GPUs are played on the CPU.
#define CCL_PLAYED_WARP 2  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/copy_engine.hpp>
#include <ccl/algo/direct.hpp>
#include <ccl/algo/one_shot.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/algo/two_shot.hpp>
#include <ccl/choose/peer_candidates.hpp>
#include <ccl/collective.cuh>
#include <ccl/comm/window.hpp>
#include <ccl/detail/choose/facts.hpp>
#include <ccl/detail/group/list_kernels.cuh>
#include <ccl/group.hpp>
#include <ccl/transport/p2p.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>

#include "support/error_matchers.hpp"
#include "support/log_of.hpp"
#include "support/played/wide.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Ways = P2pTransport;
constexpr Plan plan = played::wide_plan;

/// Peers read what each rank wrote to its part of a window.
std::string reads_parts(const played::Rank& rank) {
  const auto memory = SharedMemory::allocate(rank.comm, 4096);
  if (!memory) return memory.error().message();
  auto window = Window::create(rank.comm, *memory);
  if (!window) return window.error().message();
  window->of<int>(rank.rank)[1] = 1000 + rank.rank;
  if (const auto all = rank.comm.barrier(); !all) return all.error().message();
  for (int p = 0; p < rank.ranks; ++p) {
    if (window->of<int>(p)[1] != 1000 + p) return fmt::format("the part of rank {}", p);
  }
  const auto closed = window->close();
  return closed ? std::string{} : closed.error().message();
}

/// Exchanges between buffers in a window, each call with other data. Peers map the buffers after
/// the first calls.
template <class Op>
std::string exchanges_in_window(const played::Rank& rank, Index count) {
  constexpr bool gathers = std::is_same_v<Op, AllGather>;
  const Index all = count * rank.ranks;
  const auto memory = SharedMemory::allocate(rank.comm, 2 * all * Index{sizeof(float)});
  if (!memory) return memory.error().message();
  const auto window = Window::create(rank.comm, *memory);
  if (!window) return window.error().message();
  float *const in = window->template of<float>(rank.rank).data(), *const out = in + all;
  const auto made = Collective<Op, Direct, Simple, Ways>::create(rank.comm, plan);
  if (!made) return made.error().message();
  for (int call = 0; call < 4; ++call) {
    for (Index i = 0; i < all; ++i) in[i] = played::element(rank.rank, call, i);
    std::fill(out, out + all, -1.f);
    const auto done = (*made)(in, out, count, rank.stream);
    if (!done) return done.error().message();
    rank.synchronize();
    for (Index i = 0; i < all; ++i) {
      const Index at = (gathers ? 0 : rank.rank * count) + i % count;
      if (out[i] != played::element(int(i / count), call, at)) {
        return fmt::format("element {} of call {}", i, call);
      }
    }
    if (call == 1) std::this_thread::sleep_for(std::chrono::seconds{2});  // while peers map
    if (const auto here = rank.comm.barrier(); !here) return here.error().message();
  }
  return {};
}
int count_of(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}
}  // namespace

TEST_CASE("collectives over peer memory are right among the hosts of an NVLink domain") {
  for (const int ranks : {16, 72}) {
    auto comms = played::wide_ranks(ranks, 4);
    for (const Index count : played::wide_counts(ranks)) {
      const int calls = 2;
      played::all_reduces<OneShot, LL, Ways>(comms, count, plan, calls);
      played::all_reduces<detail::TwoShotOfMany, LL, Ways>(comms, 8 * count, plan, calls);
      played::all_reduces<Direct, Simple, Ways>(comms, ranks * count, plan, calls);
      played::reduces<Direct, Simple, Ways>(comms, ranks * count, 3, plan, calls);
      played::all_gathers<OneShot, LL, Ways>(comms, count, plan, calls);
      played::all_gathers<Direct, Simple, Ways>(comms, count, plan, calls);
      played::all_to_alls<Direct, Simple, Ways>(comms, count, plan, calls);
      played::send_recvs<Direct, Simple, Ways>(comms, count, plan, calls, 5);
    }
  }
}

TEST_CASE("what does not reach across the hosts of a domain is refused by name") {
  auto comms = played::wide_ranks(6, 3);
  const auto lines = played::problems_on(comms, [](const played::Rank& rank) {
    return played::failure_of(Collective<AllReduce, OneShot, LL128, Ways>::create(rank.comm, plan));
  });
  const auto copies = played::problems_on(comms, [](const played::Rank& rank) {
    return played::failure_of(
        Collective<AllGather, CopyEngine, Simple, Ways>::create(rank.comm, plan));
  });
  for (const std::string& what : lines) CHECK(mentions(what, "lines of 128 bytes"));
  for (const std::string& what : copies) {
    CHECK(mentions(what, "signals through memory of one host"));
    CHECK(mentions(what, "2 hosts"));
  }
}

TEST_CASE("legacy memory makes no window across hosts, which is said on all ranks") {
  auto comms = played::wide_ranks(6, 3);
  const auto problems = played::problems_on(comms, [](const played::Rank& rank) -> std::string {
    const detail::CudaDriver& cuda = **detail::cuda_driver();
    CUdeviceptr at = 0;
    if (cuda.mem_alloc(&at, 4 << 20) != CUDA_SUCCESS) return "no memory";
    void* const data = reinterpret_cast<void*>(at);
    const auto window = Window::create(rank.comm, data, 4 << 20);
    const bool refused = !window && window.error().code == Errc::not_supported;
    const std::string what = refused ? window.error().what : "not refused";
    (void)cuda.mem_free(at);
    return what;
  });
  int why = 0;
  for (const std::string& what : problems) {
    CHECK(what != "not refused");
    why += int(mentions(what, "give a window SharedMemory"));
  }
  CHECK(why > 0);
}

TEST_CASE(
    "scratch without a tile for each rank is an error of the call, which leaves the ranks well") {
  auto comms = played::wide_ranks(9);
  played::on_each(comms, [](const played::Rank& rank) -> std::string {
    const Plan tiny{.channels = 1, .slot_count = 2, .slot_bytes = 512};
    const auto made = Collective<AllReduce, TwoShot, LL, Ways>::create(rank.comm, tiny);
    if (!made) return made.error().message();
    std::vector<float> in(100, 1.f), out(100);
    const auto done = (*made)(in.data(), out.data(), 100, Sum{}, rank.stream);
    if (done || done.error().code == Errc::cuda) return "not refused as too small";
    const auto well = Collective<AllReduce, TwoShot, LL, Ways>::create(rank.comm, plan);
    return well ? played::all_reduce(rank, *well, 100, 1) : well.error().message();
  });
}

TEST_CASE("Auto takes packets of words among the hosts of a domain, and then Direct") {
  auto comms = played::wide_ranks(16, 4);
  played::on_each(comms, [](const played::Rank& rank) -> std::string {
    static const auto facts = [] {
      const auto of = []<class... Cs>(Candidates<Cs...>) {
        return std::array{detail::facts_of<AllReduce, Cs, DefaultTransport>()...};
      };
      return of(Candidates<detail::OneShotOfWords, detail::TwoShotOfWords,
                           Candidate<Direct, Simple>, Candidate<Tree, Simple>>{});
    }();
    const auto made = detail::Chooser::create(rank.comm, {AllReduce::name, facts, false, true});
    if (!made) return made.error().message();
    if (made->path() != detail::Path::nvlink) return "not over NVLink";
    if (made->pick(256) != 0) return "not OneShot/LL for 256 bytes";
    if (made->pick(16 << 10) != 1) return "not TwoShot/LL for 16 KiB";
    return made->pick(512 << 10) == 2 ? "" : "not Direct/Simple for 512 KiB";
  });
}

TEST_CASE("windows are of all ranks of a host and of a domain") {
  for (const int per_host : {0, 4}) {
    INFO(per_host << " GPUs of a host");
    auto comms = played::wide_ranks(per_host == 0 ? 17 : 72, per_host);
    played::on_each(comms, reads_parts);
  }
}

TEST_CASE("Direct stores into the mapped buffers of more ranks than are unrolled") {
  constexpr int ranks = 12;
  auto comms = played::wide_ranks(ranks);
  const std::string log = log_of([&] {
    played::on_each(comms, [](const played::Rank& rank) {
      const std::string wrong = exchanges_in_window<AllGather>(rank, 3000);
      return wrong.empty() ? exchanges_in_window<AllToAll>(rank, 3000) : wrong;
    });
  });
  CHECK(count_of(log, "mapped ") >= 2 * ranks * (ranks - 1));
}

TEST_CASE("calls over a larger peer view are launches of their own in a group") {
  auto comms = played::wide_ranks(9);
  played::on_each(comms, [](const played::Rank& rank) -> std::string {
    const auto one = Collective<AllReduce, OneShot, LL, Ways>::create(rank.comm, plan);
    const auto tree = Collective<AllReduce, Tree, LL, Ways>::create(rank.comm, plan);
    const auto sends = Collective<AllGather, Direct, Simple, Ways>::create(rank.comm, plan);
    if (!one || !tree || !sends) return "not created";
    const Index count = 500;
    played::Buffers a{rank.rank, 1, count, count}, b{rank.rank, 1, count, count};
    played::Buffers c{rank.rank, 1, count, count * rank.ranks};
    for (int turn = 0; turn < 3; ++turn) {
      const auto done = group(rank.stream, one->bind(a.in[0].data(), a.out[0].data(), count, Sum{}),
                              tree->bind(b.in[0].data(), b.out[0].data(), count, Sum{}),
                              sends->bind(c.in[0].data(), c.out[0].data(), count));
      if (!done) return done.error().message();
    }
    rank.synchronize();
    const auto sum = [&](int call, Index i) {
      return played::sum_of_elements(rank.ranks, call, i);
    };
    const auto gathered = [&](int call, Index i) {
      return played::element(int(i / count), call, i % count);
    };
    return a.wrong(sum) + b.wrong(sum) + c.wrong(gathered);
  });
}
