#include <ccl/detail/runtime/connections.hpp>

#include <fmt/format.h>

#include "comm/state.hpp"
#include "comm/window_state.hpp"
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

SideBranch::~SideBranch() {
  const Gpu::Current current{*gpu};
  for (const CUevent event : {forked, joined}) {
    if (event != nullptr) (void)gpu->driver().event_destroy(event);
  }
  if (stream != nullptr) (void)gpu->driver().stream_destroy(stream);
}

Result<void> Connections::open_side(bool pulls) {
  if (!device_ || device_->side) return {};
  const auto open = [&]() -> Result<void> {
    const CommState& state = *Access::state(comm_);
    for (const PeerInfo& peer : state.identity.peers()) {
      if (peer.rank == state.identity.rank() || !pulls || cumem_scratch_ ||
          peer.pid_hash != state.identity.peers()[std::size_t(state.identity.rank())].pid_hash) {
        continue;
      }
      // Seen on 4 H200: such a copy in a graph waits for what the peer's GPU runs, which waits.
      Error error{Errc::not_supported,
                  fmt::format("{} cannot read the memory of rank {}, which is of this process and "
                              "of cudaMalloc (the driver orders such copies behind what both GPUs "
                              "run); let CCL_CUMEM_ENABLE be 1, or use WindowCopies",
                              name_, peer.rank)};
      error.peer = peer.rank;
      return fail(std::move(error));
    }
    CCL_TRY(device_->side, SideBranch::make(state.device.gpu));
    return {};
  };
  return all_agree(open());
}

Result<void> Connections::copy_within(void* to, const void* from, Index bytes,
                                      CUstream_st* stream) {
  if (bytes == 0) return {};
  const Gpu& gpu = *Access::state(comm_)->device.gpu;
  const Gpu::Current current{gpu};
  return cuda_check(
      gpu.driver().memcpy_async(reinterpret_cast<CUdeviceptr>(to),
                                reinterpret_cast<CUdeviceptr>(from), std::size_t(bytes), stream),
      fmt::format("copy {} bytes", bytes));
}

Result<CUstream_st*> Connections::fork(CUstream_st* stream) {
  SideBranch& side = *device_->side;
  const Gpu::Current current{*side.gpu};
  const CudaDriver& cuda = side.gpu->driver();
  CCL_CHECK(cuda_check(cuda.event_record(side.forked, stream), "branch off a stream"));
  CCL_CHECK(cuda_check(cuda.stream_wait_event(side.stream, side.forked, CU_EVENT_WAIT_DEFAULT),
                       "branch off a stream"));
  return side.stream;
}

Result<void> Connections::join(CUstream_st* stream) {
  SideBranch& side = *device_->side;
  const Gpu::Current current{*side.gpu};
  const CudaDriver& cuda = side.gpu->driver();
  CCL_CHECK(cuda_check(cuda.event_record(side.joined, side.stream), "join a stream"));
  return cuda_check(cuda.stream_wait_event(stream, side.joined, CU_EVENT_WAIT_DEFAULT),
                    "join a stream");
}

Error Connections::not_in_window(const void* data) const {
  const CommState& state = *Access::state(comm_);
  if (data == nullptr) {
    return state.annotate(
        {Errc::invalid_argument,
         fmt::format("{} moves one message to a rank and one from a rank, each time (it tells "
                     "peers nothing of others); use CopyEngine or Direct",
                     name_)});
  }
  return state.annotate(
      {Errc::invalid_argument,
       fmt::format("{} was given a receive buffer at {} that is in no window (peers "
                   "write straight into it); register it with Window::create, or "
                   "use CopyEngine",
                   name_, data)});
}

Result<void> Connections::open_signals() {
  CommState& state = *Access::state(comm_);
  if (!device_) return {};
  const auto lock = state.rendezvous.lock();
  CCL_TRY(device_->signals, StreamSignals::open(state, number_, name_));
  return {};
}

Result<void> Connections::signal(const CopySync& sync, CUstream_st* stream) {
  return device_->signals->sync(sync, stream);
}

Connections::InWindow Connections::in_window(const void* data, Index bytes) const {
  InWindow found;
  const auto window = find_window(*Access::state(comm_), data, bytes);
  if (!window) return found;
  found.offset = static_cast<const std::byte*>(data) - window->base;
  found.at = window->at;
  found.keep = window;
  return found;
}

}  // namespace ccl::detail
