// Windows of GPU ranks in the program's own memory. The driver's GPUs are plain memory.
#include <ccl/comm/window.hpp>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "support/driver.hpp"
#include "support/environment.hpp"
#include "support/error_matchers.hpp"
#include "support/gpu_ranks.hpp"
#include "support/id_between.hpp"
#include "support/pointer_attributes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

/// Legacy memory as the driver describes it.
CUresult describe(unsigned count, CUpointer_attribute* what, void** to, CUdeviceptr at) {
  FakeGpus& all = fake::gpus();
  const std::lock_guard lock{all.mutex};
  const FakeGpus::Region* const region = all.region(reinterpret_cast<void*>(at));
  if (region == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUdeviceptr begin = std::prev(all.regions.upper_bound(at))->first;
  FakeAllocation memory{begin, region->bytes};
  memory.on_device = at;
  memory.device = region->device;
  memory.legacy = region->fd >= 0;
  return answer_attributes(memory, count, what, to);
}

/// Copies that the program's memory takes part in.
std::atomic<CUdeviceptr> watched_begin{0};
std::atomic<int> copies_of_program{0};
constexpr std::size_t large = 4 << 20;

CUresult copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  const auto touches = [](CUdeviceptr at) {
    return at >= watched_begin && at < watched_begin + large;
  };
  copies_of_program += int(touches(to) || touches(from));
  return fake::copy(to, from, bytes, stream);
}

void install(int devices) {
  (void)gpus(devices);
  auto cuda = fake::driver();
  cuda.pointer_get_attributes = describe;
  cuda.memcpy_async = copy;
  detail::use_cuda_driver(cuda, devices);
}

std::byte* allocate(int device, std::size_t bytes) {
  const detail::CudaDriver& cuda = **detail::cuda_driver();
  CUdeviceptr at = 0;
  (void)cuda.ctx_push_current(fake::context_of(device));
  CHECK(cuda.mem_alloc(&at, bytes) == CUDA_SUCCESS);
  CUcontext mine;
  (void)cuda.ctx_pop_current(&mine);
  return reinterpret_cast<std::byte*>(at);
}

}  // namespace

TEST_CASE("the program's memory is left alone while a window is made of it") {
  install(2);
  const auto comms = create({0, 1});
  std::vector<std::string> wrong(2, "did not run");
  watched_begin = reinterpret_cast<CUdeviceptr>(allocate(0, large));
  std::byte* const memory[] = {reinterpret_cast<std::byte*>(watched_begin.load()),
                               allocate(1, large)};
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 2; ++r) {
    REQUIRE(comms[r]);
    threads.emplace_back([&, r] {
      const auto window = Window::create(*comms[r], memory[r], Index{large});
      wrong[r] = window ? "" : window.error().message();
      if (window && window->at(int(1 - r)) != memory[1 - r]) wrong[r] = "another address";
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == std::vector<std::string>(2));
  CHECK(copies_of_program == 0);
}

namespace {
/// Each rank finds what the other has written to its part.
std::string read_parts(const Communicator& comm, const Window& window) {
  const int me = comm.rank(), peer = 1 - me;
  window.of<int>(me)[3] = 100 + me;
  if (const auto all = comm.barrier(); !all) return all.error().message();
  if (window.of<int>(peer)[3] != 100 + peer) return "another memory";
  const auto all = comm.barrier();
  return all ? "" : all.error().message();
}

/// One of two processes.
std::string make_windows(int rank, int fd) {
  const UniqueId id = id_between(rank, fd);
  install(2);
  Config config;
  config.device = rank;
  const auto comm = Communicator::create(id, rank, 2, config);
  if (!comm) return comm.error().message();
  const auto whole = Window::create(*comm, allocate(rank, large), Index{large});
  if (!whole) return whole.error().message();
  if (auto wrong = read_parts(*comm, *whole); !wrong.empty()) return wrong;
  const auto memory = SharedMemory::allocate(*comm, 4096);
  if (!memory) return memory.error().message();
  const auto shares = Window::create(*comm, *memory);
  if (!shares) return shares.error().message();
  if (auto wrong = read_parts(*comm, *shares); !wrong.empty()) return wrong;
  // Pages of 2 MiB hold several of these, so a mapping elsewhere in a page is another's memory.
  constexpr std::size_t small = 64 << 10;
  allocate(rank, small * std::size_t(1 + rank));
  const auto shared = Window::create(*comm, allocate(rank, small), Index{small});
  if (shared) return "a small allocation was taken";
  if (shared.error().code != Errc::not_supported) return shared.error().message();
  if (!mentions(shared.error().what, "shares its pages")) return shared.error().message();
  const auto ended = comm->finalize();
  return ended ? "" : ended.error().message();
}
}  // namespace

TEST_CASE("a mapping that begins elsewhere in its pages makes no window") {
  CHECK(alone_with_child([](int fd) { return make_windows(1, fd); },
                         [](int fd, pid_t) { return make_windows(0, fd); }) == "");
}
