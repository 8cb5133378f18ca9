// Windows of kernels with NVIDIA's headers. The driver's GPUs are plain memory, and threads of this
// test do what kernels do.
#include "nccl/device/kernel_window.hpp"

#include <cstddef>
#include <cstring>
#include <string>

#include "comm/state.hpp"
#include "support/kernel_memory.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail::nccl;

TEST_CASE("ranks write into each other's memory through a window's range of addresses") {
  auto comms = create_ranks(3);
  each_comm(comms, [](Communicator& comm) -> std::string {
    const Taken memory{comm.device(), 5 * page};
    const auto window = Window::create(comm, memory.at + page / 2, 2 * page);
    if (!window) return window.error().message();
    const auto made = KernelWindow::create(*window, NCCL_WIN_COLL_SYMMETRIC);
    if (!made) return made.error().message();
    const ncclWindow_vidmem& seen = *(*made)->handle();  // as kernels do
    if (std::memcmp(&seen, &(*made)->content(), sizeof seen) != 0) return "other content";
    if (seen.lsaRank != comm.rank() || seen.worldRank != comm.rank()) return "another rank";
    if (seen.stride4G != 1 || seen.winHost != nullptr || seen.numSegments != 1) return "members";
    if (seen.winFlags != NCCL_WIN_COLL_SYMMETRIC) return "flags";
    for (int p = 0; p < 3; ++p) *in_window<int>(seen, p, 4 * std::size_t(comm.rank())) = 70 + p;
    *in_window<char>(seen, comm.rank(), 2 * page - 1) = 'e';
    if (const auto here = comm.barrier(); !here) return here.error().message();
    const int* const own = reinterpret_cast<int*>(memory.at + page / 2);
    for (int p = 0; p < 3; ++p) {
      if (own[p] != 70 + comm.rank()) return fmt::format("{} from rank {}", own[p], p);
      if (*in_window<char>(seen, p, 2 * page - 1) != 'e') return "another end";
    }
    const auto here = comm.barrier();
    return here ? std::string{} : here.error().message();
  });
}

TEST_CASE("the parts of a window may begin at different pages, and not within them") {
  auto comms = create_ranks(2);
  each_comm(comms, [](Communicator& comm) -> std::string {
    const Taken memory{comm.device(), 5 * page};
    const std::size_t pages = comm.rank() == 0 ? 0 : 3;
    const auto window = Window::create(comm, memory.at + pages * page + 64, page);
    if (!window) return window.error().message();
    const auto made = KernelWindow::create(*window, 0);
    if (!made) return made.error().message();
    *in_window<int>((*made)->content(), 1 - comm.rank(), 8) = 9;
    if (const auto here = comm.barrier(); !here) return here.error().message();
    if (*reinterpret_cast<int*>(memory.at + pages * page + 72) != 9) return "another place";

    const std::size_t bytes = comm.rank() == 0 ? 0 : 128;
    const auto apart = Window::create(comm, memory.at + bytes, page);
    if (!apart) return apart.error().message();
    const auto refused = KernelWindow::create(*apart, 0);
    if (refused) return "it is not refused";
    if (refused.error().code != Errc::not_supported) return refused.error().message();
    return mentions(refused.error().what, "ncclMemAlloc") ? "" : refused.error().what;
  });
}

TEST_CASE("memory of more than 4 GiB has a larger distance") {
  auto comms = create_ranks(2);
  auto cuda = **detail::cuda_driver();
  cuda.memset_async = [](CUdeviceptr, unsigned char, std::size_t, CUstream) {
    return CUDA_SUCCESS;  // it is zeroed, and has no pages yet
  };
  detail::use_cuda_driver(cuda, 2);
  each_comm(comms, [](Communicator& comm) -> std::string {
    constexpr std::size_t bytes = std::size_t{5} << 30, last = bytes - sizeof(int);
    const Taken memory{comm.device(), bytes};
    const auto window = Window::create(comm, memory.at, Index(bytes));
    if (!window) return window.error().message();
    const auto made = KernelWindow::create(*window, 0);
    if (!made) return made.error().message();
    if ((*made)->content().stride4G != 2) return "another distance";
    *in_window<int>((*made)->content(), 1 - comm.rank(), last) = 40 + comm.rank();
    if (const auto here = comm.barrier(); !here) return here.error().message();
    return *reinterpret_cast<int*>(memory.at + last) == 41 - comm.rank() ? "" : "another place";
  });
}

TEST_CASE("memory without a cuMem handle is refused for kernels by name") {
  auto comms = create_ranks(2);
  each_comm(comms, [](Communicator& comm) -> std::string {
    const detail::CudaDriver& cuda = **detail::cuda_driver();
    CUdeviceptr legacy = 0;
    {
      const detail::Gpu::Current current{*detail::Access::state(comm)->device.gpu};
      (void)cuda.mem_alloc(&legacy, page);
    }
    const auto window = Window::create(comm, reinterpret_cast<void*>(legacy), page);
    if (!window) return window.error().message();
    const auto refused = KernelWindow::create(*window, 0);
    if (refused) return "it is not refused";
    if (refused.error().code != Errc::not_supported) return refused.error().message();
    return mentions(refused.error().what, "ncclMemAlloc") ? "" : refused.error().what;
  });
}
