// Softmax of rows whose columns are spread over GPUs, in one kernel: each block reduces its part of
// a row, combines the statistics of all ranks, and writes its part of the result.
#include <ccl/device.cuh>

#include <cmath>
#include <cstdio>
#include <vector>

constexpr int lanes = 256, rows = 64, columns = 5000;  // columns of each rank

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
using Tile = ccl::TileShape<1, 1>;
using RowTiles = ccl::Tiles<Lanes, Statistics, Tile, ccl::LL>;

__global__ void softmax(const __grid_constant__ ccl::Team team, float* data) {
  __shared__ alignas(16) Statistics part[lanes];
  const Lanes group;
  ccl::TeamSession session{group, team, int(blockIdx.x), int(gridDim.x)};
  RowTiles tiles{session};
  for (int row = int(blockIdx.x); row < rows; row += int(gridDim.x)) {
    float* const values = data + row * columns;
    Statistics mine{-INFINITY, 0};
    for (int i = group.rank(); i < columns; i += lanes) {
      mine = i < lanes ? Statistics{values[i], 1} : Combine{}(mine, {values[i], 1});
    }
    part[group.rank()] = mine;
    for (int half = lanes / 2; half > 0; half /= 2) {
      group.sync();
      if (group.rank() < half) {
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

ccl::Result<void> run(cudaStream_t stream) {
  CCL_TRY(const auto comm, ccl::Communicator::from_env());
  if (comm.device() < 0) return ccl::fail(ccl::Errc::not_supported, "this machine has no GPU");
  cudaSetDevice(comm.device());
  const int me = comm.rank(), ranks = comm.ranks();
  // Peers address nothing but the packets, so any memory is a window.
  CCL_TRY(const auto memory, ccl::SharedMemory::allocate(comm, 16));
  CCL_TRY(const auto window, ccl::Window::create(comm, memory));
  constexpr int blocks = 8;
  CCL_TRY(const auto device,
          ccl::DeviceComm::create(comm, window,
                                  {.blocks = blocks, .ll_bytes = RowTiles::bytes(rows, ranks)}));
  CCL_CHECK(ccl::check_launch(device, softmax, blocks, lanes));
  std::vector<float> values(std::size_t(rows) * columns);
  for (int i = 0; i < rows * columns; ++i) values[std::size_t(i)] = float((i + me) % 10);
  float* data = nullptr;
  cudaMalloc(&data, values.size() * sizeof(float));
  cudaMemcpy(data, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice);
  softmax<<<blocks, lanes, 0, stream>>>(device.team(), data);
  cudaStreamSynchronize(stream);
  CCL_CHECK(device.status());
  cudaMemcpy(values.data(), data, values.size() * sizeof(float), cudaMemcpyDeviceToHost);
  // Every rank has each of ten values as often: the sum of a row over all ranks is 1.
  double expected = 0, wrong = 0;
  for (int v = 0; v < 10; ++v) expected += std::exp(double(v));
  expected *= double(columns) / 10 * ranks;
  for (int i = 0; i < rows * columns; ++i) {
    const double want = std::exp(double((i + me) % 10)) / expected;
    wrong = std::fmax(wrong, std::fabs(double(values[std::size_t(i)]) / want - 1));
  }
  std::printf("rank %d of %d: the largest error is %.1e\n", me, ranks, wrong);
  cudaFree(data);
  CCL_CHECK(device.close());
  return comm.finalize();
}

int main() {
  const auto done = run(nullptr);
  if (!done) std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return done ? 0 : 1;
}
