#pragma once

#include <cuda_runtime_api.h>

#include "verify.hpp"

/// Launches of the benchmark's own kernels, separate from host code, so that nvcc compiles less.
namespace ccl::perf::gpu {

cudaError_t launch_fill_values(DataType type, RedOp redop, int ranks, int rank, Index count,
                               std::byte* send, cudaStream_t stream);
cudaError_t launch_fill_moved(int from, Index bytes, std::byte* send, cudaStream_t stream);
/// Adds the number of wrong elements to `*wrong`, on the GPU.
cudaError_t launch_count_values(DataType type, RedOp redop, int ranks, Index first, Index count,
                                const std::byte* recv, unsigned long long* wrong,
                                cudaStream_t stream);
cudaError_t launch_count_moved(const Piece& piece, Index element_bytes, const std::byte* recv,
                               unsigned long long* wrong, cudaStream_t stream);
cudaError_t launch_count_poison_gone(const std::byte* memory, Index bytes,
                                     unsigned long long* wrong, cudaStream_t stream);
/// Blocks the stream until `*opened` has reached `number`, or for `deadline_s` seconds. In that
/// case it adds 1 to `*missed`.
cudaError_t launch_gate(const unsigned* opened, unsigned* missed, unsigned number,
                        double deadline_s, cudaStream_t stream);
/// Waits until `*asked` has reached 1, 2, ..., `rounds`, for at most `deadline_s` seconds in all.
/// Writes the GPU clock in nanoseconds to `answers[0]`, `answers[1]`, ... each time.
cudaError_t launch_answer_clock(const unsigned* asked, unsigned long long* answers, int rounds,
                                double deadline_s, cudaStream_t stream);
/// Loads all kernels onto the current GPU, because a first launch can wait for kernels that run.
cudaError_t load_kernels();

}  // namespace ccl::perf::gpu
