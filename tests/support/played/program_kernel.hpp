#pragma once

// Kernel that plays random programs, on GPUs that are played on the CPU.
#include <ccl/device.cuh>

#include "support/device_programs.hpp"

namespace ccl::test::played {

/// Makes one launch of a `Program` in each block, and adds the wrong results to `wrong`.
template <class Program>
__global__ void run_program(const __grid_constant__ typename Program::OwnTeam team,
                            ProgramMemory* memory, Word seed, Word* wrong) {
  using Lanes = typename Program::Lanes;
  const int block = int(blockIdx.x);
  Program program{Lanes{}, team, block, int(gridDim.x), memory[block]};
  const long found = program.play(seed);
  if (found != 0) Lanes::Memory::fetch_add(wrong, Word(found));
}

}  // namespace ccl::test::played
