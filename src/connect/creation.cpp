#include <ccl/detail/base/selection.hpp>
#include <ccl/detail/launch/arguments.hpp>
#include <ccl/detail/compose/creation.hpp>

#include <fmt/format.h>

#include <string>
#include <utility>

namespace ccl::detail {

namespace {
Result<void> load_kernels(const Composed& of, const Links& links) {
  const auto load = [&](int (*kernels)(int device)) -> Result<void> {
    const int code = kernels == nullptr ? 0 : kernels(links.comm().device());
    if (code == 0) return {};
    return fail(links.cuda_failed(code));
  };
  for (const KernelLoader* l = *of.kernels; l != nullptr; l = l->next) CCL_CHECK(load(l->load));
  for (const auto* kernels : of.loads) CCL_CHECK(load(*kernels));
  return {};
}

Result<void> make_wires(const Composed& of, Links& links, bool late) {
  const auto prepare = [&]() -> Result<void> {
    if (links.comm().device() < 0) return {};
    CCL_CHECK(links.reserve());
    return load_kernels(of, links);
  };
  const Result<void> ready = prepare();
  if (links.comm().ranks() == 1) return ready;
  if (of.seats.by_root || late) return links.all_agree(ready);
  if (of.exchanges && links.opens_later()) return links.open_later(ready);
  return connect_seats(links, of.seats, 0, ready);
}

Result<void> make_peers(const Composed& of, Links& links) {
  if (links.comm().ranks() == 1) return {};
  const auto prepare = [&]() -> Result<void> {
    if (links.comm().device() < 0 || !of.takes_ranks(links.comm().ranks())) {
      return fail(links.no_peer_view());
    }
    return load_kernels(of, links);
  };
  CCL_CHECK(links.map_peers(prepare()));
  if (of.copies) CCL_CHECK(links.open_side(of.pulls));
  if (of.by_stream) CCL_CHECK(links.open_signals());
  if (of.stores_plainly) CCL_CHECK(links.open_doors());
  return {};
}
}  // namespace

Result<std::shared_ptr<Links>> make_links(const Composed& of, const Communicator& comm,
                                          std::optional<Plan> plan, bool late) {
  CCL_CHECK(check_ready(comm));
  std::string name = fmt::format("{}/{}/{}/{}", of.op, of.algo, of.proto, of.connector.name);
  CCL_TRY(const auto lock, creating_alone(comm, name));
  CCL_CHECK(check_side(comm, name, of.sides.cpus, of.sides.gpus));
  if (plan && plan->slot_bytes == 0) plan->slot_bytes = of.slot_bytes;
  const auto plans = [&]() -> Result<Plans> {
    if (plan) CCL_CHECK(check_plan(comm, *plan));
    CCL_CHECK(may_compose(of.op, of.algo, of.proto));
    return of.plans(comm, plan);
  };
  const int fan = of.over_peers() ? 1 : of.most_wires(comm.ranks());
  CCL_TRY(auto links, Links::create(comm, plans(), fan, of.needs, of.connector, std::move(name)));
  if (of.over_peers()) {
    CCL_CHECK(make_peers(of, *links));
  } else {
    CCL_CHECK(make_wires(of, *links, late && comm.device() < 0));
  }
  return links;
}

}  // namespace ccl::detail
