#include "connect/registry/handle_imports.hpp"

#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ccl::detail {
namespace {
/// Time after which a request or its answer is taken for lost. An answer takes some milliseconds.
constexpr std::chrono::seconds lost_after{1};
/// Maximum memories of an owner whose handles travel at a time: a socket holds few messages.
constexpr int max_asked = 8;
/// Refusals after which a memory is left alone. An owner may lack descriptors for a moment.
constexpr int max_refusals = 3;
}  // namespace

Result<void> HandleImports::begin(const Memory& memory) {
  CCL_TRY(auto range, ImportedRange::reserve(gpu_, memory.bytes));
  imports_[{memory.owner, memory.slot}] = {memory, std::move(range)};
  return {};
}

bool HandleImports::may_ask(const Import& import) const {
  if (import.asked != Clock::time_point{}) return Clock::now() - import.asked > lost_after;
  return std::ranges::count_if(imports_, [&](const auto& one) {
           return one.second.memory.owner == import.memory.owner &&
                  one.second.asked != Clock::time_point{};
         }) < max_asked;
}

bool HandleImports::request(Import& import) {
  import.asked = Clock::now();
  return sockets_.ask(import.memory.owner, import.memory.id, import.mapped);
}

std::optional<HandleImports::Ended> HandleImports::take(const HandleSockets::Reply& reply) {
  const auto found = std::ranges::find_if(imports_, [&](const auto& one) {
    const Memory& memory = one.second.memory;
    return memory.owner == reply.owner && memory.id == reply.id;
  });
  // A peer answers twice if it was asked again.
  if (found == imports_.end() || found->second.mapped != reply.first) return {};
  Import& import = found->second;
  const Memory memory = import.memory;
  if (reply.handles.empty() && ++import.refusals < max_refusals) return {};  // it is asked again
  auto mapped = append(import, reply);
  if (mapped && import.mapped < memory.handles) {
    import.asked = {};
    return {};
  }
  if (mapped) mapped = import.range->open();
  Ended ended{memory, mapped ? std::move(import.range) : nullptr};
  imports_.erase(found);
  if (!mapped) {
    log_info(LogPart::init, "rank {}'s memory is not mapped ({})", memory.owner,
             mapped.error().what);
  }
  return ended;
}

Result<void> HandleImports::append(Import& import, const HandleSockets::Reply& reply) {
  if (reply.handles.empty()) return fail(Errc::not_supported, "its owner cannot export it");
  if (reply.handles.size() > std::size_t(import.memory.handles - import.mapped)) {
    return fail(Errc::mismatch,
                fmt::format("{} handles came, where {} of {} were left", reply.handles.size(),
                            import.memory.handles - import.mapped, import.memory.handles));
  }
  for (const SharedHandle& handle : reply.handles) {
    CCL_CHECK(import.range->append(handle));
    ++import.mapped;
  }
  return {};
}

}  // namespace ccl::detail
