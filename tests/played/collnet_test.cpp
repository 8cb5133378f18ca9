// Kernels of GPUs of several hosts whose network reduces, by the plug-in that does so in software.
// The GPUs are played on the CPU.
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/collnet_chain.hpp>
#include <ccl/algo/collnet_direct.hpp>
#include <ccl/collective.cuh>
#include <ccl/transport/collnet.hpp>

#include "support/environment.hpp"
#include "support/played/calls.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
Environment software(int devices) {
  return Environment{Environment::Values{{"CCL_COLLNET_ENABLE", "1"},
                                         {"CCL_NET_PLUGIN", CCL_TEST_SOFTWARE_COLLNET},
                                         {"SOFTWARE_COLLNET_IFNAME", "lo"},
                                         {"SOFTWARE_COLLNET_DEVICES", std::to_string(devices)}}};
}
Plan plan_of(int channels, int slots = 4) {
  Plan plan;
  plan.channels = channels;
  plan.slot_count = slots;
  plan.slot_bytes = 4096;
  return plan;
}
}  // namespace

TEST_CASE("all-reduce of GPUs by a network that reduces") {
  played::install(4, 4);
  const auto allowed = software(2);
  auto comms = played::create_ranks(4, 2);
  for (const Index count : {1, 777, 20'000}) {
    played::all_reduces<CollNetChain, Simple, CollNetTransport>(comms, count, plan_of(2));
    played::all_reduces<CollNetDirect, Simple, CollNetTransport>(comms, count, plan_of(1));
  }
}

TEST_CASE("gathers and scatters of GPUs by a network that reduces") {
  played::install(4, 4);
  const auto allowed = software(2);
  auto comms = played::create_ranks(4, 2);
  for (const Index count : {1, 777, 20'000}) {
    played::all_gathers<CollNetDirect, Simple, CollNetTransport>(comms, count, plan_of(2));
    played::reduce_scatters<CollNetDirect, Simple, CollNetTransport>(comms, count, plan_of(1));
    // As many slots as the default has, which are more than the parts of a small message.
    played::all_gathers<CollNetDirect, Simple, CollNetTransport>(comms, count, plan_of(1, 8));
    played::reduce_scatters<CollNetDirect, Simple, CollNetTransport>(comms, count, plan_of(1, 8));
  }
}

TEST_CASE("averages of GPUs are divided when the network's sum comes back") {
  played::install(3, 4);
  const auto allowed = software(1);
  auto comms = played::create_ranks(3, 2);  // hosts of 2 ranks and of 1
  const Index count = 5001;                 // at no multiple of 16 bytes: kernels of any alignment
  played::on_each(comms, [&](const played::Rank& rank) -> std::string {
    const auto made = Collective<AllReduce, CollNetChain, Simple, CollNetTransport>::create(
        rank.comm, plan_of(1));
    if (!made) return made.error().message();
    std::vector<float> in(std::size_t(count) + 1), out(std::size_t(count) + 1);
    for (Index i = 0; i <= count; ++i) in[std::size_t(i)] = float(3 * rank.rank + i);
    for (const int begin : {0, 1}) {
      const auto done = (*made)(in.data() + begin, out.data() + begin, count, Avg{}, rank.stream);
      if (!done) return done.error().message();
      rank.synchronize();
      for (Index i = 0; i < count; ++i) {
        const float is = out[std::size_t(i + begin)], wanted = float(3 + i + begin);
        if (is != wanted) return fmt::format("element {} is {}, not {}", i, is, wanted);
      }
    }
    return {};
  });
}
