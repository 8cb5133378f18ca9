// Slots in GPU memory, with emulated devices and memory that represents a GPU's. A device's write
// is visible only after that device has read from the memory. Not run on hardware.
#include "transport/ib/gpu/memory.hpp"

#include <ccl/transport/ib.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "support/fake_verbs.hpp"
#include "support/log_of.hpp"
#include "support/two_ranks.hpp"
#include "transport/ib/gpu/proof.hpp"
#include <sys/mman.h>

using namespace ccl;
using namespace ccl::test;
using ccl::detail::Fd;

namespace {

/// Configured driver of a GPU and modules of the kernel.
struct Machine {
  bool exports = true, peer_memory = false;
  std::atomic<int> allocated = 0, exported = 0;  // both ranks are threads
  FakeVerbs* fabric = nullptr;
} machine;

constexpr detail::GpuCalls calls{
    [](detail::GpuArena*, std::int64_t, std::size_t bytes) -> Result<detail::GpuPiece> {
      void* const at =
          ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (at == MAP_FAILED) return fail(Errc::out_of_memory, "no memory");
      ++machine.allocated;
      auto* const base = static_cast<std::byte*>(at);
      if (machine.peer_memory) machine.fabric->stand_for_gpu(base, bytes);
      return detail::GpuPiece{base, bytes,
                              std::shared_ptr<void>{at, [bytes](void* p) { ::munmap(p, bytes); }}};
    },
    [](detail::GpuArena*, const detail::GpuPiece&) -> Result<detail::Fd> {
      if (!machine.exports) return fail(Errc::not_supported, "the driver exports no DMA-BUF");
      ++machine.exported;
      return detail::Fd{::memfd_create("gpu", MFD_CLOEXEC)};
    },
    [] { return machine.peer_memory; }, [] { return false; }};

struct OnGpus {
  explicit OnGpus(FakeVerbs& fabric) {
    machine.exports = true;
    machine.peer_memory = false;
    machine.allocated = machine.exported = 0;
    machine.fabric = &fabric;
    detail::use_gpu_calls(&calls);
    ::setenv("CCL_IB_GPU_MEMORY", "1", 1);
  }
  ~OnGpus() {
    ::unsetenv("CCL_IB_GPU_MEMORY");
    detail::use_gpu_calls(nullptr);
  }
};

}  // namespace

TEST_CASE("slots in GPU memory by DMA-BUF: every step is flushed before it is shown") {
  FakeVerbs fabric{GENERATE(1, 2)};
  const OnGpus gpus{fabric};
  const WireShape shape = GENERATE(WireShape{1, 2, 128}, WireShape{2, 8, 4096});
  check_fine(two_ranks(shape, 100));
  CHECK(machine.allocated == 2);  // for both directions of each rank
  CHECK(machine.exported == 2);
  CHECK(fabric.dma_bufs_made > 0);
  CHECK(fabric.faults.late_writes > 0);
  CHECK(fabric.faults.flushes > 0);
  CHECK(fabric.held() == 0);
}

TEST_CASE("without the flush, data is not there: the test above can fail") {
  FakeVerbs fabric{1};
  const OnGpus gpus{fabric};
  const Environment environment{{{"CCL_GDR_FLUSH_DISABLE", "1"}}};
  const Ends ends = two_ranks({1, 8, 4096}, 8);  // the sender waits for no credit
  CHECK(fabric.faults.flushes == 0);
  CHECK(contains(ends.problem[0] + ends.problem[1], "wrong word"));
}

TEST_CASE("where DMA-BUF does not work, nvidia-peermem; where that is missing, host memory") {
  FakeVerbs fabric{1};
  const OnGpus gpus{fabric};
  SECTION("the device refuses, peermem is there") {
    machine.peer_memory = true;
    fabric.faults.refuse_dma_buf = EOPNOTSUPP;
    check_fine(two_ranks({1, 4, 4096}, 100));
    CHECK(fabric.dma_bufs_made == 0);
    CHECK(fabric.faults.late_writes > 0);
    CHECK(fabric.faults.flushes > 0);
  }
  SECTION("the driver exports nothing, peermem is there") {
    machine.peer_memory = true;
    machine.exports = false;
    check_fine(two_ranks({1, 4, 4096}, 100));
    CHECK(machine.exported == 0);
    CHECK(fabric.faults.late_writes > 0);
  }
  SECTION("CCL_DMABUF_ENABLE is 0") {
    machine.peer_memory = true;
    const Environment environment{{{"CCL_DMABUF_ENABLE", "0"}}};
    check_fine(two_ranks({1, 4, 4096}, 100));
    CHECK(machine.exported == 0);
    CHECK(fabric.faults.late_writes > 0);
  }
  SECTION("neither: staged") {
    fabric.faults.refuse_dma_buf = EOPNOTSUPP;
    check_fine(two_ranks({1, 4, 4096}, 100));
    CHECK(machine.allocated == 4);
    CHECK(fabric.faults.late_writes == 0);
    CHECK(fabric.faults.flushes == 0);
    CHECK(fabric.faults.inline_writes > 0);  // the CPU reads the slots again
  }
  CHECK(fabric.held() == 0);
}

TEST_CASE("why slots are staged is said") {
  FakeVerbs fabric{1};
  const OnGpus gpus{fabric};
  fabric.faults.refuse_dma_buf = EOPNOTSUPP;
  auto found = detail::find_ib_ports();
  REQUIRE(found.has_value());
  std::string why;
  const auto slots = detail::IbGpuSlots::make({}, 4096, found->ports, IBV_ACCESS_LOCAL_WRITE, why);
  REQUIRE(slots.has_value());
  CHECK(*slots == nullptr);
  INFO(why);
  CHECK(contains(why, "fake_0 cannot register a DMA-BUF of 2097152 bytes"));
  CHECK(contains(why, "nvidia-peermem is not loaded"));
}

TEST_CASE("errors while slots lie in GPU memory are made good") {
  FakeVerbs fabric{2};
  const OnGpus gpus{fabric};
  fabric.faults.forge_every = 61;
  fabric.faults.forged_arrives = GENERATE(false, true);
  fabric.faults.delay_polls = 5;
  check_fine(two_ranks({1, 8, 1024}, 300));
  CHECK(fabric.faults.forgeries >= 5);
  CHECK(fabric.faults.flushes > 0);
}

TEST_CASE("what was sent to GPU memory before the sender left is flushed, whatever failed") {
  const int devices = GENERATE(1, 2);
  FakeVerbs fabric{devices};
  const OnGpus gpus{fabric};
  OneEdge edge{{2, 4, 4096}};
  {
    const Hold hold{edge.from.proxy};
    REQUIRE(fabric.break_one(devices));  // after those that flush, one of the receiver's channel 0
    await_turns(edge.to.proxy);
    CHECK(edge.push(1, 3, 1).problem == "");
    edge.out.reset();
  }
  CHECK(pull(edge.in->wires[1], 3, 1, &edge.to.status, &edge.to.proxy).problem == "");
  CHECK(edge.to.status.ok());
  CHECK(fabric.faults.flushes > 0);
}

TEST_CASE("a flush that fails under way ends it and says so") {
  FakeVerbs fabric{1};
  const OnGpus gpus{fabric};
  OneEdge edge{{1, 4, 1024}};
  {
    const std::lock_guard lock{fabric.mutex};
    fabric.faults.refuse_flush = true;
  }
  CHECK(edge.push(0, 1, 1).problem == "");
  (void)pull(edge.in->wires[0], 1, 1, &edge.to.status, &edge.to.proxy);
  const auto failed = edge.to.status.result();
  REQUIRE_FALSE(failed);
  INFO(failed.error().what);
  CHECK(contains(failed.error().what, "the flush of GPU memory"));
  CHECK(contains(failed.error().what, "IBV_WC_REM_OP_ERR"));
}

TEST_CASE("slots are staged if a device does not reach GPU memory when that is tried") {
  FakeVerbs fabric{1};
  const OnGpus gpus{fabric};
  SECTION("what it writes does not arrive") {
    fabric.faults.lose_gpu_writes = true;
  }
  SECTION("reads fail") {
    fabric.faults.refuse_flush = true;
  }
  const Environment parts{"CCL_DEBUG_SUBSYS", "NET"};
  const std::string log = log_of([] { check_fine(two_ranks({1, 4, 1024}, 50)); });
  CHECK(fabric.faults.late_writes <= 2);  // of the trials
  CHECK(contains(log,
                 "slots from rank 0 are staged in host memory (fake_0 port 1 does not reach "
                 "the GPU's memory: "));
  CHECK(fabric.held() == 0);
}

namespace {
/// Two NICs, of which the only channel has the first.
const EdgeNics first_of_two{{"fake_0:1", "fake_1:1"}, {0}};
}  // namespace

TEST_CASE("only the port that wrote a step flushes it") {
  const Environment apart{"CCL_IB_MERGE_NICS", "0"};
  FakeVerbs fabric{2};
  const OnGpus gpus{fabric};
  OneEdge edge{{1, 4, 1024}, first_of_two};
  constexpr int steps = 20;
  const int before = fabric.faults.flushes;
  for (Word step = 1; step <= steps; ++step) {
    CHECK(edge.push(0, 1, step).problem == "");
    CHECK(pull(edge.in->wires[0], 1, step, &edge.to.status, &edge.to.proxy).problem == "");
  }
  CHECK(fabric.faults.flushes - before == steps);
}

TEST_CASE("a port that only stands by does not keep slots from GPU memory") {
  const Environment apart{"CCL_IB_MERGE_NICS", "0"};
  FakeVerbs fabric{2};
  const OnGpus gpus{fabric};
  fabric.faults.refuse_dma_buf = EOPNOTSUPP;
  fabric.faults.refuse_dma_buf_of = GENERATE(0, 1);
  const bool serves = fabric.faults.refuse_dma_buf_of == 1;
  {
    OneEdge edge{{1, 4, 1024}, first_of_two};
    CHECK(edge.push(0, 3, 1).problem == "");
    CHECK(pull(edge.in->wires[0], 3, 1, &edge.to.status, &edge.to.proxy).problem == "");
  }
  CHECK((fabric.faults.flushes > 2) == serves);  // more than of trials
  CHECK(fabric.held() == 0);
}

TEST_CASE("a trial leaves slots of zeros and says what is wrong") {
  FakeVerbs fabric{1};
  const OnGpus gpus{fabric};
  auto found = detail::find_ib_ports();
  REQUIRE(found.has_value());
  const bool remotely = GENERATE(false, true);
  const unsigned access = remotely ? unsigned(IBV_ACCESS_LOCAL_WRITE) |
                                         unsigned(IBV_ACCESS_REMOTE_WRITE) |
                                         unsigned(IBV_ACCESS_REMOTE_READ)
                                   : unsigned(IBV_ACCESS_LOCAL_WRITE);
  std::string why;
  auto slots = detail::IbGpuSlots::make({}, 4096, found->ports, access, why);
  REQUIRE((slots && *slots));
  const auto tuning = detail::IbTuning::from_settings();
  const auto prove = [&] {
    return detail::prove_gpu_slots(**slots, found->ports[0], remotely, *tuning, 5);
  };
  CHECK(prove() == "");
  CHECK(std::all_of((*slots)->base(), (*slots)->base() + 4096,
                    [](std::byte byte) { return byte == std::byte{0}; }));
  fabric.faults.refuse_flush = true;
  CHECK(contains(prove(), "a read ended with IBV_WC_REM_OP_ERR"));
  fabric.faults.refuse_flush = false;
  if (remotely) {
    fabric.faults.lose_gpu_writes = true;
    CHECK(contains(prove(), "what it wrote there was not read back"));
  }
  fabric.faults.refuse_pair = true;
  CHECK(contains(prove(), "fake_0 port 1 does not reach the GPU's memory: "));
}

TEST_CASE("GPU memory is used where the topology allows it, and else where a setting says so") {
  FakeVerbs fabric{1};
  const OnGpus gpus{fabric};
  const auto bufs = [&](const char* setting, const std::string& no_gpu_access) {
    ::setenv("CCL_IB_GPU_MEMORY", setting, 1);
    const int before = fabric.dma_bufs_made;
    TransportContext context;
    detail::ProxyEngine proxy{nullptr};
    context.proxy = &proxy;
    Edge edge;
    edge.shape = {1, 4, 1024};
    edge.nics = {{"fake_0:1"}, {0}, no_gpu_access};
    REQUIRE(IbTransport::setup(context, edge));
    return fabric.dma_bufs_made - before;
  };
  CHECK(bufs("-1", "") == 1);
  CHECK(bufs("-1", "fake_0:1: distance SYS > P2C") == 0);
  CHECK(bufs("1", "fake_0:1: distance SYS > P2C") == 1);
  CHECK(bufs("0", "") == 0);
}

TEST_CASE("a device is tried once for each GPU while it is open") {
  FakeVerbs fabric{1};
  const OnGpus gpus{fabric};
  detail::ProxyEngine proxy{nullptr};
  TransportContext context;
  context.proxy = &proxy;
  Edge edge;
  edge.shape = {1, 4, 1024};
  const auto first = IbTransport::setup(context, edge);
  REQUIRE(first);
  CHECK(fabric.connected.size() == 1);  // the queue pair of the trial
  const auto second = IbTransport::setup(context, edge);
  REQUIRE(second);
  CHECK(fabric.connected.size() == 1);
  edge.self.bus_id = 0x17000;
  const auto of_other = IbTransport::setup(context, edge);
  REQUIRE(of_other);
  CHECK(fabric.connected.size() == 2);
}

TEST_CASE("a device that failed its trial is not tried again while it is open") {
  FakeVerbs fabric{1};
  const OnGpus gpus{fabric};
  fabric.faults.refuse_flush = true;
  detail::ProxyEngine proxy{nullptr};
  TransportContext context;
  context.proxy = &proxy;
  Edge edge;
  edge.shape = {1, 4, 1024};
  const auto first = IbTransport::setup(context, edge);
  REQUIRE(first);
  CHECK(fabric.connected.size() == 1);
  const auto second = IbTransport::setup(context, edge);
  REQUIRE(second);
  CHECK(fabric.connected.size() == 1);
}

TEST_CASE("ports that stand by share the time of one trial") {
  const Environment apart{"CCL_IB_MERGE_NICS", "0"};
  FakeVerbs fabric{6};
  const OnGpus gpus{fabric};
  fabric.faults.mute_reads_from = 1;
  detail::ProxyEngine proxy{nullptr};
  TransportContext context;
  context.proxy = &proxy;
  context.deadline_s = 0.2;
  Edge edge;
  edge.shape = {1, 4, 1024};
  for (int n = 0; n < 6; ++n) edge.nics.names.push_back(fmt::format("fake_{}:1", n));
  edge.nics.of_wire = {0};
  const auto first = IbTransport::setup(context, edge);
  REQUIRE(first);
  // The queue pairs of trials: of the port in use, and of one that takes all of the time.
  CHECK(fabric.connected.size() == 2);
  // Those that were not tried are tried for a later edge, which stops at the next one.
  const auto second = IbTransport::setup(context, edge);
  REQUIRE(second);
  CHECK(fabric.connected.size() == 3);
  fabric.faults.mute_reads_from = -1;
  const auto third = IbTransport::setup(context, edge);
  REQUIRE(third);
  CHECK(fabric.connected.size() == 6);  // the other three work
}

TEST_CASE("nvidia-peermem is found by its files") {
  const auto root = std::filesystem::temp_directory_path() / fmt::format("ccl-{}", ::getpid());
  for (const char* const path : {"sys/module/nvidia_peermem", "sys/kernel/mm/memory_peers/nv_mem",
                                 "sys/kernel/mm/memory_peers/nv_mem_nc"}) {
    std::filesystem::create_directories(root / path);
    CHECK_FALSE(detail::finds_peer_memory(root.string()));
    std::ofstream{root / path / "version"} << "1.0";
    CHECK(detail::finds_peer_memory(root.string()));
    std::filesystem::remove_all(root);
  }
}
