// Diagnosis of ranks on GPUs that are played on the CPU: waits that go on, and waits that are over.
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/ring.hpp>
#include <ccl/collective.cuh>
#include <ccl/transport/p2p.hpp>

#include <atomic>
#include <string>
#include <vector>

#include "support/played/calls.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
constexpr Plan small{.channels = 1, .slot_count = 4, .slot_bytes = 32 << 10};

/// Sum that returns when `*go` is true. Other lanes run meanwhile.
struct Hangs {
  const std::atomic<bool>* go;
  float operator()(float a, float b) const {
    while (!*go) played::pause();
    return a + b;
  }
};
}  // namespace

TEST_CASE("a kernel in a functor waits for nobody, also after a wait of its lanes") {
  played::install(2, 4);
  auto comms = played::create_ranks(2);
  std::atomic<bool> go{false}, returns{true};
  played::on_each(comms, [&](const played::Rank& rank) -> std::string {
    const auto sums = Collective<AllReduce, Ring, Simple, P2pTransport>::create(rank.comm, small);
    if (!sums) return sums.error().message();
    bool waited = false, named = false;
    if (rank.rank == 0) {
      // Until the kernel of rank 1 has waited for this rank for long.
      waited = wait_until(
          [&] {
            const Report report = rank.comm.report();
            return report.ranks.size() == 2 && report.ranks[1].waits.peer == 0;
          },
          60);
    }
    std::vector<float> in(1000, 1), out(1000);
    const bool hangs = rank.rank == 1;
    const auto done =
        (*sums)(in.data(), out.data(), 1000, Hangs{hangs ? &go : &returns}, rank.stream);
    if (!done) {
      go = true;
      return done.error().message();
    }
    if (rank.rank == 0) {
      named = waited && wait_until(
                            [&] {
                              const Report report = rank.comm.report();
                              return report.cause == Cause::working && report.behind == 1;
                            },
                            30);
      go = true;
    }
    rank.synchronize();
    if (rank.rank == 0 && !waited) return "rank 1 has not waited";
    if (rank.rank == 0 && !named) return "rank 1 is not named";
    return out[999] == 2 ? "" : "a wrong sum";
  });
}
