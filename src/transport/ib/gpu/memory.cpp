#include "transport/ib/gpu/memory.hpp"

#include <ccl/detail/runtime/settings.hpp>

#include <algorithm>

#include "transport/ib/gpu/block.hpp"

namespace ccl::detail {

Result<void> IbGpuSlots::register_with(const std::vector<IbPort>& ports) {
  registered_.clear();
  for (const IbPort& port : ports) CCL_CHECK(with(port.device));
  return {};
}

bool IbGpuSlots::share(const IbGpuPlace& where, const std::vector<IbPort>& ports) {
  block_ = IbGpuBlock::latest(where);
  const auto place = block_ ? block_->take(bytes_, access_) : std::nullopt;
  offset_ = place.value_or(0);
  return place && register_with(ports);
}

Result<std::unique_ptr<IbGpuSlots>> IbGpuSlots::make(const IbGpuPlace& where, std::size_t bytes,
                                                     const std::vector<IbPort>& ports,
                                                     unsigned access, std::string& why) {
  auto slots = std::make_unique<IbGpuSlots>();
  slots->access_ = access;
  slots->bytes_ = bytes;
  if (slots->share(where, ports)) return slots;
  auto block = IbGpuBlock::make(where, bytes);
  if (!block) {  // such as a GPU that is almost full
    why = block.error().what;
    return std::unique_ptr<IbGpuSlots>{};
  }
  slots->block_ = *block;
  slots->offset_ = (*block)->take(bytes, access).value_or(0);
  const auto try_all = [&](GpuReach reach) -> Result<void> {
    (*block)->use(reach);
    CCL_CHECK(slots->register_with(ports));
    IbGpuBlock::publish(where, *block);
    return {};
  };
  why.clear();
  CCL_TRY(const bool wanted, setting_flag("DMABUF_ENABLE"));
  if (wanted) {
    Result<void> done = (*block)->export_dma_buf(where);
    if (done) done = try_all(GpuReach::dma_buf);
    if (done) return slots;
    why = done.error().what;
  } else {
    why = "CCL_DMABUF_ENABLE is 0";
  }
  if (!gpu_calls().has_peer_memory()) {
    why += "; nvidia-peermem is not loaded";
    return std::unique_ptr<IbGpuSlots>{};
  }
  if (const auto done = try_all(GpuReach::peer_memory); !done) {
    why += "; " + done.error().what;
    return std::unique_ptr<IbGpuSlots>{};
  }
  return slots;
}

std::byte* IbGpuSlots::base() const {
  return block_->base() + offset_;
}

GpuReach IbGpuSlots::scope() const {
  return block_->reach();
}

Result<std::shared_ptr<IbMemory>> IbGpuSlots::with(const std::shared_ptr<IbDevice>& device) {
  const auto known = std::find_if(registered_.begin(), registered_.end(),
                                  [&](const auto& each) { return each.first == device; });
  if (known != registered_.end()) return known->second;
  CCL_TRY(auto made, block_->with(device, offset_, bytes_, access_));
  registered_.emplace_back(device, made);
  return made;
}

}  // namespace ccl::detail
