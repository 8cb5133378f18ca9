// Kernels of the program that communicate, on GPUs that are played on the CPU: blocks of several
// warps, streams and graphs.
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/one_shot.hpp>
#include <ccl/collective.cuh>
#include <ccl/device.cuh>
#include <ccl/transport/p2p.hpp>

#include <thread>
#include <vector>

#include "support/played/calls.hpp"
#include "support/played/capture.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr int lanes = 64, blocks = 2, elements = 700;
using Lanes = BlockLanes<lanes>;
using Block = Tiles<Lanes, float, TileShape<7, 100>, LL128>;
constexpr Plan small{.channels = 1, .slot_count = 2, .slot_bytes = 256 << 10};

/// Memory of one rank's kernel. Results of launch n are at row n.
struct Given {
  const float* in;  // of each block
  float *sums, *shares;
  Word *words, *count, *failed;
};

/// Each block reduces a tile, puts a word to the next rank and counts; the last one signals.
__global__ void communicate(const __grid_constant__ Team team,
                            const __grid_constant__ Given given) {
  const int block = int(blockIdx.x), me = team.rank(), ranks = team.ranks();
  const int next = (me + 1) % ranks, before = (me + ranks - 1) % ranks;
  const Lanes group;
  TeamSession session{group, team, block, int(gridDim.x)};
  Block tiles{session};
  const Word launch = *given.count;
  float* const tile = given.sums + (Index(launch) * blocks + block) * elements;
  float* const share = given.shares + (Index(launch) * blocks + block) * elements;
  for (int i = group.rank(); i < elements; i += Lanes::width) {
    tile[i] = given.in[block * elements + i] + float(launch);
  }
  bool good = tiles.reduce_scatter(2 * block, tile, share);
  good = tiles.all_reduce(2 * block + 1, tile) && good;
  const Word word = launch * 1000 + Word(10 * me + block);
  session.put(next, block, &word, 1);
  if (session.count(0, blocks)) {
    session.signal(next, 0);
    good = session.wait(before, 0) && good;
    if (group.rank() < blocks) {
      given.words[launch * blocks + Word(group.rank())] = team.window<Word>(me)[group.rank()];
    }
    if (group.rank() == 0) *given.count = launch + 1;
  }
  good = session.barrier() && good;
  if (!good) *given.failed = 1;
}

/// Runs launches between the communicator's calls, then a graph of both.
std::string run_rank(const played::Rank& rank, int calls, int replays) {
  const int me = rank.rank, ranks = rank.ranks, launches = calls + replays + (replays + 2) / 3;
  const auto memory = SharedMemory::allocate(rank.comm, 64);
  const auto window = Window::create(rank.comm, *memory);
  if (!window) return window.error().message();
  auto made = DeviceComm::create(
      rank.comm, *window,
      {.blocks = blocks, .signals = 1, .counters = 1, .ll128_bytes = Block::bytes(4, ranks)});
  if (!made) return made.error().message();
  const auto all_reduce =
      Collective<AllReduce, OneShot, LL128, P2pTransport>::create(rank.comm, small);
  if (!all_reduce) return all_reduce.error().message();
  std::vector<Packet> in(blocks * elements / 4 + 1), sums(std::size_t(launches) * in.size()),
      shares(sums.size());
  std::vector<Word> words(std::size_t(launches) * blocks);
  std::vector<float> data(500, 1);
  Word count = 0, failed = 0;
  const Given given{reinterpret_cast<float*>(in.data()),
                    reinterpret_cast<float*>(sums.data()),
                    reinterpret_cast<float*>(shares.data()),
                    words.data(),
                    &count,
                    &failed};
  const auto input = [](int r, int i) { return float(r + i % 50); };
  for (int i = 0; i < blocks * elements; ++i) {
    reinterpret_cast<float*>(in.data())[i] = input(me, i);
  }
  const auto both = [&]() -> std::string {
    const auto e = detail::CudaExecutor::launch_kernel(communicate, {blocks, lanes}, nullptr,
                                                       rank.stream, made->team(), given);
    if (e != cudaSuccess) return "a launch failed";
    const auto done =
        (*all_reduce)(data.data(), data.data(), Index(data.size()), Max{}, rank.stream);
    return done ? std::string{} : done.error().message();
  };
  for (int n = 0; n < calls; ++n) {
    if (auto why = both(); !why.empty()) return why;
  }
  rank.synchronize();
  if (replays > 0) {
    auto* const stream = played::stream_of(rank.stream);
    if (played::Capture::begin(*stream) != CUDA_SUCCESS) return "no capture";
    if (auto why = both(); !why.empty()) return why;
    played::Graph* captured = nullptr;
    const auto capture = stream->capture;
    const auto ended = capture->end(*stream, &captured);
    const std::shared_ptr<played::Graph> graph{captured};
    if (ended != CUDA_SUCCESS) return "the capture did not end";
    for (int n = 0; n < replays; ++n) {
      if (played::launch_graph(graph, rank.stream) != CUDA_SUCCESS) return "no replay";
      if (n % 3 == 0) {
        if (auto why = both(); !why.empty()) return why;
      }
    }
  }
  rank.synchronize();
  if (const auto status = made->status(); !status) return status.error().message();
  if (failed != 0 || count != Word(launches)) return "a launch went wrong";
  const int before = (me + ranks - 1) % ranks, each = Block::share_elements(ranks);
  for (int n = 0; n < launches; ++n) {
    for (int b = 0; b < blocks; ++b) {
      if (words[std::size_t(n * blocks + b)] != Word(n * 1000 + 10 * before + b)) return "a word";
      const float* const sum = given.sums + (Index(n) * blocks + b) * elements;
      const float* const share = given.shares + (Index(n) * blocks + b) * elements;
      const auto wanted = [&](int i) {
        float all = 0;
        for (int r = 0; r < ranks; ++r) all += input(r, b * elements + i) + float(n);
        return all;
      };
      for (int i = 0; i < elements; ++i) {
        if (sum[i] != wanted(i)) return "a sum";
      }
      for (int i = 0; i < Block::share_count(me, ranks); ++i) {
        if (share[i] != wanted(me * each + i)) return "a share";
      }
    }
  }
  return {};
}

}  // namespace

TEST_CASE("blocks of several warps communicate on played GPUs, between the communicator's calls") {
  played::install(8, 4);
  for (const int ranks : {2, 3, 8}) {
    INFO(ranks << " ranks");
    auto comms = played::create_ranks(ranks);
    played::on_each(comms, [](const played::Rank& rank) { return run_rank(rank, 4, 0); });
  }
}

TEST_CASE("replays of a graph are launches like any other") {
  played::install(8, 4);
  for (const int ranks : {2, 4}) {
    INFO(ranks << " ranks");
    auto comms = played::create_ranks(ranks);
    played::on_each(comms, [](const played::Rank& rank) { return run_rank(rank, 2, 20); });
  }
}

namespace {
/// Adds up a tile of words on one warp of each rank.
__global__ void add_words(const __grid_constant__ Team team, Word* words) {
  TeamSession session{WarpLanes{}, team, 0, 1};
  Tiles<WarpLanes, Word, TileShape<1, 50>, LL>{session}.all_reduce(0, words);
}
}  // namespace

TEST_CASE("kernels of the program have a wait record of their own") {
  played::install(2, 4);
  auto comms = played::create_ranks(2);
  played::on_each(comms, [](const played::Rank& rank) -> std::string {
    const auto memory = SharedMemory::allocate(rank.comm, 4096);
    const auto window = Window::create(rank.comm, *memory);
    const auto made = DeviceComm::create(rank.comm, *window);
    if (!made) return made.error().message();
    auto& watched = detail::Access::state(rank.comm)->device.gpu->watched();
    watched.waits = {Word(2 - rank.rank), 5, 7};  // a kernel of ccl waits for the peer
    {
      detail::SpinWait<detail::HostMemory> wait{made->team().data().watch};
      for (unsigned poll = 0; poll < 3 * detail::HostMemory::check_every; ++poll) {
        if (wait.ends(1 - rank.rank, 9)) return "failed";
      }
      if (watched.program_waits.step != 9) return "the program's kernel has no record";
    }
    return watched.waits.peer == Word(2 - rank.rank) && watched.waits.step == 5 ? "" : "lost";
  });
}

TEST_CASE("packets of LL128 are refused where lines do not arrive whole, and those of LL are not") {
  played::install(4, 4);
  auto comms = played::create_ranks(4, 2);  // two hosts in one NVLink domain
  played::on_each(comms, [](const played::Rank& rank) -> std::string {
    const auto memory = SharedMemory::allocate(rank.comm, 64);
    const auto window = Window::create(rank.comm, *memory);
    if (!window) return window.error().message();
    const auto lines = DeviceComm::create(rank.comm, *window, {.ll128_bytes = 1024});
    if (lines || lines.error().code != Errc::not_supported) return "no refusal";
    using Words = Tiles<WarpLanes, Word, TileShape<1, 50>, LL>;
    const auto made =
        DeviceComm::create(rank.comm, *window, {.ll_bytes = Words::bytes(1, rank.ranks)});
    if (!made) return made.error().message();
    std::vector<Packet> words(25, {{Word(unsigned(rank.rank)), 1}});
    const auto e = detail::CudaExecutor::launch_kernel(add_words, {1, 32}, nullptr, rank.stream,
                                                       made->team(), &words[0].word[0]);
    if (e != cudaSuccess) return "a launch failed";
    rank.synchronize();
    if (const auto status = made->status(); !status) return status.error().message();
    for (const Packet& p : words) {
      if (p.word[0] != 6 || p.word[1] != 4) return "a sum";
    }
    return {};
  });
}

namespace {
constexpr Index part = 50, words_to_each = part * blocks;

/// Words that host and kernel share.
struct Mailbox {
  Word request = 0, last = ~Word{0}, served = 0;
};

/// Serves an all-to-all for each request of the host.
__global__ void serve(const __grid_constant__ Team team, const Word* in, Word* out, Mailbox* box) {
  const Lanes group;
  const int block = int(blockIdx.x), me = team.rank(), ranks = team.ranks();
  TeamSession session{group, team, block, int(gridDim.x)};
  for (Word n = 1;; ++n) {
    if (!session.wait_word(&box->request, n) || n > box->last) return;
    const Index half = Index(n & 1) * ranks * words_to_each, at = block * part;
    for (int k = 0; k < ranks; ++k) {
      const int p = (me + k) % ranks;
      session.put_signal(p, half + me * words_to_each + at, in + p * words_to_each + at, part,
                         block, n);
    }
    if (!session.wait_all(block, n)) return;
    const Word* const got = team.window<Word>(me) + half;
    for (Index i = group.rank(); i < ranks * part; i += lanes) {
      const Index to = i / part * words_to_each + at + i % part;
      out[to] = got[to];
    }
    if (session.count(0, int(gridDim.x))) session.set_word(&box->served, n);
  }
}

/// Requests of one rank's host, between collectives of its communicator on another stream.
std::string ask(const played::Rank& rank, Word requests) {
  const int me = rank.rank, ranks = rank.ranks;
  const Index all = ranks * words_to_each;
  const auto memory = SharedMemory::allocate(rank.comm, 2 * all * Index{sizeof(Word)});
  const auto window = Window::create(rank.comm, *memory);
  if (!window) return window.error().message();
  const auto made =
      DeviceComm::create(rank.comm, *window, {.blocks = blocks, .signals = blocks, .counters = 1});
  if (!made) return made.error().message();
  const auto all_reduce =
      Collective<AllReduce, OneShot, LL128, P2pTransport>::create(rank.comm, small);
  if (!all_reduce) return all_reduce.error().message();
  std::vector<Word> in(std::size_t(all), 0), out(in.size());
  Mailbox box;
  CUstream service = nullptr;
  (void)(*detail::cuda_driver())->stream_create(&service, CU_STREAM_NON_BLOCKING);
  const auto e = detail::CudaExecutor::launch_kernel(serve, {blocks, lanes}, nullptr, service,
                                                     made->team(), in.data(), out.data(), &box);
  if (e != cudaSuccess) return "a launch failed";
  std::string wrong;
  for (Word n = 1; n <= requests; ++n) {
    const auto value = [n](int from, int to, Index i) {
      return (n << 32) + Word(unsigned(from * 100 + to)) * 65536 + Word(i % words_to_each);
    };
    for (Index i = 0; i < all; ++i) in[std::size_t(i)] = value(me, int(i / words_to_each), i);
    detail::HostMemory::store_release(&box.request, n);
    while (detail::HostMemory::load_acquire(&box.served) < n) {
      if (const auto status = made->status(); !status) return status.error().message();
      std::this_thread::yield();
    }
    for (Index i = 0; i < all; ++i) {
      if (out[std::size_t(i)] != value(int(i / words_to_each), me, i)) wrong = "a word";
    }
    std::vector<float> data(100, float(n));
    const auto done = (*all_reduce)(data.data(), data.data(), 100, Sum{}, rank.stream);
    if (!done) return done.error().message();
    rank.synchronize();
    if (data[99] != float(ranks) * float(n)) wrong = "a sum of the communicator";
  }
  box.last = requests;
  detail::HostMemory::store_release(&box.request, requests + 1);
  (void)(*detail::cuda_driver())->stream_synchronize(service);
  (void)(*detail::cuda_driver())->stream_destroy(service);
  if (const auto status = made->status(); !status) return status.error().message();
  return wrong;
}
}  // namespace

TEST_CASE("a kernel that stays serves exchanges beside the communicator's calls") {
  played::install(8, 4);
  for (const int ranks : {2, 5}) {
    INFO(ranks << " ranks");
    auto comms = played::create_ranks(ranks);
    played::on_each(comms, [](const played::Rank& rank) { return ask(rank, 20); });
  }
}
