#include "nccl/device/kernel_window.hpp"

#include <algorithm>
#include <vector>

#include "comm/edges/window_state.hpp"
#include "comm/state.hpp"

namespace ccl::detail::nccl {
namespace {

/// Memory of each rank of a window, by rank.
Result<std::vector<GpuBlock>> blocks_of(const Window& window) {
  const WindowState& state = WindowState::of(window);
  const CommState& comm = *Access::state(state.comm);
  std::vector<GpuBlock> blocks;
  if (window.ranks() == 1) {  // nobody has mapped its memory
    GpuBlock& own = blocks.emplace_back();
    if (state.holds->own) {
      own = state.holds->own->gpu;
    } else {
      auto borrowed =
          GpuMemory::borrow(comm.device.gpu, state.base, std::size_t(state.bytes), false);
      if (!borrowed) return fail(Errc::not_supported, borrowed.error().what);
      own.memory = *std::move(borrowed);
      own.offset = std::size_t(state.base - own.memory->base());
    }
    return blocks;
  }
  for (std::byte* const at : state.at) {
    const auto& known = state.holds->gpu;
    const auto found =
        std::ranges::find_if(known, [at](const GpuBlock& one) { return one.at() == at; });
    if (at == nullptr || found == known.end()) {
      return fail(Errc::not_supported,
                  "kernels cannot use a window by NCCL's device interface if it maps the memory of "
                  "some ranks alone; make it on the ranks of one host");
    }
    blocks.push_back(*found);
  }
  return blocks;
}

}  // namespace

Result<std::unique_ptr<KernelWindow>> KernelWindow::create(const Window& window, int flags) {
  const CommState& comm = *Access::state(WindowState::of(window).comm);
  CCL_TRY(auto blocks, blocks_of(window));
  CCL_TRY(auto range, FlatRange::map(comm.device.gpu, std::move(blocks)));
  CCL_TRY(auto slot, KernelSlot::take(comm.device.gpu->device()));
  std::unique_ptr<KernelWindow> made{new KernelWindow{std::move(range), std::move(slot)}};
  ncclWindow_vidmem& all = made->content_;
  all.lsaFlatBase = reinterpret_cast<char*>(made->range_->base());
  all.lsaRank = all.worldRank = window.rank();
  all.stride4G = std::uint32_t(made->range_->stride() / FlatRange::stride_unit);
  all.winFlags = std::uint32_t(flags);
  all.numSegments = 1;
  CCL_CHECK(made->slot_->write(0, &all, sizeof all));
  return made;
}

}  // namespace ccl::detail::nccl
