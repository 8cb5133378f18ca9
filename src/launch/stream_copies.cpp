#include <ccl/detail/copy/stream_copies.hpp>
#include <ccl/detail/runtime/connections.hpp>

#include <fmt/format.h>

#include <utility>

#include "comm/edges/window_state.hpp"
#include "comm/state.hpp"
#include "connect/agreement.hpp"
#include "connect/device_state.hpp"

namespace ccl::detail {

Result<std::unique_ptr<SideBranch>> SideBranch::make(std::shared_ptr<Gpu> gpu) {
  auto side = std::make_unique<SideBranch>(std::move(gpu));
  const CudaDriver& cuda = side->gpu->driver();
  const Gpu::Current current{*side->gpu};
  CCL_CHECK(cuda_check(cuda.stream_create(&side->stream, CU_STREAM_NON_BLOCKING), "make a stream"));
  for (CUevent* event : {&side->forked, &side->joined}) {
    CCL_CHECK(cuda_check(cuda.event_create(event, CU_EVENT_DISABLE_TIMING), "make an event"));
  }
  return side;
}

Result<bool> SideBranch::is_usable(cuuint64_t capture) const {
  CUstreamCaptureStatus status{};
  cuuint64_t number = 0;
  CCL_CHECK(cuda_check(gpu->driver().stream_get_capture_info(stream, &status, &number, nullptr,
                                                             nullptr, nullptr, nullptr),
                       "ask for the capture of a branch"));
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return true;
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE && number == capture;
}

SideBranch::~SideBranch() {
  const Gpu::Current current{*gpu};
  for (const CUevent event : {forked, joined}) {
    if (event != nullptr) (void)gpu->driver().event_destroy(event);
  }
  if (stream != nullptr) (void)gpu->driver().stream_destroy(stream);
}

Result<void> StreamCopies::open_branch(bool pulls) {
  DeviceState* const device = of_.device_.get();
  if (device == nullptr || !device->sides.empty()) return {};
  const auto open = [&]() -> Result<void> {
    const CommState& state = *Access::state(of_.comm());
    for (const PeerInfo& peer : state.identity.peers()) {
      if (peer.rank == state.identity.rank() || !pulls || of_.peer_memory().by_cumem() ||
          peer.pid_hash != state.identity.peers()[std::size_t(state.identity.rank())].pid_hash) {
        continue;
      }
      // On 4 H200, such a copy in a graph waits for the kernel that the peer's GPU runs, and that
      // kernel waits for this rank.
      Error error{Errc::not_supported,
                  fmt::format("{} cannot read the memory of rank {}, which is of this process and "
                              "of cudaMalloc (the driver orders such copies behind what both GPUs "
                              "run); let CCL_CUMEM_ENABLE be 1, or use WindowCopies",
                              of_.name(), peer.rank)};
      error.peer = peer.rank;
      return fail(std::move(error));
    }
    CCL_TRY(auto side, SideBranch::make(state.device.gpu));
    device->sides.push_back(std::move(side));
    return {};
  };
  return agree_on_result(of_, open());
}

Result<void> StreamCopies::copy(void* to, const void* from, Index bytes,
                                CUstream_st* stream) const {
  if (bytes == 0) return {};
  const Gpu& gpu = *Access::state(of_.comm())->device.gpu;
  const Gpu::Current current{gpu};
  return cuda_check(
      gpu.driver().memcpy_async(reinterpret_cast<CUdeviceptr>(to),
                                reinterpret_cast<CUdeviceptr>(from), std::size_t(bytes), stream),
      fmt::format("copy {} bytes", bytes));
}

namespace {
/// Returns a branch for a launch in the capture, or outside of captures if the number is 0.
Result<SideBranch*> branch_for(std::vector<std::unique_ptr<SideBranch>>& sides,
                               cuuint64_t capture) {
  for (const auto& side : sides) {
    CCL_TRY(const bool usable, side->is_usable(capture));
    if (usable) return side.get();
  }
  CCL_TRY(auto made, SideBranch::make(sides.front()->gpu));
  return sides.emplace_back(std::move(made)).get();
}
}  // namespace

Result<CUstream_st*> StreamCopies::fork(CUstream_st* stream) {
  const CommState& state = *Access::state(of_.comm());
  const Gpu::Current current{*state.device.gpu};
  CCL_TRY(side_, branch_for(of_.device_->sides, state.device.order->capture()));
  SideBranch& side = *side_;
  const CudaDriver& cuda = side.gpu->driver();
  CCL_CHECK(cuda_check(cuda.event_record(side.forked, stream), "branch off a stream"));
  CCL_CHECK(cuda_check(cuda.stream_wait_event(side.stream, side.forked, CU_EVENT_WAIT_DEFAULT),
                       "branch off a stream"));
  return side.stream;
}

Result<void> StreamCopies::join(CUstream_st* stream) {
  SideBranch& side = *side_;
  const Gpu::Current current{*side.gpu};
  const CudaDriver& cuda = side.gpu->driver();
  CCL_CHECK(cuda_check(cuda.event_record(side.joined, side.stream), "join a stream"));
  return cuda_check(cuda.stream_wait_event(stream, side.joined, CU_EVENT_WAIT_DEFAULT),
                    "join a stream");
}

Result<void> StreamCopies::open_signals() {
  CommState& state = *Access::state(of_.comm());
  DeviceState* const device = of_.device_.get();
  if (device == nullptr) return {};
  const auto lock = state.rendezvous.lock();
  CCL_TRY(device->signals, StreamSignals::open(state, of_.number(), of_.name()));
  return {};
}

Result<void> StreamCopies::signal(const CopySync& sync, CUstream_st* stream) const {
  return of_.device_->signals->sync(sync, stream);
}

StreamCopies::InWindow StreamCopies::in_window(const void* data, Index bytes) const {
  WindowPlace place = place_in_window(*Access::state(of_.comm()), data, bytes);
  const Word word = place.window ? WindowPlaceWord::of(place.window->number, place.offset)
                                 : WindowPlaceWord::in_no_window;
  return {word, place.offset, std::move(place.at), std::move(place.window), std::move(place.holds)};
}

bool StreamCopies::may_be_in_windows() const {
  return Access::state(of_.comm())->observers.open_windows() > 0;
}

}  // namespace ccl::detail
