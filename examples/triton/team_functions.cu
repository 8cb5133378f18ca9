// Functions of ccl's device interface with scalar arguments, for compilers that link LLVM bitcode,
// as Triton does. `team` is a ccl::Team in memory of the GPU. The kernel has 4 warps.
//
//   clang++-16 -x cuda --cuda-device-only --cuda-gpu-arch=sm_90 --cuda-path=CUDA_12_4 -O2
//     -std=c++20 -Xclang -fcuda-allow-variadic-functions -Iinclude -Ibuild/include
//     -emit-llvm -c examples/triton/team_functions.cu -o ccl_team.bc
#include <ccl/device.cuh>

using Lanes = ccl::BlockLanes<128>;

extern "C" {

__device__ int ccl_team_rank(const ccl::Team* team) {
  return team->rank();
}

__device__ int ccl_team_ranks(const ccl::Team* team) {
  return team->ranks();
}

/// Returns the address of a rank's window, which loads and stores may use.
__device__ long long ccl_team_window(const ccl::Team* team, int rank) {
  return reinterpret_cast<long long>(team->window<char>(rank));
}

/// Blocks until this block of the launch has arrived on all ranks, once in a launch. Writes of all
/// lanes before it are visible after it. Returns 0 if the team has failed.
__device__ int ccl_team_barrier(const ccl::Team* team, int block, int blocks) {
  ccl::TeamSession session{Lanes{}, *team, block, blocks};
  return session.barrier() ? 1 : 0;
}
}
