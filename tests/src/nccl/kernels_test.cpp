// NCCL's functions for kernels' windows and communicators, on ranks with GPUs. The driver's GPUs
// are plain memory.
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "nccl/abi/device_layouts.hpp"
#include "nccl/device/allocations.hpp"
#include "nccl/device/flat_range.hpp"
#include "nccl/device/signals.hpp"
#include "nccl/group.hpp"
#include "support/environment.hpp"
#include "support/gpu_ranks.hpp"
#include "support/kernel_wants.hpp"
#include "support/nccl_ranks.hpp"
#include "support/region_attributes.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail::nccl;

namespace ccl::detail::nccl {
namespace {
class None : public Operations {
 public:
  Result<void> run(const Call&) override { return {}; }
  Result<Choice> choice(const Call&) override { return Choice{}; }
  Result<double> predict(const Call&) const override { return 0.0; }
  Result<void> exchange(std::span<const Call>) override { return {}; }
};
}  // namespace
Result<std::unique_ptr<Operations>> Operations::create(const Communicator&, const MemberConfig&) {
  return std::unique_ptr<Operations>{std::make_unique<None>()};
}
Result<void> load_signals_on_gpu() {
  return {};
}
Result<void> put_on_gpu(void*, const void*, std::size_t, std::uint64_t*, std::uint64_t*,
                        cudaStream_t) {
  return {};
}
Result<void> signal_on_gpu(std::uint64_t*, cudaStream_t) {
  return {};
}
Result<void> wait_on_gpu(const std::uint64_t*, std::uint64_t*, std::uint64_t, int,
                         const AbortWatch&, cudaStream_t) {
  return {};
}
}  // namespace ccl::detail::nccl

namespace {

constexpr std::size_t bytes = 1 << 16;

struct TwoRanks {
  std::array<ncclComm_t, 2> comms{};
  std::array<std::byte*, 2> memory{};
  std::array<ncclWindow_t, 2> windows{};

  explicit TwoRanks(bool blocking = true) {
    install_gpus(2);
    const auto made = create({0, 1});
    for (std::size_t r = 0; r < 2; ++r) {
      REQUIRE(made[r]);
      MemberConfig config;
      config.blocking = blocking;
      auto member = std::make_shared<Member>(made[r]->device(), config, "ranks");
      REQUIRE(member->create([&] { return made[r]; }));
      comms[r] = new_handle(std::move(member));
      const auto taken = allocate_shareable(int(r), bytes);
      REQUIRE(taken);
      memory[r] = static_cast<std::byte*>(*taken);
    }
  }
  ~TwoRanks() {
    for (std::size_t r = 0; r < 2; ++r) {
      if (auto member = take_from(comms[r])) CHECK((*member)->end(EndWaits::own_work));
      CHECK(release_shareable(memory[r]));
    }
  }
  TwoRanks(const TwoRanks&) = delete;
  TwoRanks& operator=(const TwoRanks&) = delete;

  /// f(rank, communicator) of both in one group.
  template <class F>
  ncclResult_t group(F&& f) const {
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (std::size_t r = 0; r < 2; ++r) CHECK(f(r, comms[r]) == ncclSuccess);
    return ncclGroupEnd();
  }
  ncclResult_t register_at(const std::array<std::byte*, 2>& at, std::array<ncclWindow_t, 2>& made,
                           std::size_t size = bytes) {
    return group([&](std::size_t r, ncclComm_t comm) {
      return ncclCommWindowRegister(comm, at[r], size, &made[r], NCCL_WIN_COLL_SYMMETRIC);
    });
  }
  /// Memory without a cuMem handle.
  std::array<std::byte*, 2> legacy() {
    const detail::CudaDriver& cuda = **detail::cuda_driver();
    std::array<std::byte*, 2> all{};
    for (std::size_t r = 0; r < 2; ++r) {
      (void)cuda.ctx_push_current(fake::context_of(int(r)));
      CUdeviceptr at = 0;
      (void)cuda.mem_alloc(&at, bytes);
      CUcontext mine;
      (void)cuda.ctx_pop_current(&mine);
      all[r] = reinterpret_cast<std::byte*>(at);
    }
    return all;
  }
  ncclResult_t create_comms(std::array<DevComm231, 2>& made) const {
    DevCommRequirements needs = usual_wants();
    needs.lsaBarrierCount = 2;
    const auto wants = wants_of(NCCL_VERSION_CODE, needs);
    return group([&](std::size_t r, ncclComm_t comm) {
      return ncclDevCommCreate(comm, wants.data(), &made[r]);
    });
  }
};

/// What kernels find at an address.
ncclWindow_t find(const DevComm231& comm, const void* at) {
  const auto where = reinterpret_cast<std::uintptr_t>(at);
  for (const auto* page = comm.windowTable; page != nullptr; page = page->next) {
    for (const auto& entry : page->entries) {
      if (entry.window != nullptr && where - entry.base < entry.size) return entry.window;
    }
  }
  return nullptr;
}

}  // namespace

TEST_CASE("a window's handle is the address of its structure, and functions of the host take it") {
  TwoRanks ranks;
  REQUIRE(ranks.register_at(ranks.memory, ranks.windows) == ncclSuccess);
  for (const int r : {0, 1}) {
    const auto n = std::size_t(r);
    const ncclWindow_vidmem& seen = *ranks.windows[n];
    CHECK(fake::gpus().region(&seen)->device == r);
    CHECK(seen.lsaRank == r);
    CHECK(seen.winFlags == NCCL_WIN_COLL_SYMMETRIC);
    seen.lsaFlatBase[std::size_t(1 - r) * seen.stride4G * (std::size_t{1} << 32) + 5] = char(r + 1);
    void* at = nullptr;
    CHECK(ncclWinGetUserPtr(ranks.comms[n], ranks.windows[n], &at) == ncclSuccess);
    CHECK(at == ranks.memory[n]);
    CHECK(ncclGetPeerDevicePointer(ranks.windows[n], 8, r, &at) == ncclSuccess);
    CHECK(at == ranks.memory[n] + 8);
    CHECK(ncclGetLsaDevicePointer(ranks.windows[n], 0, 2, &at) == ncclInvalidArgument);
  }
  CHECK((ranks.memory[0][5] == std::byte{2} && ranks.memory[1][5] == std::byte{1}));
  CHECK(ncclCommWindowDeregister(ranks.comms[0], ranks.windows[1]) == ncclInvalidArgument);
  CHECK(ncclCommWindowDeregister(ranks.comms[0], ranks.windows[0]) == ncclSuccess);
  void* at = nullptr;
  CHECK(ncclWinGetUserPtr(ranks.comms[0], ranks.windows[0], &at) == ncclInvalidArgument);
  CHECK(last_error_has("deregistered"));
  CHECK(ncclWinGetUserPtr(ranks.comms[1], ranks.windows[1], &at) == ncclSuccess);
}

TEST_CASE("communicators of kernels know windows that are registered before and after") {
  TwoRanks ranks;
  std::array<ncclWindow_t, 2> first{}, second{};
  REQUIRE(ranks.register_at(ranks.memory, first, bytes / 2) == ncclSuccess);
  std::array<DevComm231, 2> made{};
  REQUIRE(ranks.create_comms(made) == ncclSuccess);
  const std::array<std::byte*, 2> behind{ranks.memory[0] + bytes / 2, ranks.memory[1] + bytes / 2};
  REQUIRE(ranks.register_at(behind, second, bytes / 2) == ncclSuccess);
  for (const std::size_t r : {0, 1}) {
    CHECK(made[r].version == NCCL_VERSION_CODE);
    CHECK(made[r].lsaBarrier.nBarriers == 2);
    CHECK(find(made[r], ranks.memory[r] + 7) == first[r]);
    CHECK(find(made[r], behind[r] + bytes / 2 - 1) == second[r]);
    CHECK(find(made[r], behind[r] + bytes / 2) == nullptr);
    REQUIRE(ncclCommWindowDeregister(ranks.comms[r], first[r]) == ncclSuccess);
    CHECK(find(made[r], ranks.memory[r]) == nullptr);
    CHECK(find(made[r], behind[r]) == second[r]);
  }
  // Of another rank, twice, and of none.
  CHECK(ncclDevCommDestroy(ranks.comms[0], &made[1]) == ncclInvalidArgument);
  for (const std::size_t r : {0, 1}) {
    CHECK(ncclDevCommDestroy(ranks.comms[r], &made[r]) == ncclSuccess);
    CHECK(ncclDevCommDestroy(ranks.comms[r], &made[r]) == ncclInvalidArgument);
  }
  const DevComm231 none{};
  CHECK(ncclDevCommDestroy(ranks.comms[0], &none) == ncclInvalidArgument);
}

TEST_CASE("communicators of kernels that nobody destroys end with their communicator") {
  std::size_t before = 0;
  for (int time = 0; time < 3; ++time) {
    {
      TwoRanks ranks;
      std::array<DevComm231, 2> made{}, more{};
      REQUIRE(ranks.register_at(ranks.memory, ranks.windows) == ncclSuccess);
      REQUIRE(ranks.create_comms(made) == ncclSuccess);
      REQUIRE(ranks.create_comms(more) == ncclSuccess);
      CHECK(made[0].resourceWindow != more[0].resourceWindow);
    }
    const std::size_t now = fake::gpus().regions.size();
    if (time > 0) CHECK(now == before);  // the first time, memory of the process came
    before = now;
  }
}

TEST_CASE("properties say what kernels can do on this machine") {
  TwoRanks ranks;
  ncclCommProperties_t all{};
  const auto ask = [&] {
    all = {};
    all.size = sizeof all;
    all.magic = NCCL_API_MAGIC;
    all.version = NCCL_VERSION_CODE;
    return ncclCommQueryProperties(ranks.comms[1], &all);
  };
  REQUIRE(ask() == ncclSuccess);
  CHECK(all.deviceApiSupport);
  CHECK_FALSE(all.multimemSupport);
  CHECK(all.devCommRuntimeVersionSize == sizeof(DevComm231));
  const Environment legacy{"CCL_CUMEM_ENABLE", "0"};
  REQUIRE(ask() == ncclSuccess);
  CHECK_FALSE(all.deviceApiSupport);
}

TEST_CASE("memory without cuMem handles is for calls of the host, or refused beside kernels") {
  TwoRanks ranks;
  const auto memory = ranks.legacy();
  REQUIRE(ranks.register_at(memory, ranks.windows) == ncclSuccess);
  for (const std::size_t r : {0, 1}) {
    REQUIRE(ranks.windows[r] != nullptr);
    CHECK(fake::gpus().region(ranks.windows[r]) == nullptr);  // it is no structure of kernels
    void* at = nullptr;
    CHECK(ncclWinGetUserPtr(ranks.comms[r], ranks.windows[r], &at) == ncclSuccess);
    CHECK(at == memory[r]);
    CHECK(ncclCommWindowDeregister(ranks.comms[r], ranks.windows[r]) == ncclSuccess);
  }
  std::array<DevComm231, 2> made{};
  REQUIRE(ranks.create_comms(made) == ncclSuccess);
  CHECK(ranks.register_at(memory, ranks.windows) == ncclInvalidUsage);
  CHECK(last_error_has("ncclMemAlloc"));
  CHECK((ranks.windows[0] == nullptr && ranks.windows[1] == nullptr));
  CHECK(ranks.register_at(ranks.memory, ranks.windows) == ncclSuccess);
}

TEST_CASE("without addresses on one rank, a window is for calls of the host on all") {
  TwoRanks ranks;
  {
    auto cuda = **detail::cuda_driver();
    static const auto reserve = cuda.mem_address_reserve;
    cuda.mem_address_reserve = [](CUdeviceptr* at, std::size_t size, std::size_t alignment,
                                  CUdeviceptr where, unsigned long long flags) {
      if (size >= FlatRange::stride_unit && fake::current() == 1) return CUDA_ERROR_OUT_OF_MEMORY;
      return reserve(at, size, alignment, where, flags);
    };
    detail::use_cuda_driver(cuda, 2);
    REQUIRE(ranks.register_at(ranks.memory, ranks.windows) == ncclSuccess);
    cuda.mem_address_reserve = reserve;
    detail::use_cuda_driver(cuda, 2);
  }
  for (const ncclWindow_t window : ranks.windows) {
    REQUIRE(window != nullptr);
    CHECK(fake::gpus().region(window) == nullptr);
    void* at = nullptr;
    CHECK(ncclGetPeerDevicePointer(window, 0, 1, &at) == ncclSuccess);
    CHECK(at == ranks.memory[1]);
  }
}

TEST_CASE("a suspended communicator keeps the memory of its kernels' communicators") {
  TwoRanks ranks;
  REQUIRE(ranks.register_at(ranks.memory, ranks.windows) == ncclSuccess);
  std::array<DevComm231, 2> made{}, more{};
  REQUIRE(ranks.create_comms(made) == ncclSuccess);
  const auto all = [&](auto call) {
    return ranks.group([&](std::size_t, ncclComm_t comm) { return call(comm); });
  };
  const auto word = [&](std::size_t seen_by, std::size_t of) -> std::uint32_t& {
    const ncclWindow_vidmem& window = *made[seen_by].resourceWindow;
    return *reinterpret_cast<std::uint32_t*>(window.lsaFlatBase +
                                             of * window.stride4G * (std::size_t{1} << 32));
  };
  word(0, 1) = 17;
  REQUIRE(all([](ncclComm_t comm) { return ncclCommSuspend(comm, NCCL_SUSPEND_MEM); }) ==
          ncclSuccess);
  CHECK(word(1, 1) == 17);
  CHECK(ranks.create_comms(more) == ncclInvalidUsage);
  CHECK(last_error_has("ncclCommResume"));
  REQUIRE(all(ncclCommResume) == ncclSuccess);
  CHECK(word(1, 1) == 17);
  word(1, 0) = 3;
  CHECK(word(0, 0) == 3);
  CHECK(ranks.create_comms(more) == ncclSuccess);
}

TEST_CASE("a communicator that does not block makes those of kernels later") {
  TwoRanks ranks{false};
  const auto wants = wants_of(23102, usual_wants());
  std::array<DevComm231, 2> made{};
  for (const std::size_t r : {0, 1}) {
    const auto code = ncclDevCommCreate(ranks.comms[r], wants.data(), &made[r]);
    CHECK((code == ncclInProgress || code == ncclSuccess));
  }
  for (const std::size_t r : {0, 1}) {
    const auto member = member_of(ranks.comms[r]);
    REQUIRE(member);
    (*member)->wait_deferred();
    CHECK((*member)->status());
    CHECK(made[r].nRanks == 2);
    CHECK(ncclDevCommDestroy(ranks.comms[r], &made[r]) == ncclSuccess);
  }
}
