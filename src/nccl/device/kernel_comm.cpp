#include "nccl/device/kernel_comm.hpp"

#include <ccl/detail/runtime/settings.hpp>
#include <ccl/transport/p2p.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "base/exceptions.hpp"
#include "comm/edges/window_state.hpp"
#include "comm/part_rules.hpp"
#include "comm/rank_results.hpp"
#include "comm/state.hpp"
#include "nccl/device/kernel_needs.hpp"

namespace ccl::detail::nccl {

int local_ranks(const Communicator& comm) {
  const int ranks = comm.ranks();
  int count = 1;
  while (count < ranks && comm.peer(count).host_hash == comm.peer(0).host_hash) ++count;
  if (ranks % count != 0) return 1;
  for (int r = 0; r < ranks; ++r) {
    const bool begins = r % count == 0;
    if (r > 0 && begins == (comm.peer(r).host_hash == comm.peer(r - 1).host_hash)) return 1;
  }
  return count;
}

namespace {

constexpr const char* who = "ncclDevCommCreate";

cuda::std::unexpected<Error> cannot(const std::string& why) {
  return fail(Errc::not_supported,
              fmt::format("kernels cannot use this communicator by NCCL's device interface ({}); "
                          "ask ncclCommQueryProperties before, or name a libnccl.so.2 of NVIDIA "
                          "with CCL_NCCL_FALLBACK on all ranks",
                          why));
}

/// Checks what all ranks know alike, so that none waits for another.
Result<void> check_ranks(const Communicator& comm) {
  if (comm.device() < 0) return cannot("its ranks are on CPUs");
  if (local_ranks(comm) != comm.ranks()) return cannot("its ranks are on several hosts");
  return {};
}

Result<void> check_handles(const Gpu& gpu) {
  CCL_TRY(const bool wanted, setting_flag("CUMEM_ENABLE"));
  if (!wanted) return cannot("CCL_CUMEM_ENABLE is 0, and the memory has no cuMem handles");
  for (const auto needed : {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                            CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED}) {
    int has = 0;
    (void)gpu.driver().device_get_attribute(&has, needed, gpu.device());
    if (has == 0) return cannot("memory of the GPU has no cuMem handles");
  }
  return {};
}

/// All ranks' results; with a lone rank its own.
Result<void> agree(CommState& state, const Result<void>& mine) {
  if (state.identity.ranks() == 1) return mine;
  const auto lock = state.rendezvous.lock();
  return all_agree(state, who, mine);
}

/// Requirements of one rank, exchanged between ranks.
struct Asked {
  Index bytes = 0;
  std::uint64_t fingerprint = 0;
};

/// Agrees on the resources of all ranks.
Result<void> compare(CommState& state, const Asked& mine) {
  if (state.identity.ranks() == 1) return {};
  const auto lock = state.rendezvous.lock();
  std::vector<Asked> all(std::size_t(state.identity.ranks()), Asked{});
  all[std::size_t(state.identity.rank())] = mine;
  CCL_CHECK(state.rendezvous.after_creation(state.rendezvous.bootstrap()->all_gather(
      all.data(), Index{sizeof(Asked)}, {}, {"the creation of", "a communicator of kernels"})));
  for (int p = 0; p < state.identity.ranks(); ++p) {
    const Asked& theirs = all[std::size_t(p)];
    if (theirs.bytes == mine.bytes && theirs.fingerprint == mine.fingerprint) continue;
    Error error{Errc::mismatch,
                fmt::format("the ranks' requirements of {} differ (rank {} asks for {} bytes of "
                            "resources, and rank {} for {} bytes or in another order); pass equal "
                            "ones on all ranks",
                            who, p, theirs.bytes, state.identity.rank(), mine.bytes)};
    error.peer = p;
    return fail(std::move(error));
  }
  return {};
}

/// Returns floor(2^32 / x) in 32 bits, by which kernels multiply in place of a division by x.
std::uint32_t reciprocal(int x) {
  return std::uint32_t((std::uint64_t{1} << 32) / std::uint64_t(x));
}

struct Facts {
  const Communicator& comm;
  const KernelNeeds& needs;
  const KernelWindow& resources;
  ncclDevCommWindowTable* windows;
  std::uint32_t* abort;
};

/// Writes the structure of one version. Its members for networks stay 0.
template <class T>
void write(const Facts& facts, void* made) {
  T all{};
  if constexpr (requires { all.version; }) {
    all.magic = NCCL_API_MAGIC;
    all.version = facts.needs.version();
  }
  all.rank = all.lsaRank = facts.comm.rank();
  all.nRanks = all.lsaSize = facts.comm.ranks();
  all.nRanks_rcp32 = all.lsaSize_rcp32 = reciprocal(facts.comm.ranks());
  all.windowTable = facts.windows;
  all.resourceWindow = facts.resources.handle();
  const ncclWindow_vidmem& window = facts.resources.content();
  all.resourceWindow_inlined.lsaFlatBase = window.lsaFlatBase;
  all.resourceWindow_inlined.stride4G = window.stride4G;
  if constexpr (requires { all.resourceWindow_inlined.lsaRank; }) {
    all.resourceWindow_inlined.lsaRank = window.lsaRank;
    all.resourceWindow_inlined.worldRank = window.worldRank;
  }
  all.lsaBarrier = facts.needs.barrier();
  if constexpr (requires { all.hybridLsaBarrier; }) {
    all.hybridLsaBarrier = facts.needs.hybrid_barrier();
  }
  if constexpr (requires { all.abortFlag; }) all.abortFlag = facts.abort;
  std::memcpy(made, &all, sizeof all);
}

void write_layout(const Facts& facts, void* made) {
  switch (facts.needs.layout()) {
    case DevCommLayout::v2_28:
      return write<DevComm228>(facts, made);
    case DevCommLayout::v2_29_7:
      return write<DevComm229>(facts, made);
    case DevCommLayout::v2_30:
      return write<DevComm230>(facts, made);
    case DevCommLayout::v2_31:
      return write<DevComm231>(facts, made);
  }
}

}  // namespace

Result<void> check_kernels_reach_all(const Communicator& comm) {
  CCL_CHECK(check_ranks(comm));
  CCL_CHECK(check_handles(*Access::state(comm)->device.gpu));
  for (int p = 0; p < comm.ranks(); ++p) {
    if (p == comm.rank()) continue;
    const auto [low, high] = std::minmax({p, comm.rank()});
    if (auto reached = P2pTransport::can_address(comm.peer(low), comm.peer(high)); !reached) {
      return cannot(fmt::format("rank {} and rank {} do not address each other's memory: {}", low,
                                high, reached.error().what));
    }
  }
  return {};
}

ncclWindow_t KernelComm::window_in(const void* dev_comm) {
  unsigned first = 0;
  std::memcpy(&first, dev_comm, sizeof first);
  const std::size_t at = first == NCCL_API_MAGIC ? offsetof(DevComm231, resourceWindow)
                                                 : offsetof(DevComm228, resourceWindow);
  static_assert(offsetof(DevComm230, resourceWindow) == offsetof(DevComm231, resourceWindow));
  ncclWindow_t window = nullptr;
  std::memcpy(static_cast<void*>(&window), static_cast<const std::byte*>(dev_comm) + at,
              sizeof(void*));
  return window;
}

Result<std::shared_ptr<KernelComm>> KernelComm::create(const Communicator& comm, const void* wants,
                                                       void* made, const Table& table) {
  auto created = make(comm, wants, made, table);
  if (created) return created;
  return fail(Access::state(comm)->annotate(std::move(created).error()));
}

Result<std::shared_ptr<KernelComm>> KernelComm::make(const Communicator& comm, const void* wants,
                                                     void* made, const Table& table) {
  CommState& state = *Access::state(comm);
  CCL_CHECK(state.ready());
  CCL_CHECK(check_ranks(comm));
  std::optional<KernelNeeds> needs;
  const auto asked = without_exceptions([&]() -> Result<void> {
    if (made == nullptr) return fail(Errc::invalid_argument, "outDevComm is null");
    CCL_CHECK(check_kernels_reach_all(comm));
    CCL_TRY(needs, KernelNeeds::read(wants, comm.ranks()));
    return {};
  });
  CCL_CHECK(agree(state, asked));
  const Index bytes = Index(needs->bytes());
  CCL_CHECK(compare(state, {bytes, needs->fingerprint()}));
  auto memory = SharedMemory::allocate(comm, bytes);  // zeroed before any rank's kernel runs
  CCL_CHECK(agree(state, memory ? Result<void>{} : fail(memory.error())));
  CCL_TRY(Window window, Window::create(comm, *memory));
  WindowState::hold_no_buffers(window);
  std::shared_ptr<KernelComm> all{new KernelComm{*std::move(memory), std::move(window)}};
  WindowTable* windows = nullptr;
  const auto seen = without_exceptions([&]() -> Result<void> {
    CCL_TRY(all->view_, KernelWindow::create(all->window_, NCCL_WIN_DEFAULT));
    CCL_TRY(windows, table());
    return {};
  });
  CCL_CHECK(agree(state, seen));
  auto* const abort = reinterpret_cast<std::uint32_t*>(&state.device.gpu->watched().stop);
  write_layout({comm, *needs, *all->view_, windows->at(), abort}, made);
  needs->write_handles();
  return all;
}

}  // namespace ccl::detail::nccl
