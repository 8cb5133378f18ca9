// The host's part of a Triton kernel that communicates: the group, and its team in memory of the
// GPU, whose address the kernel takes. all_reduce.py calls it.
#include "../torch_op/group.cuh"

using namespace example;

extern "C" {

/// Returns the group of this rank, or null. All ranks call it with the same numbers: the bytes of
/// each rank's window, and the most blocks of a launch.
void* team_create(const char* text, int rank, int ranks, int gpu, long long window_bytes,
                  int blocks) {
  Group* const group = make_group(text, rank, ranks, gpu, window_bytes, {.blocks = blocks});
  if (group == nullptr) return nullptr;
  void* memory = nullptr;
  cudaError_t e = cudaMalloc(&memory, sizeof(ccl::Team));
  if (e == cudaSuccess) {
    group->team = std::shared_ptr<void>{memory, cudaFree};
    e = cudaMemcpy(memory, &group->device.team(), sizeof(ccl::Team), cudaMemcpyHostToDevice);
  }
  if (e == cudaSuccess) return group;
  answer(ccl::fail(ccl::Errc::cuda, cudaGetErrorString(e)));
  delete group;
  return nullptr;
}

/// Returns the address of the team in memory of the GPU.
long long team_address(void* group) {
  return reinterpret_cast<long long>(static_cast<Group*>(group)->team.get());
}
}
