#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/detail/runtime/plans.hpp>
#include <ccl/detail/runtime/transport_table.hpp>

#include <string>

namespace ccl::detail {

class Connections;

/// Description of a composition that a rank is about to create.
struct PlanRequest {
  const std::string& name;
  const TransportTable& transport_table;
  int fan = 1;                      // maximum number of wires in, or out, of a rank
  bool connects_on_demand = false;  // wires between pairs may wait for the first call
  bool has_network = false;         // a network that reduces has wires, too
  double idle_s = 0;                // seconds without a call after which they close; 0: never
};

/// Plan of a composition that all ranks agree on.
struct AgreedPlan {
  Plan plan;
  int fan = 1;               // maximum number of wires whose slots lie in this rank's memory
  bool holds_slots = false;  // some of these slots lie in GPU memory
  bool connects_on_demand = false;
  double idle_s = 0;  // the longest of any rank; 0 if one rank has 0
};

/// Chooses one of `wanted`, with slots that fit into all ranks' memory budgets. Collective: all
/// ranks get the same plan, or all fail.
Result<AgreedPlan> agree_on_plan(const Communicator& comm, const Result<Plans>& wanted,
                                 const PlanRequest& request);

/// Bytes of all slots of `wires` wires on each channel.
inline Index slot_memory(const Plan& plan, int wires) {
  return plan.slot_bytes * plan.slot_count * plan.channels * wires;
}

/// Bytes that one composition may take of a communicator's budget: half of a budget that was given,
/// and a sixteenth of the default one, so that many compositions fit.
inline Index part_of_budget(Index budget, bool given) {
  return given ? budget / 2 : budget / 16;
}

/// Turns an error of one rank into an error of all ranks that names it. Collective.
Result<void> agree_on_result(const Connections& connections, const Result<void>& mine);

}  // namespace ccl::detail
