#pragma once

// Streams and events of fake GPUs. Copies are made at once, and end as their path says.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "fake_gpu_state.hpp"

namespace ccl::test::fake {

using Clock = std::chrono::steady_clock;

struct Stream {
  int device = 0;
  Clock::time_point busy_until{};  // by the GPU's clock
  Clock::time_point seen_at{};     // when the host finds out
  bool stuck = false;
};
struct Event {
  Clock::time_point at{}, seen_at{};
  bool never = false;
};

inline CUresult copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream on) {
  FakeGpus& all = gpus();
  Stream& stream = *reinterpret_cast<Stream*>(on);
  auto* const target = reinterpret_cast<char*>(to);
  auto* const source = reinterpret_cast<const char*>(from);
  const std::lock_guard lock{all.mutex};
  const FakeGpus::Region* const there = all.region(target);
  const FakeGpus::Region* const here = all.region(source);
  const auto reaches = [&](const FakeGpus::Region* region) {
    return region == nullptr ||
           std::count(region->accessible.begin(), region->accessible.end(), stream.device) != 0;
  };
  if (!reaches(there) || !reaches(here)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto remote = [&](const FakeGpus::Region* region) {
    return region != nullptr && region->device != stream.device;
  };
  const FakeGpus::Region* const peer = remote(there) ? there : remote(here) ? here : nullptr;
  const FakePath path =
      peer == nullptr ? FakePath::well : all.link_of(stream.device, peer->device).path;
  all.copies_between += peer != nullptr;
  // Data written to a lost path reads back as written, but does not reach the peer.
  static std::map<const char*, std::vector<char>> lost;
  if (path == FakePath::stuck) stream.stuck = true;
  if (stream.stuck) return CUDA_SUCCESS;
  if (path == FakePath::slow) {
    stream.busy_until = std::max(stream.busy_until, Clock::now()) + std::chrono::milliseconds{20};
  }
  if (path == FakePath::seen_late) stream.seen_at = Clock::now() + std::chrono::milliseconds{20};
  if (path == FakePath::lost && peer == there) {
    lost[target].assign(source, source + bytes);
  } else if (path == FakePath::lost && lost.count(source) != 0) {
    std::memcpy(target, lost[source].data(), std::min(bytes, lost[source].size()));
  } else {
    std::memmove(target, source, bytes);
    if (path == FakePath::corrupt && peer == there && bytes > 64) target[bytes / 2] ^= 4;
  }
  return CUDA_SUCCESS;
}

/// Adds the driver's functions on streams and events.
inline void add_streams(CudaDriver& cuda) {
  cuda.memcpy_async = copy;
  cuda.memset_async = [](CUdeviceptr at, unsigned char value, std::size_t bytes, CUstream) {
    std::memset(reinterpret_cast<void*>(at), value, bytes);
    return CUDA_SUCCESS;
  };
  cuda.stream_create = [](CUstream* stream, unsigned) {
    *stream = reinterpret_cast<CUstream>(new Stream{current(), {}, {}, false});
    return CUDA_SUCCESS;
  };
  cuda.stream_destroy = [](CUstream stream) {
    delete reinterpret_cast<Stream*>(stream);
    return CUDA_SUCCESS;
  };
  cuda.stream_get_ctx = [](CUstream stream, CUcontext* context) {
    *context = context_of(reinterpret_cast<Stream*>(stream)->device);
    return CUDA_SUCCESS;
  };
  cuda.stream_synchronize = [](CUstream stream) {
    return reinterpret_cast<Stream*>(stream)->stuck ? CUDA_ERROR_LAUNCH_TIMEOUT : CUDA_SUCCESS;
  };
  cuda.event_create = [](CUevent* event, unsigned) {
    *event = reinterpret_cast<CUevent>(new Event);
    return CUDA_SUCCESS;
  };
  cuda.event_destroy = [](CUevent event) {
    delete reinterpret_cast<Event*>(event);
    return CUDA_SUCCESS;
  };
  cuda.event_record = [](CUevent event, CUstream on) {
    const Stream& stream = *reinterpret_cast<Stream*>(on);
    *reinterpret_cast<Event*>(event) = {stream.busy_until, stream.seen_at, stream.stuck};
    return CUDA_SUCCESS;
  };
  cuda.event_query = [](CUevent event) {
    const Event& of = *reinterpret_cast<Event*>(event);
    const bool over = !of.never && Clock::now() >= std::max(of.at, of.seen_at);
    return over ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  };
  cuda.event_elapsed_time = [](float* ms, CUevent begun, CUevent ended) {
    const auto at = [](CUevent event) { return reinterpret_cast<Event*>(event)->at; };
    *ms = std::chrono::duration<float, std::milli>(at(ended) - at(begun)).count();
    return CUDA_SUCCESS;
  };
}

}  // namespace ccl::test::fake
