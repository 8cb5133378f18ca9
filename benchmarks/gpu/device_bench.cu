// Communication inside a kernel, between two GPUs or two ranks that share one. Prints one line of
// JSON for each case, on rank 0:
// - "one_way": a message of a word and its notice, there and back in one kernel, by a bare store of
//   data and flag, a bare store and a flag with release order, put with signal, and a tile.
// - "all_reduce": tiles that blocks have just written, reduced in their kernel and by a call of
//   ccl's after it, in a graph.
//   device_bench [rounds]
// Exits with 1 if a result is wrong.
#include <ccl/device.cuh>
// after the header that suppresses warnings
#include <ccl/algo/one_shot.hpp>
#include <ccl/algo/two_shot.hpp>
#include <ccl/collective.cuh>
#include <ccl/transport/any_of.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "must.cuh"

using namespace ccl;
using bench::must;

namespace {

std::atomic<bool> all_good{true};

// Bytes of the window: two words of bare stores, and a word of puts.
constexpr Index window_bytes = 256;
constexpr Word max_polls = 4'000'000;
enum class Notice { packet, release, put_signal, tile };

/// A word goes from rank 0 to rank 1 and back, `rounds` times. All of them have one warp.
template <Notice How>
__global__ void ping_pong(const __grid_constant__ Team team, int rounds, Word base, Word* wrong) {
  using Line = Tiles<WarpLanes, Word, TileShape<1, 1>, LL, 2>;
  const WarpLanes group;
  TeamSession session{group, team, 0, 1};
  const int me = team.rank(), peer = 1 - me;
  Word bad = 0;
  if constexpr (How == Notice::packet || How == Notice::release) {
    if (group.rank() == 0) {
      Packet* const theirs = team.window<Packet>(peer);
      const Packet* const mine = team.window<Packet>(me);
      for (Word n = base; n < base + Word(rounds) && bad == 0; ++n) {
        const auto send = [&] {
          if constexpr (How == Notice::packet) {
            ptx::store_relaxed(theirs, Packet{{2 * n, n}});
          } else {
            ptx::store_relaxed(&theirs->word[0], 2 * n);
            ptx::store_release(&theirs->word[1], n);
          }
        };
        // Ends when the peer stores, or after some seconds without that.
        const auto wait = [&] {
          Packet got{};
          for (Word polls = 0; got.word[1] != n && polls < max_polls; ++polls) {
            if constexpr (How == Notice::packet) {
              got = ptx::load_relaxed(mine);
            } else {
              got.word[1] = ptx::load_acquire(&mine->word[1]);
            }
          }
          if constexpr (How == Notice::release) got.word[0] = ptx::load_relaxed(&mine->word[0]);
          bad += got.word[0] != 2 * n;
        };
        if (me == 0) send();
        wait();
        if (me == 1) send();
      }
    }
  } else if constexpr (How == Notice::put_signal) {
    for (Word n = 1; n <= Word(rounds); ++n) {
      const Word word = 3 * n;
      if (me == 0) session.put_signal(peer, 8, &word, 1, 0, n);
      session.wait(peer, 0, n);
      bad += ptx::load_relaxed(team.window<Word>(me) + 8) != word;
      if (me == 1) session.put_signal(peer, 8, &word, 1, 0, n);
    }
  } else {
    Line tiles{session};
    alignas(16) __shared__ Word sent[2], got[2];
    for (int n = 0; n < rounds; ++n) {
      if (me == 0) {
        if (group.rank() == 0) sent[0] = Word(unsigned(5 * n));
        tiles.send(peer, n, sent);
      }
      tiles.recv(peer, n, got);
      bad += got[0] != Word(unsigned(5 * n));
      if (me == 1) tiles.send(peer, n, got);
    }
  }
  if (bad != 0) *wrong = bad;
}

struct Stopwatch {
  cudaEvent_t begin, end;
  Stopwatch() {
    MUST(cudaEventCreate(&begin));
    MUST(cudaEventCreate(&end));
  }
  ~Stopwatch() {
    MUST(cudaEventDestroy(begin));
    MUST(cudaEventDestroy(end));
  }
  /// Returns the microseconds of what `f` queues, the fastest of several times.
  template <class F>
  double best(const Communicator& comm, cudaStream_t stream, F f) const {
    double best = 0;
    for (int i = 0; i < 7; ++i) {
      must(comm.barrier());
      MUST(cudaEventRecord(begin, stream));
      f();
      MUST(cudaEventRecord(end, stream));
      MUST(cudaEventSynchronize(end));
      float ms = 0;
      MUST(cudaEventElapsedTime(&ms, begin, end));
      if (i == 1 || (i > 1 && double(ms) * 1000 < best)) best = double(ms) * 1000;
    }
    return best;
  }
};

/// Each block writes its tile and reduces it if `Reduces`, else only writes it.
template <class Block, bool Reduces>
__global__ void write_tiles(const __grid_constant__ Team team, float* data) {
  constexpr int lanes = 256, size = Block::elements;
  const BlockLanes<lanes> group;
  float* const tile = data + Index{blockIdx.x} * size;
  for (int i = group.rank(); i < size; i += lanes) tile[i] = float(i % 7 + team.rank());
  if constexpr (Reduces) {
    typename Block::Session session{group, team, int(blockIdx.x), int(gridDim.x)};
    Block{session}.all_reduce(int(blockIdx.x), tile);
  }
}

template <int Rows>
void measure_tiles(const Communicator& comm, const Window& window, cudaStream_t stream,
                   int blocks) {
  using Block = Tiles<BlockLanes<256>, float, TileShape<Rows, 64>, LL128, 2>;
  using OneShotCall = Collective<AllReduce, OneShot, LL128, DefaultTransport>;
  using TwoShotCall = Collective<AllReduce, TwoShot, LL128, DefaultTransport>;
  constexpr int calls = 50;
  const Index count = Index{blocks} * Block::elements;
  const auto device = must(DeviceComm::create(
      comm, window, {.blocks = blocks, .ll128_bytes = Block::bytes(blocks, comm.ranks())}));
  must(check_launch(device, write_tiles<Block, true>, blocks, 256));
  const auto one = must(OneShotCall::create(comm));
  const auto two = must(TwoShotCall::create(comm));
  float* data = nullptr;
  MUST(cudaMalloc(&data, std::size_t(count) * sizeof(float)));
  const auto check = [&] {
    std::vector<float> got(static_cast<std::size_t>(count));
    MUST(cudaMemcpy(got.data(), data, got.size() * sizeof(float), cudaMemcpyDefault));
    for (Index i = 0; i < count; ++i) {
      if (got[std::size_t(i)] != float(2 * (i % Block::elements % 7) + 1)) all_good = false;
    }
  };
  const auto in_a_graph = [&](auto call) {
    cudaGraph_t captured;
    cudaGraphExec_t ready;
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int n = 0; n < calls; ++n) call();
    MUST(cudaStreamEndCapture(stream, &captured));
    MUST(cudaGraphInstantiate(&ready, captured, 0));
    const double us = Stopwatch{}.best(comm, stream, [&] { MUST(cudaGraphLaunch(ready, stream)); });
    check();
    MUST(cudaGraphExecDestroy(ready));
    MUST(cudaGraphDestroy(captured));
    return us / calls;
  };
  const auto apart = [&](const auto& all_reduce) {
    return in_a_graph([&] {
      write_tiles<Block, false><<<blocks, 256, 0, stream>>>(device.team(), data);
      must(all_reduce(data, data, count, Sum{}, stream));
    });
  };
  const double inside = in_a_graph(
      [&] { write_tiles<Block, true><<<blocks, 256, 0, stream>>>(device.team(), data); });
  const double one_us = apart(one), two_us = apart(two);
  must(device.status());
  if (comm.rank() == 0) {
    std::printf(
        "{\"of\":\"all_reduce\",\"bytes\":%lld,\"blocks\":%d,\"in_kernel_us\":%.2f,"
        "\"one_shot_us\":%.2f,\"two_shot_us\":%.2f,\"ok\":%s}\n",
        static_cast<long long>(count) * 4, blocks, inside, one_us, two_us,
        all_good ? "true" : "false");
    std::fflush(stdout);
  }
  must(comm.barrier());
  must(device.close());
  MUST(cudaFree(data));
}

void run(const Communicator& comm, int rounds) {
  MUST(cudaSetDevice(comm.device()));
  cudaStream_t stream;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const auto memory = must(SharedMemory::allocate(comm, window_bytes));
  const auto window = must(Window::create(comm, memory));
  using Line = Tiles<WarpLanes, Word, TileShape<1, 1>, LL, 2>;
  const auto device = must(DeviceComm::create(
      comm, window, {.signals = 1, .ll_bytes = Line::bytes(rounds, comm.ranks())}));
  Word* wrong = nullptr;
  MUST(cudaMalloc(&wrong, sizeof(Word)));
  MUST(cudaMemset(wrong, 0, sizeof(Word)));
  Word base = 1;
  const auto measure = [&](const char* how, auto kernel) {
    must(check_launch(device, kernel, 1, 32));
    const double us = Stopwatch{}.best(comm, stream, [&] {
      kernel<<<1, 32, 0, stream>>>(device.team(), rounds, base, wrong);
      MUST(cudaGetLastError());
      base += Word(unsigned(rounds));
    });
    must(device.status());
    Word found = 0;
    MUST(cudaMemcpy(&found, wrong, sizeof(Word), cudaMemcpyDefault));
    if (found != 0) all_good = false;
    if (comm.rank() != 0) return;
    std::printf("{\"of\":\"one_way\",\"by\":\"%s\",\"us\":%.3f,\"ok\":%s}\n", how, us / rounds / 2,
                found == 0 ? "true" : "false");
    std::fflush(stdout);
  };
  measure("a bare store of data and flag", ping_pong<Notice::packet>);
  measure("a bare store and a released flag", ping_pong<Notice::release>);
  measure("put with signal", ping_pong<Notice::put_signal>);
  measure("a tile by LL", ping_pong<Notice::tile>);
  for (const int blocks : {1, 8, 32}) {
    measure_tiles<16>(comm, window, stream, blocks);
    measure_tiles<64>(comm, window, stream, blocks);
  }
  must(comm.barrier());
  must(device.close());
}

}  // namespace

int main(int argc, char** argv) {
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  ::setenv("CCL_TIMEOUT", "20", 0);
  ::setenv("CCL_MULTI_RANK_GPU_ENABLE", "1", 0);
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 2000;
  auto comms = must(Communicator::create_all(2));
  std::vector<std::thread> threads;
  for (auto& comm : comms) threads.emplace_back([&comm, rounds] { run(comm, rounds); });
  for (auto& thread : threads) thread.join();
  return all_good ? 0 : 1;
}
