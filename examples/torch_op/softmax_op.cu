// A kernel of the program's own behind a function that PyTorch calls: softmax over rows whose
// columns are spread over the GPUs of a group. The interface is plain C, so that one library serves
// every version of PyTorch; softmax_op.py makes an operator of it.
#include "group.cuh"

namespace {

using namespace example;

constexpr int lanes = 256, blocks = 16, max_rows = 4096;

/// Maximum of some values, and the sum of exp(value - maximum).
struct Statistics {
  float max, sum;
};
struct Combine {
  __host__ __device__ Statistics operator()(const Statistics& a, const Statistics& b) const {
    const float max = fmaxf(a.max, b.max);
    return {max, a.sum * expf(a.max - max) + b.sum * expf(b.max - max)};
  }
};

using Lanes = ccl::BlockLanes<lanes>;
using RowTiles = ccl::Tiles<Lanes, Statistics, ccl::TileShape<1, 1>, ccl::LL>;

__global__ void __launch_bounds__(lanes)
    softmax(const __grid_constant__ ccl::Team team, float* data, int rows, int columns) {
  __shared__ alignas(16) Statistics part[lanes];
  const Lanes group;
  ccl::TeamSession session{group, team, int(blockIdx.x), int(gridDim.x)};
  RowTiles tiles{session};
  for (int row = int(blockIdx.x); row < rows; row += int(gridDim.x)) {
    float* const values = data + ccl::Index{row} * columns;
    Statistics mine{-INFINITY, 0};
    for (int i = group.rank(); i < columns; i += lanes) {
      mine = i < lanes ? Statistics{values[i], 1} : Combine{}(mine, {values[i], 1});
    }
    part[group.rank()] = mine;
    for (int half = lanes / 2; half > 0; half /= 2) {
      group.sync();
      // A lane without columns has nothing to add.
      if (group.rank() < half && group.rank() + half < columns) {
        part[group.rank()] = Combine{}(part[group.rank()], part[group.rank() + half]);
      }
    }
    // On every rank, part[0] becomes the statistics of the whole row.
    if (!tiles.all_reduce(row, part, Combine{})) return;
    for (int i = group.rank(); i < columns; i += lanes) {
      values[i] = expf(values[i] - part[0].max) / part[0].sum;
    }
    group.sync();  // before the next row replaces the statistics
  }
}

}  // namespace

extern "C" {

/// Returns the group of this rank, or null. All ranks call it.
void* softmax_create(const char* text, int rank, int ranks, int gpu) {
  const ccl::DeviceRequirements needs{.blocks = blocks,
                                      .ll_bytes = RowTiles::bytes(max_rows, ranks)};
  Group* const group = make_group(text, rank, ranks, gpu, 16, needs);
  if (group == nullptr) return nullptr;
  if (answer(ccl::check_launch(group->device, softmax, blocks, lanes)) == 0) return group;
  delete group;
  return nullptr;
}

/// Queues the softmax of `rows` rows of which this rank has `columns` columns each, in place.
int softmax_run(void* group, float* data, int rows, int columns, void* stream) {
  if (rows < 1 || rows > max_rows || columns < 1) {
    return answer(ccl::fail(ccl::Errc::invalid_argument,
                            std::to_string(rows) + " rows of " + std::to_string(columns) +
                                " columns (a rank has 1 column or more, and a call 1 to " +
                                std::to_string(max_rows) + " rows); split the rows"));
  }
  const auto& team = static_cast<Group*>(group)->device.team();
  softmax<<<blocks, lanes, 0, static_cast<cudaStream_t>(stream)>>>(team, data, rows, columns);
  const cudaError_t e = cudaGetLastError();
  return e == cudaSuccess ? 0 : answer(ccl::fail(ccl::Errc::cuda, cudaGetErrorString(e)));
}
}
