#include "nccl/device/kernel_needs.hpp"

#include <ccl/types/word.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

namespace ccl::detail::nccl {
namespace {

constexpr std::size_t handle_unit = 128;  // bytes; a handle is an offset in this unit
constexpr std::size_t max_bytes = std::size_t{1} << 38;
constexpr int max_nodes = 1 << 20;  // of a list

struct Header {
  std::size_t size;
  unsigned magic, version;
};
static_assert(sizeof(Header) == 16);

/// Known structures: those of NVIDIA's headers 2.28.9, 2.29.2, 2.29.7, 2.30.4, 2.30.7, 2.31.2 and
/// 2.32.3.
struct Known {
  std::size_t size;
  unsigned first, end;  // versions
  DevCommLayout layout;
};
constexpr Known known[] = {{72, 22900, 23000, DevCommLayout::v2_28},
                           {88, 22900, 23000, DevCommLayout::v2_29_7},
                           {96, 23000, 23100, DevCommLayout::v2_30},
                           {120, 23100, NCCL_VERSION_CODE + 1, DevCommLayout::v2_31}};

cuda::std::unexpected<Error> refuse(const char* what, const char* why) {
  return fail(Errc::not_supported,
              fmt::format("ncclDevCommCreate was asked for {} by {}, and ccl's kernels' "
                          "communicators reach memory of one host alone; ask "
                          "ncclCommQueryProperties before, or name a libnccl.so.2 of NVIDIA with "
                          "CCL_NCCL_FALLBACK on all ranks",
                          what, why));
}

Result<void> check_has(const DevCommRequirements& given) {
  constexpr const char *gin = "networking from kernels (GIN)", *cft = "CFT",
                       *multimem = "multicast addresses (multimem)";
  if (given.ginForceEnable) return refuse(gin, "ginForceEnable");
  if (given.ginSignalCount > 0) return refuse(gin, "ginSignalCount");
  if (given.ginCounterCount > 0) return refuse(gin, "ginCounterCount");
  if (given.ginConnectionType != 0) return refuse(gin, "ginConnectionType");
  if (given.railGinBarrierCount > 0) return refuse(gin, "railGinBarrierCount");
  if (given.worldGinBarrierCount > 0) return refuse(gin, "worldGinBarrierCount");
  if (given.lsaMultimem) return refuse(multimem, "lsaMultimem");
  if (given.cftCaps != 0) return refuse(cft, "cftCaps");
  if (given.cftBarrierCount > 0) return refuse(cft, "cftBarrierCount");
  int nodes = 0;
  for (const auto* team = given.teamRequirementsList; team != nullptr; team = team->next) {
    if (team->multimem) return refuse(multimem, "a team");
    if (++nodes > max_nodes) break;
  }
  for (const auto* one = given.resourceRequirementsList; one != nullptr; one = one->next) {
    if (one->ginSignalCount > 0) return refuse(gin, "ginSignalCount of a resource");
    if (one->ginCounterCount > 0) return refuse(gin, "ginCounterCount of a resource");
    if (++nodes > max_nodes) break;
  }
  if (nodes <= max_nodes) return {};
  return fail(
      Errc::invalid_argument,
      "a list of the requirements has more than a million nodes; end it with a null `next`");
}

Result<void> check_count(const char* name, int count) {
  if (count >= 0 && count <= max_nodes) return {};
  return fail(Errc::invalid_argument,
              fmt::format("{} is {}; pass 0 to {}", name, count, max_nodes));
}

}  // namespace

Result<KernelNeeds> KernelNeeds::read(const void* wants, int ranks) {
  if (wants == nullptr) return fail(Errc::invalid_argument, "reqs is null, and the call reads it");
  KernelNeeds needs;
  DevCommRequirements given{};
  CCL_CHECK(needs.read_header(wants, given));
  CCL_CHECK(check_has(given));
  CCL_CHECK(needs.place_all(given, ranks));
  return needs;
}

/// Reads the members that the caller's version has. The others stay 0.
Result<void> KernelNeeds::read_header(const void* wants, DevCommRequirements& given) {
  Header header;
  std::memcpy(&header, wants, sizeof header);
  const auto* const begin = static_cast<const std::byte*>(wants);
  constexpr std::size_t first_page = 4096;  // where no pointer of 2.28 points to
  if (header.size == 0 || header.size >= first_page) {
    std::memcpy(&given, begin, offsetof(DevCommRequirements, ginConnectionType));
    return {};
  }
  if (header.magic != NCCL_API_MAGIC) {
    return fail(Errc::invalid_usage,
                "reqs was not begun with NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER; begin it so");
  }
  const auto* const found = std::ranges::find_if(known, [&](const Known& one) {
    return one.size == header.size && header.version >= one.first && header.version < one.end;
  });
  if (found == std::end(known)) {
    return fail(Errc::invalid_usage,
                fmt::format("the requirements of ncclDevCommCreate have {} bytes and version {}, "
                            "and ccl knows the layouts of NCCL 2.28.9 to {}.{}.{}; compile the "
                            "kernels with the headers of one of those",
                            header.size, header.version, NCCL_VERSION_CODE / 10000,
                            NCCL_VERSION_CODE / 100 % 100, NCCL_VERSION_CODE % 100));
  }
  layout_ = found->layout;
  std::memcpy(&given, begin + sizeof header, std::min(header.size - sizeof header, sizeof given));
  version_ = given.useRuntimeVersion ? NCCL_VERSION_CODE : header.version;
  return {};
}

Result<ncclDevResourceHandle_t> KernelNeeds::place(std::size_t bytes, std::size_t align) {
  const std::size_t unit = std::lcm(std::max<std::size_t>(align, 1), handle_unit);
  if (align > max_bytes || bytes > max_bytes || bytes_ + unit + bytes > max_bytes) {
    return fail(Errc::invalid_argument,
                fmt::format("a resource of ncclDevCommCreate has {} bytes with an alignment of {}; "
                            "all resources may have {} bytes",
                            bytes, align, max_bytes));
  }
  const std::size_t at = div_up(bytes_, unit) * unit;
  bytes_ = at + bytes;
  for (const std::uint64_t part : {std::uint64_t(at), std::uint64_t(bytes)}) {
    fingerprint_ = (fingerprint_ ^ part) * 0x100000001b3;  // FNV
  }
  return ncclDevResourceHandle_t(at / handle_unit);
}

Result<void> KernelNeeds::place_all(const DevCommRequirements& given, int ranks) {
  CCL_CHECK(check_count("barrierCount", given.barrierCount));
  CCL_CHECK(check_count("lsaBarrierCount", given.lsaBarrierCount));
  constexpr std::size_t word = sizeof(std::uint32_t);
  hybrid_barrier_.nBarriers = given.barrierCount;
  CCL_TRY(hybrid_barrier_.bufHandle, place(lsa_barrier_bytes(given.barrierCount, ranks), word));
  // Until 2.29 sessions of both counts use this one.
  barrier_.nBarriers = std::max(given.barrierCount, given.lsaBarrierCount);
  CCL_TRY(barrier_.bufHandle, place(lsa_barrier_bytes(barrier_.nBarriers, ranks), word));
  for (const auto* one = given.resourceRequirementsList; one != nullptr; one = one->next) {
    CCL_TRY(const auto handle, place(one->bufferSize, one->bufferAlign));
    if (one->outBufferHandle != nullptr) handles_.push_back({one->outBufferHandle, handle});
  }
  bytes_ = div_up(std::max<std::size_t>(bytes_, 1), handle_unit) * handle_unit;
  return {};
}

void KernelNeeds::write_handles() const {
  for (const Handle& one : handles_) *one.to = one.handle;
}

}  // namespace ccl::detail::nccl
