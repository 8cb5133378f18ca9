#pragma once

#include <cuda.h>

#include <memory>
#include <vector>

#include "support/fake_gpus.hpp"
#include "support/played/queue.hpp"

namespace ccl::test::played {

class Capture;

/// Stream of a played GPU. A `CUstream` points to one.
struct Stream {
  int device = 0;
  unsigned long long number = 0;
  NodePtr last{};         // begins the next node when it has ended
  NodePtr launch{};       // the latest launch, if only marks of events came after it
  fake::Stream copies{};  // how copies over paths behave
  std::shared_ptr<Capture> capture{};
};

struct Event {
  NodePtr node{};                                                        // of its latest record
  std::shared_ptr<fake::Event> times = std::make_shared<fake::Event>();  // of copies before it
  std::shared_ptr<Capture> capture{};
  std::vector<CUgraphNode> captured{};  // what the record stands for in a capture
};

/// The stream that the handle means to this thread: null is the stream of the current device. Null
/// if the handle is of no stream.
Stream* stream_of(CUstream handle);

/// Queues a kernel as `cuLaunchKernelEx` does. `early`: by programmatic stream serialization.
CUresult launch(CUstream stream, Kernel kernel, bool early);

/// Launches of this process that began behind one that ran.
int early_launches();

/// Multiprocessors of a device.
unsigned places_of(int device);

/// Compute capability of the current device: 90 for sm_90.
int capability();

/// Makes one of the next launches on `device` fail with `code`: the one after `after` others.
void fail_launch(int device, CUresult code, int after = 0);
/// What `cudaGetLastError` returns next, on this thread.
inline thread_local CUresult last_error = CUDA_SUCCESS;

/// Replaces the members of the driver of `FakeGpus` that queue something.
void add_streams(detail::CudaDriver& cuda);
void add_graphs(detail::CudaDriver& cuda);

}  // namespace ccl::test::played
