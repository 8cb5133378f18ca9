// Slots in GPU memory over a network plug-in, with memory that represents a GPU's. What the plug-in
// receives is there only after a flush. Not run on hardware.
#include <ccl/transport/plugin.hpp>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "support/driver.hpp"
#include "support/environment.hpp"
#include "support/error_matchers.hpp"
#include "support/lent.hpp"
#include "support/net_plug_in.hpp"
#include "transport/gpu_memory.hpp"
#include <sys/mman.h>

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr int host = 1, gpu = 2, dma_buf = 4;  // NCCL's kinds of memory

std::atomic<int> allocated{0};
std::atomic<bool> exports{true}, on_loan{false};
constexpr detail::GpuCalls calls{
    [](detail::GpuArena*, std::int64_t, std::size_t bytes) -> Result<detail::GpuPiece> {
      void* const at = std::aligned_alloc(4096, bytes);
      if (at == nullptr) return fail(Errc::out_of_memory, "no memory");
      std::memset(at, 0, bytes);
      ++allocated;
      return detail::GpuPiece{static_cast<std::byte*>(at), bytes,
                              std::shared_ptr<void>{at, std::free}, on_loan};
    },
    [](detail::GpuArena*, const detail::GpuPiece&) -> Result<detail::Fd> {
      if (!exports) return fail(Errc::not_supported, "the driver exports no DMA-BUF");
      return detail::Fd{::memfd_create("gpu", MFD_CLOEXEC)};
    },
    [] { return false; }, [] { return false; }};

/// A plug-in whose devices take these kinds of memory, and a GPU.
struct OnGpus {
  explicit OnGpus(int kinds) {
    allocated = 0;
    exports = true;
    on_loan = false;
    net.take_memory(kinds);
    detail::use_gpu_calls(&calls);
  }
  ~OnGpus() {
    net.take_memory(host);
    detail::use_gpu_calls(nullptr);
  }
  const TestNet net{12};
  const Environment by{{{"CCL_NET_PLUGIN", net.path()}, {"CCL_IB_GPU_MEMORY", "1"}}};
};

/// What went wrong with two ranks, each in a thread.
std::string two_ranks(const WireShape& shape, Word steps) {
  std::string problem[2];
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  const auto rank_main = [&](int rank) {
    Lent lent;
    {
      const auto duplex = connect_pair<PluginTransport>(lent.context, rank, shape, fds[rank]);
      if (!duplex) {
        problem[rank] = duplex.error().message();
        return;
      }
      problem[rank] = exchange(*duplex, rank, 1 - rank, steps, &lent.status, &lent.proxy);
    }
    if (!lent.status.ok()) problem[rank] += lent.status.result().error().message();
  };
  std::thread other{[&] { rank_main(1); }};
  rank_main(0);
  other.join();
  ::close(fds[0]);
  ::close(fds[1]);
  return problem[0] + problem[1];
}

constexpr WireShape shape{2, 8, 4096};

}  // namespace

TEST_CASE("every step in GPU memory is flushed before it is shown") {
  const bool by_dma_buf = GENERATE(true, false);
  const OnGpus gpus{host | gpu | (by_dma_buf ? dma_buf : 0)};
  const int flushed = gpus.net.calls("iflush"), exported = gpus.net.calls("regMrDmaBuf");
  CHECK(two_ranks(shape, 100) == "");
  CHECK(allocated == 4);  // both ends of both directions
  CHECK(gpus.net.calls("regMrDmaBuf") - exported == (by_dma_buf ? 8 : 0));
  CHECK(gpus.net.calls("iflush") - flushed > 200);
  CHECK(wait_until([&] { return gpus.net.objects() == 0; }));
}

TEST_CASE("without the flush, data is not there: the test above can fail") {
  const OnGpus gpus{host | gpu};
  const Environment off{"CCL_GDR_FLUSH_DISABLE", "1"};
  const int flushed = gpus.net.calls("iflush");
  CHECK(mentions(two_ranks(shape, 8), "wrong word"));
  CHECK(gpus.net.calls("iflush") == flushed);
}

TEST_CASE("slots are staged if a setting, the devices or the topology ask for it") {
  const auto [kinds, setting] =
      GENERATE(table<int, const char*>({{host, "1"}, {host | gpu, "0"}, {host | gpu, "-1"}}));
  const OnGpus gpus{kinds};
  const Environment wanted{"CCL_IB_GPU_MEMORY", setting};  // -1: the topology, which knows no NIC
  CHECK(two_ranks(shape, 50) == "");
  CHECK(allocated == 0);
}

TEST_CASE("without DMA-BUF of the driver the plug-in registers the address") {
  const OnGpus gpus{host | gpu | dma_buf};
  exports = false;
  const int before = gpus.net.calls("regMrDmaBuf");
  CHECK(two_ranks(shape, 50) == "");
  CHECK(allocated == 4);
  CHECK(gpus.net.calls("regMrDmaBuf") == before);
}

TEST_CASE("slots on loan from another process are staged without a DMA-BUF") {
  const bool of_driver = GENERATE(true, false);
  const OnGpus gpus{host | gpu | (of_driver ? dma_buf : 0)};
  on_loan = true;
  const int flushed = gpus.net.calls("iflush");
  exports = false;
  CHECK(two_ranks(shape, 50) == "");
  CHECK(gpus.net.calls("iflush") == flushed);  // nothing lies in GPU memory
  exports = true;
  CHECK(two_ranks(shape, 50) == "");
  CHECK((gpus.net.calls("iflush") > flushed) == of_driver);
}

TEST_CASE("a registration and a flush that fail are errors that name them") {
  const OnGpus gpus{host | gpu | dma_buf};
  const char* const function = GENERATE("regMrDmaBuf", "iflush");
  gpus.net.fail(function, 3, 2);
  const std::string problem = two_ranks(shape, 50);
  gpus.net.fail(function, 0, 0);
  CHECK(mentions(problem, (std::string{function} + " of the network plug-in Test").c_str()));
  CHECK(mentions(problem, "ncclSystemError (2)"));
}
