// Bytes per NIC of hosts that are played in one process: the communicator, the search, the plans,
// the proxies and the algorithms are those of a cluster.
#define CCL_PLAYED_WARP 2  // lanes of a warp
#include "support/played/played_gpus.hpp"
#include "support/skip.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/pairwise.hpp>
#include <ccl/collective.cuh>
#include <ccl/topo/search.hpp>
#include <ccl/transport/socket.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <mutex>
#include <type_traits>
#include <utility>

#include "gpu/devices.hpp"
#include "gpu/memory.hpp"
#include "support/memory_policy.hpp"
#include "support/room/calls.hpp"
#include "support/room/room.hpp"
#include "support/room/traffic.hpp"
#include "transport/ib/gpu/memory.hpp"
#include <sys/mman.h>

using namespace ccl;
using namespace ccl::test;
using room::graph_of_host;
using room::moved_by;
using room::small;
using room::Ways;

namespace {
constexpr double evenly = 0.05;

/// NICs of the rings and of the trees of a host among several.
struct GraphNics {
  std::set<int> rings, trees;
};
GraphNics nics_of_graphs(const room::Shape& shape) {
  const topo::Graph graph = graph_of_host(shape);
  const topo::ChannelPlan plan =
      topo::search_all(graph, topo::compute_paths(graph), 2 * shape.gpus);
  GraphNics nics;
  for (const auto& [graph_of_nics, found] :
       {std::pair{&plan.ring, &nics.rings}, std::pair{&plan.tree, &nics.trees}}) {
    for (const topo::ChannelOrder& order : graph_of_nics->channels) {
      found->insert(order.net_in);
      found->insert(order.net_out);
    }
  }
  return nics;
}

std::set<int> all_of(const room::Shape& shape) {
  std::set<int> all;
  for (int n = 0; n < shape.nics; ++n) all.insert(n);
  return all;
}

/// Each NIC of `nics` moved as much as the others, on every host, and no other moved anything.
void check_even(const room::Room& hosts, const std::vector<room::Traffic>& moved,
                const std::set<int>& nics) {
  CHECK(room::unevenness(moved, hosts.shape().nics) < evenly);
  for (int h = 0; h < hosts.hosts(); ++h) CHECK(room::busy(moved, h, hosts.shape().nics) == nics);
}

/// Rings use the NICs of the graph, messages all NICs, and each as much as the others.
void check_room(const room::Shape& shape, int count) {
  INFO(shape.name << ", " << count << " hosts");
  room::Room hosts{shape, count};
  auto ranks = hosts.create_ranks();
  if (!ranks[0]) FAIL(ranks[0].error().message());
  const int rings = ranks[0]->ring_count();
  const Index share = Index{1} << 10;
  const GraphNics by_graph = nics_of_graphs(shape);
  const std::set<int> all = all_of(shape);
  const auto ring = [&](const char* what, auto calls) {
    check_even(hosts, moved_by(hosts, what, calls), by_graph.rings);
  };
  ring("AllReduce by rings",
       [&] { room::rings::all_reduces(ranks, rings * share * 8, small(rings), 1); });
  ring("AllGather by rings",
       [&] { room::rings::all_gathers(ranks, rings * share, small(rings), 1); });
  ring("ReduceScatter by rings",
       [&] { room::rings::reduce_scatters(ranks, rings * share, small(rings), 1); });
  // Two channels for each tree: one has its twin.
  check_even(
      hosts,
      moved_by(hosts, "AllReduce by trees",
               [&] { room::trees::all_reduces(ranks, rings * share * 4, small(2 * rings), 1); }),
      by_graph.trees);
  const int channels = std::max(2, shape.nics / shape.gpus);
  check_even(
      hosts,
      moved_by(hosts, "AllToAll",
               [&] { room::pairs::all_to_alls(ranks, channels * share, small(channels), 1); }),
      all);
  check_even(hosts,
             moved_by(hosts, "SendRecv with the next host",
                      [&] {
                        room::pairs::send_recvs(ranks, channels * 4 * share, small(channels), 1,
                                                shape.gpus);
                      }),
             all);
}
}  // namespace

TEST_CASE("hosts of 8 GPUs, each with a NIC, use all of them alike") {
  const int count = GENERATE(2, 4);
  check_room(room::dgx(), count);
}

TEST_CASE("hosts with two GPUs and two NICs on each NUMA node use all NICs alike") {
  const int count = GENERATE(2, 4);
  check_room(room::ndv4(), count);
}

TEST_CASE("hosts with four NICs for each GPU use those of the graph alike") {
  check_room(room::p5(), 2);
}

TEST_CASE("hosts with a NIC for four GPUs use both alike") {
  check_room(room::two_nics(), 2);
}

TEST_CASE("hosts with NICs near half of their GPUs use all NICs alike") {
  check_room(room::one_sided(), 2);
}

TEST_CASE("hosts with different numbers of GPUs have right results, and NICs of each GPU") {
  const room::Shape shape = room::dgx();
  room::Room hosts{shape, std::vector{8, 4}};
  auto ranks = hosts.create_ranks();
  if (!ranks[0]) FAIL(ranks[0].error().message());
  const int rings = ranks[0]->ring_count();
  const auto by_rings = moved_by(hosts, "AllReduce by rings", [&] {
    room::rings::all_reduces(ranks, rings * 4096, small(rings), 2);
  });
  CHECK(room::unevenness(by_rings, shape.nics) < evenly);
  room::trees::all_reduces(ranks, 5000, small(2 * rings), 2);
  room::rings::all_gathers(ranks, 1000, small(rings), 2);
  room::rings::reduce_scatters(ranks, 1000, small(rings), 2);
  room::pairs::send_recvs(ranks, 1000, small(2), 2, 4);
  const auto by_pairs =
      moved_by(hosts, "AllToAll", [&] { room::pairs::all_to_alls(ranks, 1000, small(2), 2); });
  CHECK(room::busy(by_pairs, 0, 8) == all_of(shape));
  CHECK(room::busy(by_pairs, 1, 8) == std::set{0, 1, 2, 3});
}

TEST_CASE("proxy threads run on the CPUs of their GPU's NUMA node, unless the process may not") {
  const std::vector<int> allowed = detail::allowed_cpus();
  if (allowed.size() < 2) return skip("this process may run on one CPU alone");
  const int a = allowed[0], b = allowed[1];
  const detail::OnCpus both{{a, b}};
  room::Shape shape = room::dgx();
  const auto run = [&] {
    const std::vector<int> before = detail::allowed_cpus();
    room::Room hosts{shape, 2};
    auto ranks = hosts.create_ranks();
    if (!ranks[0]) FAIL(ranks[0].error().message());
    const int rings = ranks[0]->ring_count();
    room::rings::all_reduces(ranks, rings * 1024, small(rings), 1);
    CHECK(detail::allowed_cpus() == before);  // calls leave their thread as it was
    // The ring of NIC n enters at GPU n and leaves at GPU n + 1.
    return fmt::format("{} {}", fmt::join(hosts.verbs().cpus_of(0), ","),
                       fmt::join(hosts.verbs().cpus_of(8 + 4), ","));
  };
  const std::string near_first = std::to_string(a), near_second = std::to_string(b),
                    on_both = near_first + "," + near_second;
  shape.cpus = {{a}, {b}};
  CHECK(run() == near_first + " " + near_second);
  shape.cpus = {{a, b}, {b + 1, b + 2}};  // this thread may not run on those of node 1
  CHECK(run() == on_both + " " + on_both);
  shape.cpus = {{a}, {b}};
  const detail::OnCpus bound{{a}};  // as ranks, which are threads of this one
  CHECK(run() == near_first + " " + near_first);
  const Environment unbound{"CCL_IGNORE_CPU_AFFINITY", "1"};
  CHECK(run() == near_first + " " + near_second);
}

namespace {
/// Memory of played GPUs for RDMA devices: plain memory, of which devices' writes are visible once
/// they have read from it.
struct GpuPieces {
  std::atomic<int> made{0}, relayed{0};
  std::mutex mutex;
  std::map<const void*, int> holder;  // GPU of each piece, by its first byte
} pieces;

int gpu_with(std::int64_t bus_id) {
  CUdevice device = -1;
  (void)(*detail::cuda_driver())
      ->device_get_by_pci_bus_id(&device, detail::bus_id_text(bus_id).c_str());
  return device;
}

constexpr detail::GpuCalls gpu_memory{
    [](detail::GpuArena* arena, std::int64_t relay, std::size_t bytes) -> Result<detail::GpuPiece> {
      ++pieces.made;
      pieces.relayed += relay >= 0 ? 1 : 0;
      auto owner = std::shared_ptr<void>{std::aligned_alloc(4096, bytes), std::free};
      std::memset(owner.get(), 0, bytes);
      const std::lock_guard lock{pieces.mutex};
      pieces.holder[owner.get()] = relay >= 0 ? gpu_with(relay) : arena->gpu()->device();
      return detail::GpuPiece{static_cast<std::byte*>(owner.get()), bytes, owner};
    },
    [](detail::GpuArena*, const detail::GpuPiece&) -> Result<detail::Fd> {
      return detail::Fd{::memfd_create("gpu", MFD_CLOEXEC)};
    },
    [] { return false; }, [] { return false; }};

/// RDMA devices reach memory of GPUs while it lives.
struct WithGpuMemory {
  WithGpuMemory() { detail::use_gpu_calls(&gpu_memory); }
  ~WithGpuMemory() { detail::use_gpu_calls(nullptr); }
};
}  // namespace

TEST_CASE("slots lie in GPU memory where the NIC is near, and else in memory of the host") {
  const WithGpuMemory reached;
  const Environment no_relays{"CCL_PXN_DISABLE", "1"};
  // Blocks of GPU memory, which all edges at a GPU share, and NICs that sent from such blocks.
  using Found = std::pair<int, int>;
  const auto found_with = [](const room::Shape& shape) -> Found {
    room::Room hosts{shape, 2};
    auto ranks = hosts.create_ranks();
    if (!ranks[0]) FAIL(ranks[0].error().message());
    {
      const std::lock_guard lock{pieces.mutex};
      pieces.holder.clear();
    }
    const int before = pieces.made;
    const auto moved =
        moved_by(hosts, "SendRecv", [&] { room::pairs::send_recvs(ranks, 4096, small(1), 2, 8); });
    CHECK(room::unevenness(moved, shape.nics) < evenly);
    int senders = 0;
    const std::lock_guard lock{pieces.mutex};
    for (int nic = 0; nic < 2 * shape.nics; ++nic) {
      const auto sources = hosts.verbs().sources(nic);
      senders += std::any_of(sources.begin(), sources.end(),
                             [](const void* at) { return pieces.holder.count(at) != 0; });
    }
    return {pieces.made - before, senders};
  };
  CHECK(found_with(room::dgx()) == Found{16, 16});
  // The NIC of the other socket is too far.
  CHECK(found_with(room::one_sided()) == Found{8, 8});
  {
    const Environment far{"CCL_NET_GDR_LEVEL", "SYS"};
    CHECK(found_with(room::one_sided()) == Found{16, 8});
  }
  {
    const Environment no_reads{"CCL_NET_GDR_READ", "0"};
    CHECK(found_with(room::dgx()) == Found{16, 0});
  }
  {
    const Environment none{"CCL_IB_GPU_MEMORY", "0"};
    CHECK(found_with(room::dgx()) == Found{0, 0});
  }
}

namespace {
/// True if each NIC of DGX-like hosts has sent only from memory of the GPU at its switch.
bool sent_from_near_memory(room::Room& hosts) {
  bool near = true;
  const std::lock_guard lock{pieces.mutex};
  for (int nic = 0; nic < hosts.hosts() * hosts.shape().nics; ++nic) {
    for (const void* const from : hosts.verbs().sources(nic)) {
      const auto held = pieces.holder.find(from);
      near = near && held != pieces.holder.end() && held->second == nic;
    }
  }
  hosts.verbs().forget_sources();
  return near;
}
}  // namespace

TEST_CASE("what leaves by a NIC of another GPU goes over that GPU's memory") {
  const WithGpuMemory reached;
  const auto shape = room::dgx();
  struct Sent {
    bool near_rings, near_trees, near_messages;
    int by_rings, by_messages;
    std::set<int> senders;
  };
  const auto send = [&] {
    room::Room hosts{shape, 2};
    auto ranks = hosts.create_ranks();
    if (!ranks[0]) FAIL(ranks[0].error().message());
    const int rings = ranks[0]->ring_count();
    Sent sent{};
    int before = pieces.relayed;
    check_even(hosts,
               moved_by(hosts, "AllReduce by rings",
                        [&] { room::rings::all_reduces(ranks, rings * 8192, small(rings), 2); }),
               all_of(shape));
    sent.near_rings = sent_from_near_memory(hosts);
    sent.by_rings = pieces.relayed - before;
    room::trees::all_reduces(ranks, rings * 4096, small(2 * rings), 2);
    sent.near_trees = sent_from_near_memory(hosts);
    before = pieces.relayed;
    check_even(
        hosts,
        moved_by(hosts, "AllToAll", [&] { room::pairs::all_to_alls(ranks, 1024, small(2), 2); }),
        all_of(shape));
    sent.by_messages = pieces.relayed - before;
    sent.near_messages = sent_from_near_memory(hosts);  // before the memory is another GPU's
    // GPU g sends to GPU g - 1 of the other host, but GPU 0 to GPU 7 of its own.
    const auto moved = moved_by(hosts, "SendRecv with another rail",
                                [&] { room::pairs::send_recvs(ranks, 4096, small(1), 2, 7); });
    for (int n = 0; n < 8; ++n) {
      if (moved[std::size_t(n)].sent > 0) sent.senders.insert(n);
    }
    sent.near_messages = sent_from_near_memory(hosts) && sent.near_messages;
    return sent;
  };
  const std::set low{0, 1, 2, 3, 4, 5, 6}, high{1, 2, 3, 4, 5, 6, 7};
  const Sent usual = send();
  CHECK(usual.near_rings);
  CHECK(usual.near_trees);
  CHECK(usual.near_messages);
  CHECK(usual.by_rings == 16);         // one edge leaves a host in each ring
  CHECK(usual.by_messages == 16 * 7);  // to all GPUs there but that on the sender's rail
  CHECK(usual.senders == low);
  {
    const Environment none{"CCL_P2P_PXN_LEVEL", "0"};
    const Sent sent = send();
    CHECK(sent.by_rings == 16);
    CHECK(sent.by_messages == 0);
    CHECK(sent.senders == high);
    CHECK(sent.near_messages);
  }
  const Environment off{"CCL_PXN_DISABLE", "1"};
  const Sent direct = send();
  CHECK(direct.near_rings);  // rings leave by the NIC of their last GPU
  CHECK(direct.by_rings == 0);
  CHECK(direct.by_messages == 0);
  CHECK(direct.senders == high);
  const Environment rails{"CCL_CROSS_NIC", "0"};
  const Sent staged = send();
  CHECK_FALSE(staged.near_rings);
  CHECK(staged.senders == low);
}

TEST_CASE("slots of both ends of a network count in a GPU rank's memory budget") {
  const Environment budget{"CCL_MEMORY_BUDGET", "16M"};
  room::Room hosts{room::dgx(), 2};
  auto ranks = hosts.create_ranks();
  if (!ranks[0]) FAIL(ranks[0].error().message());
  played::on_each(ranks, [&](const played::Rank& rank) -> std::string {
    const auto made = Collective<AllToAll, Pairwise, Simple, Ways>::create(rank.comm);
    if (!made) return made.error().message();
    const Index used = rank.comm.memory_used(), half = rank.comm.memory_budget() / 2;
    if (used > half) return fmt::format("{} bytes of {}", used, half);
    return used > half / 4 ? "" : fmt::format("only {} bytes of {}", used, half);
  });
}

TEST_CASE("a GPU's NICs give messages more channels only where RDMA uses these NICs") {
  const auto channels = [](auto by, const char* net) {
    using By = typename decltype(by)::type;
    room::Room hosts{room::p5(), 2};
    const Environment chosen{"CCL_NET", net};
    auto ranks = hosts.create_ranks();
    if (!ranks[0]) FAIL(ranks[0].error().message());
    std::atomic<int> found{0};
    played::on_each(ranks, [&](const played::Rank& rank) -> std::string {
      const auto made = Collective<SendRecv, Pairwise, Simple, By>::create(rank.comm);
      if (!made) return made.error().message();
      found = made->plan().channels;
      return {};
    });
    return found.load();
  };
  CHECK(channels(std::type_identity<Ways>{}, "IB") == 4);
  using Tcp = AnyOf<P2pTransport, IbTransport, SocketTransport>;
  CHECK(channels(std::type_identity<Tcp>{}, "Socket") == 2);
}

TEST_CASE("staged data lies on the NUMA node of the GPU") {
  if (!may_prefer_nodes()) return skip("this process may not ask for memory of a NUMA node");
  const Environment staged{"CCL_IB_GPU_MEMORY", "0"};
  room::Room hosts{room::dgx(), 2};
  auto ranks = hosts.create_ranks();
  if (!ranks[0]) FAIL(ranks[0].error().message());
  const int rings = ranks[0]->ring_count();
  std::barrier all{16};
  played::on_each(ranks, [&](const played::Rank& rank) -> std::string {
    const auto made = room::rings::create(rank, small(rings));
    std::string problem = made ? (*made)(rank, 20'000, 1) : "not made";
    all.arrive_and_wait();
    // GPUs 0 to 3 are on node 0. This machine may have no node 1.
    for (int nic = 0; rank.rank == 0 && nic < 4; ++nic) {
      const auto sources = hosts.verbs().sources(nic);
      if (sources.empty()) problem = fmt::format("NIC {} has sent nothing", nic);
      for (const void* const from : sources) {
        if (preferred_node(from) != 0) problem = fmt::format("NIC {} sends from any node", nic);
      }
    }
    all.arrive_and_wait();
    return problem;
  });
}
