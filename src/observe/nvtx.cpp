#include "comm/observe/nvtx.hpp"

#include <ccl/detail/runtime/call_info.hpp>
#include <ccl/detail/runtime/connections.hpp>

#include "base/exceptions.hpp"
#include "base/fork_mutex.hpp"
#include "comm/state.hpp"
#if __has_include(<nvtx3/nvToolsExt.h>)
#  include <cstdint>
#  include <mutex>
#  include <set>

#  include <nvtx3/nvToolsExt.h>
#endif

namespace ccl::detail {

#if __has_include(<nvtx3/nvToolsExt.h>)
namespace {

/// Null without a tool.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t of_process = nvtxDomainCreateA("ccl");
  return of_process;
}

/// Returns the category of a communicator. Names it at its first call.
std::uint32_t category_of(const CommState& state) {
  const Word id = state.identity.id();
  const auto category = std::uint32_t(id ^ id >> 32);
  // Never destroyed: calls may outlive static objects.
  static auto& named = *new std::set<std::uint32_t>;
  static auto& mutex = *new ForkMutex{[] { renew(named); }};
  (void)completes([&] {
    const std::lock_guard lock{mutex};
    if (!named.insert(category).second) return;
    nvtxDomainNameCategoryA(domain(), category, say(state.identity).c_str());
  });
  return category;
}

// Apart, so that a call without a tool saves no registers.
[[gnu::noinline]] void push_range(const Connections& connections, const CallInfo& call) {
  nvtxEventAttributes_t range{};
  range.version = NVTX_VERSION;
  range.size = sizeof range;
  range.category = category_of(*Access::state(connections.comm()));
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = connections.name().c_str();
  if (call.count >= 0) {
    range.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    range.payload.llValue = call.count * call.element_bytes;
  }
  nvtxDomainRangePushEx(domain(), &range);
}

}  // namespace

bool begin_nvtx_range(const Connections& connections, const CallInfo& call) {
  if (domain() == nullptr) return false;
  push_range(connections, call);
  return true;
}

void end_nvtx_range() {
  nvtxDomainRangePop(domain());
}
#else
bool begin_nvtx_range(const Connections&, const CallInfo&) {
  return false;
}
void end_nvtx_range() {}
#endif

}  // namespace ccl::detail
