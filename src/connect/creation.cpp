#include <ccl/detail/base/selection.hpp>
#include <ccl/detail/compose/creation.hpp>
#include <ccl/detail/copy/stream_copies.hpp>
#include <ccl/detail/launch/arguments.hpp>
#include <ccl/detail/launch/errors.hpp>

#include <fmt/format.h>

#include <string>
#include <utility>

#include "comm/state.hpp"
#include "connect/agreement.hpp"

namespace ccl::detail {

namespace {
/// Loads the kernels into the GPU's own context, where they run: the thread may have another one.
Result<void> load_kernels(const Composed& of, const Connections& connections) {
  const Gpu::Current current{*Access::state(connections.comm())->device.gpu};
  const auto load = [&](int (*kernels)(int device)) -> Result<void> {
    const int code = kernels == nullptr ? 0 : kernels(connections.comm().device());
    if (code == 0) return {};
    return fail(cuda_failed(connections, code));
  };
  for (const KernelLoader* l = *of.kernels; l != nullptr; l = l->next) CCL_CHECK(load(l->load));
  for (const auto* kernels : of.loads) CCL_CHECK(load(*kernels));
  return {};
}

Result<void> make_wires(const Composed& of, Connections& connections, bool late) {
  const auto prepare = [&]() -> Result<void> {
    if (connections.comm().device() < 0) return {};
    CCL_CHECK(connections.reserve());
    return load_kernels(of, connections);
  };
  const Result<void> ready = prepare();
  if (connections.comm().ranks() == 1) return ready;
  if (of.positions.by_root || late) return agree_on_result(connections, ready);
  if (of.needs.exchanges && connections.connects_on_demand())
    return connections.connect_on_demand(ready);
  if (of.needs.network_heads == 0) return connect_positions(connections, of.positions, 0, ready);
  CCL_CHECK(connections.join_network(ready));
  CCL_CHECK(connect_positions(connections, of.positions, 0));
  return connections.connect_network();
}

Result<void> make_peers(const Composed& of, Connections& connections) {
  if (connections.comm().ranks() == 1) {
    return connections.comm().device() < 0 ? Result<void>{} : load_kernels(of, connections);
  }
  const bool multicasts = of.multicast != MulticastKind::none;
  const auto prepare = [&]() -> Result<void> {
    const bool on_cpus = connections.comm().device() < 0;
    if (on_cpus && !multicasts) return fail(no_peer_view(connections));
    if (!of.takes_ranks(connections.comm().ranks())) {
      return fail(too_many_for_peer_view(connections, of.max_ranks));
    }
    if (on_cpus) return {};
    if (of.copies && Access::state(connections.comm())->identity.hosts() > 1) {
      return fail(copies_across_hosts(connections));
    }
    return load_kernels(of, connections);
  };
  if (multicasts) {
    PeerMemory& memory = connections.peer_memory();
    CCL_CHECK(memory.map_multicast(of.multicast, prepare()));
    return of.binds_windows ? memory.bind_windows() : Result<void>{};
  }
  CCL_CHECK(connections.peer_memory().map(prepare()));
  if (of.copies) CCL_CHECK(StreamCopies{connections}.open_branch(of.pulls));
  if (of.by_stream) CCL_CHECK(StreamCopies{connections}.open_signals());
  if (of.stores_plainly) CCL_CHECK(connections.peer_memory().open_registry());
  return {};
}
}  // namespace

Result<std::shared_ptr<Connections>> make_connections(const Composed& of, const Communicator& comm,
                                                      std::optional<Plan> plan, bool late) {
  CCL_CHECK(check_ready(comm));
  std::string name = fmt::format("{}/{}/{}/{}", of.op, of.algo, of.proto, of.transport_table.name);
  CCL_TRY(const auto lock, creating_alone(comm, name));
  CCL_CHECK(check_side(comm, name, of.sides.cpus, of.sides.gpus));
  if (plan && plan->slot_bytes == 0) plan->slot_bytes = of.slot_bytes;
  const auto plans = [&]() -> Result<Plans> {
    if (plan) CCL_CHECK(check_plan(comm, *plan));
    CCL_CHECK(may_compose(of.op, of.algo, of.proto, comm.device() >= 0));
    return of.plans(comm, of.transport_table, plan);
  };
  const int fan = of.over_peers() ? 1 : of.max_wires(comm.ranks());
  CCL_TRY(auto connections,
          Connections::create(comm, plans(), fan, of.needs, of.transport_table, std::move(name)));
  if (of.over_peers()) {
    CCL_CHECK(make_peers(of, *connections));
  } else {
    CCL_CHECK(make_wires(of, *connections, late && comm.device() < 0));
  }
  return connections;
}

}  // namespace ccl::detail
