// Kernels of the program that communicate: every primitive and every collective of tiles, eagerly,
// in graphs of 1,000 replays, and between the communicator's own calls.
#include <ccl/device.cuh>

#include "communicator.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr int blocks = 4, max_words = 600;
constexpr int replays = 1000;
using Shape = TileShape<8, 40>;
constexpr int elements = Shape::elements;
constexpr int slots = 6;  // of each block and kind of tiles

/// Results of one rank's kernels.
struct Found {
  Word* cases;
  Word* wrong;
  Word* line;  // of the first wrong check
};

template <class T>
CCL_DEVICE T element(Word launch, int rank, int slot, int i) {
  return T(float((int(launch % 16) + 2 * rank + 3 * slot + i) % 7));
}
template <class T>
CCL_DEVICE T sum(Word launch, int ranks, int slot, int i) {
  float all = 0;
  for (int r = 0; r < ranks; ++r) all += float(element<T>(launch, r, slot, i));
  return T(all);
}
CCL_DEVICE Word word_of(Word launch, int from, int to, int i) {
  return launch << 32 | Word(unsigned(from * 100 + to * 10)) << 16 | Word(unsigned(i));
}

/// Checks of one block, which lane 0 adds to those of the rank.
struct Checks {
  Found found;
  CCL_DEVICE void add(bool good, int line = __builtin_LINE()) const {
    atomicAdd(reinterpret_cast<unsigned long long*>(found.cases), 1ull);
    if (good) return;
    atomicAdd(reinterpret_cast<unsigned long long*>(found.wrong), 1ull);
    atomicCAS(reinterpret_cast<unsigned long long*>(found.line), 0ull, 1ull * unsigned(line));
  }
};

/// Puts words to all ranks, whose readers say when they are done.
template <class Lanes>
CCL_DEVICE void play_puts(TeamSession<Lanes>& session, const Team& team, int block, Checks checks) {
  __shared__ Word message[max_words];
  const Lanes group;
  const int me = team.rank(), ranks = team.ranks();
  const Word launch = session.launch();
  const int count = 1 + int(launch * 37 % max_words);
  for (int k = 0; k < ranks; ++k) {
    const int p = (me + k) % ranks;
    group.sync();
    for (int i = group.rank(); i < count; i += Lanes::width) {
      message[i] = word_of(launch, me, p, i);
    }
    group.sync();
    session.put_signal(p, (block * ranks + me) * max_words, message, count, block);
  }
  for (int p = 0; p < ranks; ++p) {
    checks.add(session.wait(p, block));
    const Word* const got = team.window<Word>(me) + (block * ranks + p) * max_words;
    for (int i = group.rank(); i < count; i += Lanes::width) {
      checks.add(got[i] == word_of(launch, p, me, i));
    }
    session.signal(p, blocks + block);
  }
  for (int p = 0; p < ranks; ++p) checks.add(session.wait(p, blocks + block));
}

/// The last block of the rank signals what all blocks have put.
template <class Lanes>
CCL_DEVICE void play_counters(TeamSession<Lanes>& session, const Team& team, int block,
                              Checks checks) {
  const int me = team.rank(), ranks = team.ranks();
  const Word launch = session.launch();
  const Index base = Index{blocks} * ranks * max_words;
  for (int p = 0; p < ranks; ++p) {
    const Word word = word_of(launch, me, p, block);
    session.put(p, base + me * blocks + block, &word, 1);
  }
  if (!session.count(0, int(gridDim.x))) return;
  for (int p = 0; p < ranks; ++p) {
    if (p != me) session.signal(p, 2 * blocks);
  }
  checks.add(session.wait_all(2 * blocks));
  for (int i = Lanes{}.rank(); i < ranks * int(gridDim.x); i += Lanes::width) {
    const int p = i / int(gridDim.x), b = i % int(gridDim.x);
    checks.add(team.window<Word>(me)[base + p * blocks + b] == word_of(launch, p, me, b));
  }
  for (int p = 0; p < ranks; ++p) {
    if (p != me) session.signal(p, 2 * blocks, 2);
  }
  checks.add(session.wait_all(2 * blocks, 2));
}

/// Memory of a block for a tile and the tiles of all ranks, of any type.
CCL_DEVICE void* tile_memory() {
  __shared__ alignas(16) char bytes[(1 + max_unrolled_ranks) * elements * sizeof(float)];
  return bytes;
}

template <class Lanes, class T, class Proto>
CCL_DEVICE void play_tiles(TeamSession<Lanes>& session, const Team& team, int block, Index skip,
                           Checks checks) {
  using Block = Tiles<Lanes, T, Shape, Proto>;
  T* const tile = reinterpret_cast<T*>(tile_memory());
  T* const all = tile + elements;
  const Lanes group;
  const int me = team.rank(), ranks = team.ranks();
  const Word launch = session.launch();
  Block tiles{session, skip};
  int slot = block * slots;
  const auto fill = [&] {
    group.sync();
    for (int i = group.rank(); i < elements; i += Lanes::width) {
      tile[i] = element<T>(launch, me, slot, i);
    }
  };
  const auto check_sums = [&](const T* got, int begin, int count) {
    for (int i = group.rank(); i < count; i += Lanes::width) {
      checks.add(float(got[i]) == float(sum<T>(launch, ranks, slot, begin + i)));
    }
  };
  fill();
  checks.add(tiles.all_reduce(slot, tile));
  check_sums(tile, 0, elements);
  ++slot, fill();
  checks.add(tiles.reduce_scatter(slot, tile, all));
  check_sums(all, me * Block::share_elements(ranks), Block::share_count(me, ranks));
  ++slot, fill();
  checks.add(tiles.all_gather(slot, tile, all));
  for (int i = group.rank(); i < ranks * elements; i += Lanes::width) {
    checks.add(float(all[i]) == float(element<T>(launch, i / elements, slot, i % elements)));
  }
  ++slot, fill();
  const int root = int(launch + Word(unsigned(block))) % ranks;
  checks.add(tiles.reduce(root, slot, tile));
  if (me == root) check_sums(tile, 0, elements);
  ++slot, fill();
  checks.add(tiles.all_reduce(slot, tile, Max{}));
  for (int i = group.rank(); i < elements; i += Lanes::width) {
    float most = 0;
    for (int r = 0; r < ranks; ++r) most = fmaxf(most, float(element<T>(launch, r, slot, i)));
    checks.add(float(tile[i]) == float(T(most)));
  }
  ++slot, fill();
  if (ranks == 1) return;
  const int before = (me + ranks - 1) % ranks;
  checks.add(tiles.send((me + 1) % ranks, slot, tile));
  group.sync();
  checks.add(tiles.recv(before, slot, tile));
  for (int i = group.rank(); i < elements; i += Lanes::width) {
    checks.add(float(tile[i]) == float(element<T>(launch, before, slot, i)));
  }
}

template <int Threads>
__global__ void __launch_bounds__(Threads)
    communicate(const __grid_constant__ Team team, const __grid_constant__ Found found) {
  using Lanes = BlockLanes<Threads>;
  const int block = int(blockIdx.x);
  const Checks checks{found};
  TeamSession session{Lanes{}, team, block, int(gridDim.x)};
  play_puts(session, team, block, checks);
  checks.add(session.barrier());
  play_counters(session, team, block, checks);
  checks.add(session.barrier(MemoryOrder::relaxed));
  play_tiles<Lanes, float, LL128>(session, team, block, 0, checks);
  Index skip = Tiles<Lanes, float, Shape, LL128>::bytes(blocks * slots, team.ranks());
  play_tiles<Lanes, bfloat16, LL128>(session, team, block, skip, checks);
  skip += Tiles<Lanes, bfloat16, Shape, LL128>::bytes(blocks * slots, team.ranks());
  play_tiles<Lanes, float, LL128Pairs>(session, team, block, skip, checks);
  skip += Tiles<Lanes, float, Shape, LL128Pairs>::bytes(blocks * slots, team.ranks());
  play_tiles<Lanes, bfloat16, LL128Pairs>(session, team, block, skip, checks);
  play_tiles<Lanes, int, LL>(session, team, block, 0, checks);
  // Words before the barrier, read after it. The next launch writes them again.
  if (threadIdx.x == 0) {
    const Index at = Index{blocks} * team.ranks() * (max_words + 1) + block;
    for (int p = 0; p < team.ranks(); ++p) {
      team.window<Word>(p)[at + Index{blocks} * team.rank()] =
          word_of(session.launch(), team.rank(), p, block);
    }
  }
  checks.add(session.barrier());
  if (int(threadIdx.x) < team.ranks()) {
    const Index at = Index{blocks} * team.ranks() * (max_words + 1) + block;
    const int p = int(threadIdx.x);
    checks.add(team.window<Word>(team.rank())[at + Index{blocks} * p] ==
               word_of(session.launch(), p, team.rank(), block));
  }
  checks.add(session.barrier());
}

/// Kernels of one width, eagerly and in a graph, each followed by a call of the communicator.
template <int Threads>
void play(const Communicator& comm, const DeviceComm& device, const Found& found) {
  using Calls = Collective<AllReduce, OneShot, LL128, DefaultTransport>;
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  must(check_launch(device, communicate<Threads>, blocks, Threads));
  const Calls all_reduce = must(Calls::create(comm));
  Buffer<float> in{1000, 0}, out{1000, 0};
  in.fill([&](Index i) { return value(comm.rank(), i); }, stream);
  const auto both = [&](int count) {
    communicate<Threads><<<count, Threads, 0, stream>>>(device.team(), found);
    MUST_CUDA(cudaGetLastError());
    must(all_reduce(in.get(), out.get(), 1000, Sum{}, stream));
  };
  const auto verify = [&](const char* how) {
    MUST_CUDA(cudaStreamSynchronize(stream));
    must(device.status());
    const long wrong = out.wrong(
        1000,
        [&](Index i) {
          double sum = 0;
          for (int r = 0; r < comm.ranks(); ++r) sum += value(r, i);
          return sum;
        },
        stream);
    check(wrong == 0, "%s: %ld sums of the communicator", how, wrong);
  };
  for (int n = 0; n < 20; ++n) both(1 + n % blocks);
  verify("eagerly");
  cudaGraph_t captured;
  cudaGraphExec_t ready;
  MUST_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  both(blocks);
  MUST_CUDA(cudaStreamEndCapture(stream, &captured));
  MUST_CUDA(cudaGraphInstantiate(&ready, captured, 0));
  for (int n = 0; n < replays; ++n) {
    MUST_CUDA(cudaGraphLaunch(ready, stream));
    if (n % 100 == 0) both(blocks);
  }
  verify("in a graph");
  MUST_CUDA(cudaGraphExecDestroy(ready));
  MUST_CUDA(cudaGraphDestroy(captured));
  MUST_CUDA(cudaStreamDestroy(stream));
}

__global__ void misuse(const __grid_constant__ Team team) {
  TeamSession session{WarpLanes{}, team, 0, 1};
  session.signal(team.rank(), 100);
}

void suite(Communicator comm) {
  const int ranks = comm.ranks();
  const Index words = Index{blocks} * ranks * (max_words + 2);
  const auto memory = must(SharedMemory::allocate(comm, words * Index{sizeof(Word)}));
  const auto window = must(Window::create(comm, memory));
  using Lanes = BlockLanes<512>;  // the widest: its slots take most packets
  const Index n = blocks * slots;
  const auto device = must(DeviceComm::create(
      comm, window,
      {.blocks = blocks,
       .signals = 2 * blocks + 1,
       .counters = 1,
       .ll_bytes = Tiles<Lanes, int, Shape, LL>::bytes(n, ranks),
       .ll128_bytes = Tiles<Lanes, float, Shape, LL128>::bytes(n, ranks) +
                      Tiles<Lanes, bfloat16, Shape, LL128>::bytes(n, ranks) +
                      Tiles<Lanes, float, Shape, LL128Pairs>::bytes(n, ranks) +
                      Tiles<Lanes, bfloat16, Shape, LL128Pairs>::bytes(n, ranks) + 16384}));
  Buffer<Word> counts{3, 0};
  counts.fill([](Index) { return 0; }, nullptr);
  const Found found{counts.get(), counts.get() + 1, counts.get() + 2};
  play<32>(comm, device, found);
  play<128>(comm, device, found);
  play<512>(comm, device, found);
  const Pinned<Word> host{3};
  MUST_CUDA(cudaMemcpy(host.get(), counts.get(), 3 * sizeof(Word), cudaMemcpyDefault));
  check(host[0] > 0 && host[1] == 0,
        "rank %d: %llu of %llu checks in kernels, the first one in line %llu", comm.rank(),
        static_cast<unsigned long long>(host[1]), static_cast<unsigned long long>(host[0]),
        static_cast<unsigned long long>(host[2]));
  std::printf("rank %d: %llu checks in kernels\n", comm.rank(),
              static_cast<unsigned long long>(host[0]));
  must(comm.barrier());
  must(device.close());
  must(window.close());
}

/// A wrong call in a kernel has a code. The communicator then has failed.
void wrong_call(const Communicator& comm) {
  const auto memory = must(SharedMemory::allocate(comm, 64));
  const auto window = must(Window::create(comm, memory));
  const auto device = must(DeviceComm::create(comm, window, {.signals = 1}));
  must(check_launch(device, misuse, 1, 32));
  const auto large = check_launch(device, misuse, 2, 32);
  check(!large && large.error().code == Errc::invalid_argument, "a launch with too many blocks");
  must(comm.barrier());
  misuse<<<1, 32>>>(device.team());
  MUST_CUDA(cudaDeviceSynchronize());
  const auto status = device.status();
  check(!status &&
            (status.error().code == Errc::invalid_usage || status.error().code == Errc::aborted),
        "a wrong call");
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_TIMEOUT", "20", 0);
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  both_ways(ranks, Config{}, suite);
  as_threads(ranks.count, Config{}, wrong_call);
  return result("Device interface", ranks.gpus);
}
