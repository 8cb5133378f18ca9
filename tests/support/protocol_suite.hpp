#pragma once

// Every collective and algorithm of one protocol, over all transports inside a host.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/pat.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>

#include "support/collective_suite.hpp"

namespace ccl::test {

template <class Proto>
void run_protocol_suite() {
  const int ranks = 4;
  Config config;
  config.timeout_s = 60;
  config.memory_budget_bytes = Index{1} << 30;
  for (const auto& transport_table : {
           detail::transport_table<LoopbackTransport>(),
           detail::transport_table<ShmTransport>(),
           detail::transport_table<SocketTransport>(),
       }) {
    chosen = transport_table;
    auto comms = Communicator::create_all(ranks, config);
    INFO((comms ? std::string{} : comms.error().message()));
    REQUIRE(comms.has_value());
    const Index largest = 40'003;  // more than the slots of one wire hold
    int cases = run_suite<Ring, Proto>(*comms, largest);
    cases += run_suite<Tree, Proto>(*comms, largest);
    cases += run_suite<Pairwise, Proto>(*comms, largest);
    cases += run_suite<Pat, Proto>(*comms, largest);
    run_large<AllReduce, Ring, Proto>(*comms);
    run_large<AllReduce, Tree, Proto>(*comms);
    run_large<AllToAll, Pairwise, Proto>(*comms);
    cases += 3;
    WARN(Proto::name << " over " << transport_table.name << ": " << cases << " calls checked");
    on_all(*comms, [](const Communicator& comm) { return comm.finalize(); });
  }
}

}  // namespace ccl::test
