// Tokens are sent to their experts on other GPUs and back, in a graph that is replayed with other
// choices of experts. Each rank is a process that torchrun, mpirun or srun starts; without a
// launcher there is one rank on one GPU.
#include <cstdio>

#include "moe/moe_stand_in.cuh"

ccl::Result<long> run() {
  CCL_TRY(const auto comm, ccl::Communicator::from_env());
  if (comm.device() < 0) return ccl::fail(ccl::Errc::not_supported, "this machine has no GPU");
  cudaSetDevice(comm.device());
  const moe::Shape shape;
  CCL_TRY(const auto layer, moe::Layer::create(comm, shape));
  const std::size_t elements = std::size_t(shape.tokens) * std::size_t(shape.hidden);
  moe::Token *tokens, *results, *out;
  moe::Pick* picks;
  cudaMalloc(&tokens, elements * sizeof(moe::Token));
  cudaMalloc(&out, elements * sizeof(moe::Token));
  cudaMalloc(&results, elements * sizeof(moe::Token) * std::size_t(comm.ranks()));
  cudaMalloc(&picks, std::size_t(shape.tokens * shape.top) * sizeof(moe::Pick));

  cudaStream_t stream;
  cudaGraph_t captured;
  cudaGraphExec_t graph;
  cudaStreamCreate(&stream);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  CCL_CHECK(layer.dispatch(tokens, picks, stream));
  moe::run_experts<<<unsigned(comm.ranks() * shape.tokens), 256, 0, stream>>>(
      shape, layer.arrived(), results);
  CCL_CHECK(layer.combine(results, out, stream));
  cudaStreamEndCapture(stream, &captured);
  cudaGraphInstantiate(&graph, captured, 0);

  long wrong = 0;
  for (int turn = 0; turn < 3; ++turn) {
    const auto x = moe::tokens_of(shape, comm.rank(), turn);
    const auto chosen = moe::picks_of(shape, comm.rank(), turn);
    auto y = x;
    cudaMemcpy(tokens, x.data(), x.size() * sizeof(moe::Token), cudaMemcpyHostToDevice);
    cudaMemcpy(picks, chosen.data(), chosen.size() * sizeof(moe::Pick), cudaMemcpyHostToDevice);
    cudaGraphLaunch(graph, stream);
    cudaStreamSynchronize(stream);
    cudaMemcpy(y.data(), out, y.size() * sizeof(moe::Token), cudaMemcpyDeviceToHost);
    wrong += moe::wrong(shape, comm.rank(), turn, y);
  }
  std::printf("rank %d of %d: %ld elements are wrong\n", comm.rank(), comm.ranks(), wrong);
  CCL_CHECK(comm.finalize());
  return wrong;
}

int main() {
  const auto wrong = run();
  if (!wrong) std::fprintf(stderr, "%s\n", wrong.error().message().c_str());
  return wrong && *wrong == 0 ? 0 : 1;
}
