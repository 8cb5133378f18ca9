#include "connect/multicast/bound_windows.hpp"

#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "comm/rank_results.hpp"
#include "connect/multicast/switch_block.hpp"
#include "gpu/memory.hpp"

namespace ccl::detail {
namespace {

constexpr std::uintptr_t packet_mask = sizeof(Packet) - 1;

Error refused(std::string why) {
  return {Errc::not_supported, std::move(why)};
}

}  // namespace

Result<void> BoundWindows::add(MulticastKind kind) {
  if (std::ranges::find(kinds_, kind) == kinds_.end()) kinds_.push_back(kind);
  return bind_open();
}

Result<void> BoundWindows::bind_open() {
  for (const Word number : state_.observers.open_window_numbers()) {
    for (const MulticastKind kind : kinds_) {
      const auto is_it = [&](const Tried& of) { return of.kind == kind && of.number == number; };
      {
        const auto lock = state_.observers.lock_windows();
        if (std::ranges::any_of(tried_, is_it)) continue;
      }
      CCL_CHECK(bind(kind, number));
    }
  }
  return {};
}

Result<void> BoundWindows::bind(MulticastKind kind, Word number) {
  const std::string name = fmt::format("multicast to window {}", number);
  const std::shared_ptr<WindowState> window = live_window(state_, number);
  BoundPart part;
  part.kind = kind;
  const bool by_switches = kind == MulticastKind::switches;
  Result<void> reached = by_switches ? reach_by_switches(name, window.get(), part)
                                     : reach_by_table(name, window.get(), part);
  CCL_CHECK(state_.status.result());
  std::string why;
  if (!reached) why = std::move(reached).error().what;
  if (why.empty()) {
    log_info(LogPart::init, "{} of {} bytes: bound, so calls load and store it", name,
             window->bytes);
  } else {
    log_info(LogPart::init, "{}: calls copy ({})", name, why);
  }
  const auto lock = state_.observers.lock_windows();
  if (why.empty()) {
    if (window->holds) window->holds->bound.push_back(std::move(part));
    ++counts_[std::size_t(kind)];
  }
  tried_.push_back({kind, number, std::move(why)});
  return {};
}

Result<void> BoundWindows::check(const WindowState* window) const {
  const int me = state_.identity.rank();
  if (window == nullptr) {
    return fail(refused(fmt::format("rank {} has dropped its handle of the window", me)));
  }
  if ((reinterpret_cast<std::uintptr_t>(window->base) & packet_mask) != 0) {
    return fail(
        refused(fmt::format("the memory of rank {} begins at {}, which is no multiple of {} bytes",
                            me, static_cast<const void*>(window->base), sizeof(Packet))));
  }
  return {};
}

Result<void> BoundWindows::reach_by_table(const std::string& name, WindowState* window,
                                          BoundPart& part) {
  const auto make = [&]() -> Result<void> {
    CCL_CHECK(check(window));
    std::vector<Packet*> each;
    for (std::byte* const at : window->at) each.push_back(reinterpret_cast<Packet*>(at));
    if (!state_.device.gpu) {
      auto kept = std::make_shared<std::vector<Packet*>>(std::move(each));
      part.each = kept->data();
      part.owner = std::move(kept);
      return {};
    }
    const std::size_t bytes = each.size() * sizeof(Packet*);
    GpuArena arena{state_.device.gpu};
    CCL_TRY(GpuBlock table, arena.allocate(bytes));
    CCL_CHECK(state_.device.gpu->put(table.at(), each.data(), bytes));
    part.each = reinterpret_cast<Packet* const*>(table.at());
    part.owner = std::make_shared<GpuBlock>(std::move(table));
    return {};
  };
  const Result<void> made = make();
  const auto lock = state_.rendezvous.lock();
  return all_agree(state_, name, made);
}

Result<void> BoundWindows::reach_by_switches(const std::string& name, WindowState* window,
                                             BoundPart& part) {
  SwitchRange range;
  const auto find = [&]() -> Result<void> {
    CCL_CHECK(check(window));
    const GpuBlock own = window->holds->gpu.front();
    own.memory->pin();
    CCL_TRY(range, switch_range(state_, own, std::size_t(window->bytes)));
    return {};
  };
  const Result<void> found = find();
  const auto lock = state_.rendezvous.lock();
  CCL_TRY(const std::shared_ptr<MulticastBlock> block,
          bind_switch_range(state_, name, range, found));
  part.all = block->all() + range.lead;
  part.owner = block;
  return {};
}

void BoundWindows::forget(Word number) {
  std::vector<BoundPart> gone;  // ends without the lock
  const std::shared_ptr<WindowState> window = live_window(state_, number);
  const auto lock = state_.observers.lock_windows();
  for (const Tried& one : tried_) {
    if (one.number == number && one.refused.empty()) --counts_[std::size_t(one.kind)];
  }
  std::erase_if(tried_, [number](const Tried& of) { return of.number == number; });
  if (window && window->holds) std::swap(gone, window->holds->bound);
}

std::string BoundWindows::refusal(MulticastKind kind, Word number) const {
  const auto lock = state_.observers.lock_windows();
  for (const Tried& one : tried_) {
    if (one.kind == kind && one.number == number) return one.refused;
  }
  return "it is not open on all ranks";
}

}  // namespace ccl::detail
