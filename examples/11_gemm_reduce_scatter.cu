// A product of matrices whose inner dimension is spread over GPUs. Each tile is sent to the rank
// that owns it as soon as a block has computed it; the owner adds up the tiles of all ranks. No
// reduce-scatter follows the kernel.
#include <ccl/device.cuh>

#include <cstdio>
#include <vector>

constexpr int lanes = 256, side = 64, step = 16;  // of a tile, and of the inner dimension at once
constexpr int m = 512, n = 512, k = 256;          // inner dimension of each rank
constexpr int tiles_across = n / side, tiles_in_all = m / side * tiles_across;

using Lanes = ccl::BlockLanes<lanes>;
using Parts = ccl::Tiles<Lanes, float, ccl::TileShape<side, side>, ccl::LL128>;

/// Computes this rank's part of a tile: rows of `a`, m x k, times columns of `b`, k x n.
__device__ void multiply(const float* a, const float* b, int tile, float* result) {
  __shared__ float rows[side][step + 1], columns[step][side];
  const int first_row = tile / tiles_across * side, first_column = tile % tiles_across * side;
  const int lane = int(threadIdx.x), column = lane % side, row = lane / side;  // row + 4 i
  float sum[side * side / lanes] = {};
  for (int at = 0; at < k; at += step) {
    __syncthreads();
    for (int i = lane; i < side * step; i += lanes) {
      rows[i / step][i % step] = a[(first_row + i / step) * k + at + i % step];
      columns[i / side][i % side] = b[(at + i / side) * n + first_column + i % side];
    }
    __syncthreads();
    for (int j = 0; j < step; ++j) {
      for (int i = 0; i < side * side / lanes; ++i) {
        sum[i] += rows[row + lanes / side * i][j] * columns[j][column];
      }
    }
  }
  for (int i = 0; i < side * side / lanes; ++i) {
    result[(row + lanes / side * i) * side + column] = sum[i];
  }
}

/// Rank r owns the tiles r, r + ranks, ... and stores them one after the other at `c`.
__global__ void multiply_and_scatter(const __grid_constant__ ccl::Team team, const float* a,
                                     const float* b, float* c) {
  __shared__ alignas(16) float tile[side * side];
  const int me = team.rank(), ranks = team.ranks();
  ccl::TeamSession session{Lanes{}, team, int(blockIdx.x), int(gridDim.x)};
  Parts parts{session};
  // Tiles of other ranks first, because no block waits for them. Then no block waits for a block
  // that waits for it.
  for (const bool own : {false, true}) {
    for (int t = int(blockIdx.x); t < tiles_in_all; t += int(gridDim.x)) {
      const int owner = t % ranks, slot = t / ranks;
      if ((owner == me) != own) continue;
      multiply(a, b, t, tile);
      if (!parts.reduce(owner, slot, tile)) return;
      for (int i = int(threadIdx.x); own && i < side * side; i += lanes) {
        c[slot * side * side + i] = tile[i];
      }
    }
  }
}

ccl::Result<void> run(cudaStream_t stream) {
  CCL_TRY(const auto comm, ccl::Communicator::from_env());
  if (comm.device() < 0) return ccl::fail(ccl::Errc::not_supported, "this machine has no GPU");
  cudaSetDevice(comm.device());
  const int me = comm.rank(), ranks = comm.ranks();
  CCL_TRY(const auto memory, ccl::SharedMemory::allocate(comm, 16));
  CCL_TRY(const auto window, ccl::Window::create(comm, memory));
  constexpr int blocks = 16;
  const int slots = (tiles_in_all + ranks - 1) / ranks;
  CCL_TRY(const auto device,
          ccl::DeviceComm::create(comm, window,
                                  {.blocks = blocks, .ll128_bytes = Parts::bytes(slots, ranks)}));
  CCL_CHECK(ccl::check_launch(device, multiply_and_scatter, blocks, lanes));
  // Element (i, j) of this rank's factors; whole numbers, whose sums are exact.
  std::vector<float> a(m * k), b(k * n), c(std::size_t(slots) * side * side);
  for (int i = 0; i < m * k; ++i) a[std::size_t(i)] = float((i / k + me) % 3);
  for (int i = 0; i < k * n; ++i) b[std::size_t(i)] = float(i % n % 5);
  float *on_a = nullptr, *on_b = nullptr, *on_c = nullptr;
  cudaMalloc(&on_a, a.size() * sizeof(float));
  cudaMalloc(&on_b, b.size() * sizeof(float));
  cudaMalloc(&on_c, c.size() * sizeof(float));
  cudaMemcpy(on_a, a.data(), a.size() * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemcpy(on_b, b.data(), b.size() * sizeof(float), cudaMemcpyHostToDevice);
  multiply_and_scatter<<<blocks, lanes, 0, stream>>>(device.team(), on_a, on_b, on_c);
  cudaStreamSynchronize(stream);
  CCL_CHECK(device.status());
  cudaMemcpy(c.data(), on_c, c.size() * sizeof(float), cudaMemcpyDeviceToHost);
  long wrong = 0;
  for (int t = me; t < tiles_in_all; t += ranks) {
    for (int i = 0; i < side * side; ++i) {
      const int row = t / tiles_across * side + i / side;
      const int column = t % tiles_across * side + i % side;
      float want = 0;
      for (int r = 0; r < ranks; ++r) want += float((row + r) % 3 * (column % 5) * k);
      wrong += c[std::size_t(t / ranks * side * side + i)] != want;
    }
  }
  std::printf("rank %d of %d: %ld elements are wrong\n", me, ranks, wrong);
  for (float* data : {on_a, on_b, on_c}) cudaFree(data);
  CCL_CHECK(device.close());
  return comm.finalize();
}

int main() {
  const auto done = run(nullptr);
  if (!done) std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return done ? 0 : 1;
}
