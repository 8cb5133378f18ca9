#include <ccl/detail/launch/host_launch.hpp>
#include <ccl/detail/launch/short_call.hpp>
#include <ccl/detail/runtime/guarded.hpp>
#include <ccl/detail/wire/launch.hpp>

#include <utility>

namespace ccl::detail {

Result<void> run_in_turn(const std::shared_ptr<Connections>& connections, const CallInfo& info,
                         RunQueued run, void* call) {
  QueuedCall queued{connections, info};
  const CallTicket turn{connections->comm(), connections->calls().sequencer};
  CCL_CHECK(turn.begun());
  return run(call, std::move(queued));
}

Result<void> run_in_turn(const std::shared_ptr<Connections>& connections, QueuedCall&& queued,
                         Word number, RunQueued run, void* call) {
  return guarded(connections->comm(), [&]() -> Result<void> {
    const CallTicket turn{connections->comm(), connections->calls().sequencer, number};
    CCL_CHECK(turn.begun());
    return run(call, std::move(queued));
  });
}

Result<void> connect_lanes(Connections& connections, const WirePaths& paths, int root) {
  const Plan& plan = connections.plan();
  if (plan.slot_bytes * plan.slice_steps < paths.slice_bytes) {
    return fail(slices_too_small(connections, paths.slice_bytes));
  }
  if (paths.positions.by_root) return connect_positions(connections, paths.positions, root);
  if (connections.positions().connected[0]) return {};
  return connect_positions(connections, paths.positions, 0);
}

Result<void> run_on_host(QueuedCall&& call, const WirePaths& paths, int root, const void* given) {
  CCL_TRY(Launch && launch, Launch::begin(std::move(call)));
  Connections& connections = launch.connections();
  CCL_CHECK(connect_lanes(connections, paths, root));
  launch.run_lanes([&] { paths.run(connections, given); });
  return launch.finish();
}

Result<void> run_on_host(QueuedCall&& queued, void (*run)(const Connections&, const void* given),
                         const void* given) {
  CCL_TRY(Launch && launch, Launch::begin(std::move(queued)));
  launch.run_lanes([&] { run(launch.connections(), given); });
  return launch.finish();
}

std::optional<Result<void>> run_short(Connections& connections, const CallInfo& info,
                                      const WirePaths& paths, int root, const void* given) {
  ShortCall call{connections, info};
  if (!call.begun()) return {};
  if (auto connected = connect_lanes(connections, paths, root); !connected) return connected;
  if (connections.tables().proxied) {  // since just now
    Launch launch = call.launch();
    launch.run_lanes([&] { paths.run(connections, given); });
    return launch.finish();
  }
  paths.run(connections, given);
  return call.finish();
}

Result<Launch> begin_on_device(const std::shared_ptr<Connections>& connections,
                               const CallInfo& info, const PositionsOf& positions, int root,
                               Stream stream) {
  Launch::Lock lock{connections->calls().mutex};
  if (positions.by_root && !connections->positions().connected[std::size_t(root)]) {
    CCL_CHECK(connect_positions(*connections, positions, root));
  }
  return Launch::begin_on_device(connections, info, stream, std::move(lock));
}

}  // namespace ccl::detail
