// Random programs of kernels that communicate: eagerly, in graphs, and between collectives of their
// communicator, for ranks of one host and for ranks that take each other to be on two hosts. The
// kernel is the same. Rank 0 prints the time of a put with signal, one way, for both. PROGRAMS sets
// the number of programs of each case.
#include <ccl/algo/ring.hpp>
#include <ccl/device.cuh>

#include "communicator.cuh"
#include "support/device_programs.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr int lanes = 128, blocks = 2, replays = 100, rounds = 500;
using Lanes = BlockLanes<lanes>;
using Program = DeviceProgram<Lanes, max_unrolled_ranks, LL, NetworkTeam>;
using Sums = Collective<AllReduce, Ring, LL, DefaultTransport>;

__global__ void __launch_bounds__(lanes)
    run_program(const __grid_constant__ NetworkTeam team, ProgramMemory* memory, Word seed,
                Word* wrong) {
  const int block = int(blockIdx.x);
  Program program{Lanes{}, team, block, int(gridDim.x), memory[block]};
  const long found = program.play(seed);
  if (found != 0) atomicAdd(reinterpret_cast<unsigned long long*>(wrong), 1ull);
}

/// A word goes from rank 0 to rank 1 and back. The others watch.
__global__ void ping_pong(const __grid_constant__ NetworkTeam team, Word* wrong) {
  TeamSession session{WarpLanes{}, team, 0, 1};
  const int me = team.rank(), peer = 1 - me;
  if (me > 1) return;
  for (Word n = 1; n <= rounds; ++n) {
    const Word word = 3 * n;
    if (me == 0) session.put_signal(peer, 0, &word, 1, 0, n);
    const bool came = session.wait(peer, 0, n);
    if (!came || ptx::load_relaxed(team.window<Word>(me)) != word) *wrong = n;
    if (me == 1) session.put_signal(peer, 0, &word, 1, 0, n);
  }
}

int programs() {
  const char* const given = std::getenv("PROGRAMS");
  return given != nullptr ? std::atoi(given) : 300;
}

void play(const Communicator& comm) {
  const int ranks = comm.ranks();
  const auto memory = must(SharedMemory::allocate(comm, Program::window_bytes(ranks, blocks)));
  const auto window = must(Window::create(comm, memory, WindowReach::near));
  const auto device = must(DeviceComm::create(comm, window, Program::needs(ranks, blocks)));
  must(check_launch(device, run_program, blocks, lanes));
  must(check_launch(device, ping_pong, 1, 32));
  const Sums sums = must(Sums::create(comm));
  int far = 0;
  for (int p = 0; p < ranks; ++p) far += !device.network_team().is_near(p);
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Buffer<ProgramMemory> shared{blocks, 0};
  Buffer<Word> wrong{1, 0};
  wrong.fill([](Index) { return 0; }, stream);
  Buffer<float> in{1000, 0}, out{1000, 0};
  in.fill([&](Index i) { return value(comm.rank(), i); }, stream);
  const auto both = [&](Word seed) {
    run_program<<<blocks, lanes, 0, stream>>>(device.network_team(), shared.get(), seed,
                                              wrong.get());
    MUST_CUDA(cudaGetLastError());
    if (seed % 3 == 0) must(sums(in.get(), out.get(), 1000, Sum{}, stream));
  };
  // Threads that share a GPU must not wait for it while kernels of one wait for another's launch:
  // the driver does so for memory, and for graphs that it makes.
  const auto all_are_here = [&] {
    MUST_CUDA(cudaStreamSynchronize(stream));
    must(comm.barrier());
  };
  all_are_here();
  for (Word n = 0; n < Word(programs()); ++n) both(n);
  all_are_here();
  cudaGraph_t captured;
  cudaGraphExec_t ready;
  MUST_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (Word n = 0; n < 4; ++n) both(1000 + n);
  MUST_CUDA(cudaStreamEndCapture(stream, &captured));
  MUST_CUDA(cudaGraphInstantiate(&ready, captured, 0));
  MUST_CUDA(cudaGraphUpload(ready, stream));
  all_are_here();
  for (int n = 0; n < replays; ++n) MUST_CUDA(cudaGraphLaunch(ready, stream));
  MUST_CUDA(cudaStreamSynchronize(stream));
  must(device.status());
  cudaEvent_t begin, end;
  MUST_CUDA(cudaEventCreate(&begin));
  MUST_CUDA(cudaEventCreate(&end));
  float ms = 0;
  for (int n = 0; n < 2; ++n) {  // the first one warms up
    must(comm.barrier());
    MUST_CUDA(cudaEventRecord(begin, stream));
    ping_pong<<<1, 32, 0, stream>>>(device.network_team(), wrong.get());
    MUST_CUDA(cudaEventRecord(end, stream));
    MUST_CUDA(cudaEventSynchronize(end));
    MUST_CUDA(cudaEventElapsedTime(&ms, begin, end));
  }
  must(device.status());
  const Pinned<Word> found{1};
  MUST_CUDA(cudaMemcpy(found.get(), wrong.get(), sizeof(Word), cudaMemcpyDefault));
  check(found[0] == 0, "rank %d, %d far: %llu wrong results", comm.rank(), far,
        static_cast<unsigned long long>(found[0]));
  if (comm.rank() == 0) {
    std::printf("{\"of\":\"one_way\",\"far\":%d,\"us\":%.2f}\n", far, ms * 1000 / rounds / 2);
  }
  must(comm.barrier());
  MUST_CUDA(cudaEventDestroy(begin));
  MUST_CUDA(cudaEventDestroy(end));
  MUST_CUDA(cudaGraphExecDestroy(ready));
  MUST_CUDA(cudaGraphDestroy(captured));
  MUST_CUDA(cudaStreamDestroy(stream));
  must(device.close());
  must(window.close());
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_TIMEOUT", "20", 0);
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  ::setenv("CCL_MNNVL_ENABLE", "0", 0);  // two hosts are joined by their network alone
  as_threads(ranks.count, Config{}, play);
  as_processes(ranks.count, Config{}, play);
  if (ranks.count > 1) as_processes(ranks.count, Config{}, play, 2);
  return result("Programs of kernels", ranks.gpus);
}
