#pragma once

// Every collective of one protocol over a network plug-in.
#include <ccl/transport/plugin.hpp>

#include <initializer_list>

#include "support/environment.hpp"
#include "support/net_plug_in.hpp"
#include "support/protocol_suite.hpp"

namespace ccl::test {

/// All collectives over a network plug-in, some calls of each, between these numbers of ranks.
template <class Proto>
void run_protocol_over_plug_in(int version, std::initializer_list<int> numbers) {
  const TestNet net{version};
  const Environment by{"CCL_NET_PLUGIN", net.path()};
  chosen = detail::transport_table<PluginTransport>();
  thoroughness = Thoroughness::sparse;
  int cases = 0;
  for (const int ranks : numbers) {
    Config config;
    config.timeout_s = 60;
    auto comms = Communicator::create_all(ranks, config);
    INFO((comms ? std::string{} : comms.error().message()));
    REQUIRE(comms.has_value());
    const Index largest = 40'003;
    cases += run_suite<Ring, Proto>(*comms, largest);
    cases += run_suite<Tree, Proto>(*comms, largest);
    cases += run_suite<Pairwise, Proto>(*comms, largest);
    cases += run_suite<Pat, Proto>(*comms, largest);
    on_all(*comms, [](const Communicator& comm) { return comm.finalize(); });
  }
  thoroughness = Thoroughness::all;
  WARN(Proto::name << " over version " << version << " of a network plug-in: " << cases
                   << " calls checked");
}

}  // namespace ccl::test
