#include "transport/ib/gpu/memory.hpp"

#include <ccl/detail/runtime/settings.hpp>

#include <algorithm>

namespace ccl::detail {
Result<std::unique_ptr<IbGpuSlots>> IbGpuSlots::make(GpuArena* arena, std::int64_t relay,
                                                     std::size_t bytes,
                                                     const std::vector<IbPort>& ports,
                                                     unsigned access, std::string& why) {
  const GpuCalls& calls = gpu_calls();
  auto slots = std::make_unique<IbGpuSlots>();
  slots->access_ = access;
  auto piece =
      calls.allocate(arena, relay, (bytes + dma_buf_grain - 1) / dma_buf_grain * dma_buf_grain);
  if (!piece) {  // such as a GPU that is almost full
    why = piece.error().what;
    return std::unique_ptr<IbGpuSlots>{};
  }
  slots->piece_ = *std::move(piece);
  const auto try_all = [&](GpuReach scope) -> Result<void> {
    slots->reach_ = scope;
    slots->registered_.clear();
    for (const IbPort& port : ports) CCL_CHECK(slots->with(port.device));
    return {};
  };
  why.clear();
  CCL_TRY(const bool wanted, setting_flag("DMABUF_ENABLE"));
  if (wanted) {
    auto exported = calls.export_dma_buf(arena, slots->piece_);
    if (exported) {
      slots->dma_buf_ = std::move(*exported);
      const auto done = try_all(GpuReach::dma_buf);
      if (done) return slots;
      why = done.error().what;
    } else {
      why = exported.error().what;
    }
  } else {
    why = "CCL_DMABUF_ENABLE is 0";
  }
  if (!calls.has_peer_memory()) {
    why += "; nvidia-peermem is not loaded";
    return std::unique_ptr<IbGpuSlots>{};
  }
  if (const auto done = try_all(GpuReach::peer_memory); !done) {
    why += "; " + done.error().what;
    return std::unique_ptr<IbGpuSlots>{};
  }
  return slots;
}

Result<std::shared_ptr<IbMemory>> IbGpuSlots::with(const std::shared_ptr<IbDevice>& device) {
  const auto known = std::find_if(registered_.begin(), registered_.end(),
                                  [&](const auto& each) { return each.first == device; });
  if (known != registered_.end()) return known->second;
  auto made = reach_ == GpuReach::dma_buf
                  ? device->dma_buf_memory(dma_buf_.get(), piece_.base, piece_.bytes, access_)
                  : device->memory(piece_.base, piece_.bytes, access_);
  if (!made) return fail(made.error());
  registered_.emplace_back(device, *made);
  return *made;
}

}  // namespace ccl::detail
