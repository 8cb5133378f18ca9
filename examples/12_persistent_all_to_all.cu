// A kernel that runs for the whole job and serves all-to-alls: the host asks by a word of its
// memory and is answered by another one, so that no exchange costs a launch.
#include <ccl/device.cuh>

#include <atomic>
#include <cstdio>
#include <vector>

constexpr int lanes = 256, blocks = 4, requests = 100;
constexpr ccl::Index part = 1024, count = part * blocks;  // words of a block and of a rank, to each

using Lanes = ccl::BlockLanes<lanes>;
using ccl::Word;

/// Words that host and kernel share, in memory of the host.
struct Mailbox {
  Word request, last, served;
};

/// Serves request n as soon as `request` is n or more, up to request `last`.
__global__ void serve(const __grid_constant__ ccl::Team team, const Word* in, Word* out,
                      Mailbox* box) {
  const Lanes group;
  const int block = int(blockIdx.x), me = team.rank(), ranks = team.ranks();
  ccl::TeamSession session{group, team, block, int(gridDim.x)};
  for (Word n = 1;; ++n) {
    if (!session.wait_word(&box->request, n) || n > box->last) return;
    // Two halves in turn: who signals n - 1 has read what it got by n - 2.
    const ccl::Index half = ccl::Index(n & 1) * ranks * count;
    for (int k = 0; k < ranks; ++k) {
      const int p = (me + k) % ranks;
      const ccl::Index at = block * part;
      session.put_signal(p, half + me * count + at, in + p * count + at, part, block, n);
    }
    if (!session.wait_all(block, n)) return;
    const Word* const got = team.window<Word>(me) + half;
    for (int i = group.rank(); i < ranks * part; i += lanes) {
      const ccl::Index at = i / part * count + block * part + i % part;
      out[at] = got[at];
    }
    if (session.count(0, int(gridDim.x))) session.set_word(&box->served, n);
  }
}

/// Asks for request n and waits for it. Returns false if the communicator has failed.
bool exchange(const ccl::DeviceComm& device, Mailbox* box, Word n) {
  std::atomic_ref{box->request}.store(n, std::memory_order_release);
  while (std::atomic_ref{box->served}.load(std::memory_order_acquire) < n) {
    if (!device.status()) return false;
  }
  return true;
}

ccl::Result<void> run() {
  CCL_TRY(const auto comm, ccl::Communicator::from_env());
  if (comm.device() < 0) return ccl::fail(ccl::Errc::not_supported, "this machine has no GPU");
  cudaSetDevice(comm.device());
  const int me = comm.rank(), ranks = comm.ranks();
  const std::size_t words = std::size_t(ranks * count), bytes = words * sizeof(Word);
  CCL_TRY(const auto memory, ccl::SharedMemory::allocate(comm, 2 * ccl::Index(bytes)));
  CCL_TRY(const auto window, ccl::Window::create(comm, memory));
  CCL_TRY(
      const auto device,
      ccl::DeviceComm::create(comm, window, {.blocks = blocks, .signals = blocks, .counters = 1}));
  CCL_CHECK(ccl::check_launch(device, serve, blocks, lanes));
  cudaStream_t service, copies;  // the kernel occupies the first one
  cudaStreamCreateWithFlags(&service, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking);
  Word *in = nullptr, *out = nullptr, *host = nullptr;
  Mailbox* box = nullptr;
  cudaMalloc(&in, bytes);
  cudaMalloc(&out, bytes);
  cudaHostAlloc(&host, bytes, cudaHostAllocDefault);
  cudaHostAlloc(&box, sizeof(Mailbox), cudaHostAllocMapped);
  *box = {0, ~Word{0}, 0};
  serve<<<blocks, lanes, 0, service>>>(device.team(), in, out, box);
  long wrong = 0;
  bool good = true;
  for (Word n = 1; n <= requests && good; ++n) {
    const auto value = [n](int from, int to, std::size_t i) {
      return (n << 32) + Word(unsigned(from * 100 + to)) * 65536 + i % std::size_t(count);
    };
    const auto peer = [](std::size_t i) { return int(i / std::size_t(count)); };
    for (std::size_t i = 0; i < words; ++i) host[i] = value(me, peer(i), i);
    cudaMemcpyAsync(in, host, bytes, cudaMemcpyHostToDevice, copies);
    cudaStreamSynchronize(copies);
    good = exchange(device, box, n);
    cudaMemcpyAsync(host, out, bytes, cudaMemcpyDeviceToHost, copies);
    cudaStreamSynchronize(copies);
    for (std::size_t i = 0; i < words; ++i) wrong += host[i] != value(peer(i), me, i);
  }
  box->last = requests;
  std::atomic_ref{box->request}.store(requests + 1, std::memory_order_release);
  cudaStreamSynchronize(service);
  CCL_CHECK(device.status());
  std::printf("rank %d of %d: %ld elements of %d exchanges are wrong\n", me, ranks, wrong,
              requests);
  CCL_CHECK(device.close());
  return comm.finalize();
}

int main() {
  const auto done = run();
  if (!done) std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return done ? 0 : 1;
}
