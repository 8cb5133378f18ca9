#pragma once

// GPUs played on the CPU: the driver of plain memory, with streams, graphs and kernels that run. A
// program includes <ccl/collective.cuh> after this header, and its include path begins with
// tests/support/played/include.
#include "support/fake_gpus.hpp"
#include "support/played/queue.hpp"
#include "support/played/streams.hpp"

namespace ccl::test::played {

/// In the place of libcuda, for the life of this process: `devices` GPUs of `multiprocessors` each.
FakeGpus& install(int devices, int multiprocessors);

/// Host on which this thread is, for communicators that it creates; -1: the host of the test. The
/// GPUs of all hosts are in one NVLink domain.
extern constinit thread_local int host_of_thread;

}  // namespace ccl::test::played
