// Functions of ccl's device interface with scalar arguments, for compilers that link LLVM bitcode,
// as Triton does. `team` is the address of a ccl::Team in memory of the GPU. The kernel has 4
// warps.
//
//   clang++-16 -x cuda --cuda-device-only --cuda-gpu-arch=sm_90 --cuda-path=CUDA_12_4 -O2
//     -std=c++20 -Xclang -fcuda-allow-variadic-functions -fgpu-flush-denormals-to-zero -Iinclude
//     -Ibuild/include -emit-llvm -c examples/triton/team_functions.cu -o ccl_team.bc
//
// Triton flushes denormals to zero, and links no code that says otherwise.
#include <ccl/device.cuh>

using Lanes = ccl::BlockLanes<128>;

static __device__ const ccl::Team& at(long long team) {
  return *reinterpret_cast<const ccl::Team*>(team);
}

extern "C" {

__device__ int ccl_team_rank(long long team) {
  return at(team).rank();
}

__device__ int ccl_team_ranks(long long team) {
  return at(team).ranks();
}

/// Returns the address of a rank's window, which loads and stores may use.
__device__ long long ccl_team_window(long long team, int rank) {
  return reinterpret_cast<long long>(at(team).window<char>(rank));
}

/// Blocks until this block of the launch has arrived on all ranks, once in a launch. Writes of all
/// lanes before it are visible after it. Returns 0 if the team has failed.
__device__ int ccl_team_barrier(long long team, int block, int blocks) {
  ccl::TeamSession session{Lanes{}, at(team), block, blocks};
  return session.barrier() ? 1 : 0;
}
}
