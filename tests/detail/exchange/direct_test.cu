// Exchanges by Direct among ranks on the GPUs of this process, without a communicator: into mapped
// buffers, through slots that the copy engine or lanes fill, and both in one launch.
#include <ccl/algo/direct.hpp>
#include <ccl/detail/exchange/kernels.cuh>
#include <ccl/proto/simple.hpp>

#include <random>

#include "gpu/world.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

using Shape = detail::PeerExchangeShape<Direct, Simple>;
using Work = detail::PeerExchangeWork;
constexpr unsigned char marker = 0x5a;

/// Whether peers can map a rank's buffers, and have.
enum class Maps { all, some, late, never };

class Ranks {
 public:
  Ranks(int ranks, Index scratch_bytes) : ranks_{ranks}, half_bytes_{scratch_bytes / 2} {
    MUST(cudaHostAlloc(&watched_, sizeof(Watched), cudaHostAllocPortable));
    *watched_ = {};
    for (int r = 0; r < ranks; ++r) {
      const int g = r % gpus();
      scratch_.emplace_back(
          g, size_t(2 * half_bytes_) + size_t(detail::mailboxes(ranks)) * sizeof(detail::Mailbox));
      states_.emplace_back(g, size_t(blocks_of_state) * Work::state_words * sizeof(Word));
      tables_.emplace_back(g, size_t(ranks) * detail::RemoteBuffer::slots * sizeof(Word));
      cudaStream_t stream;
      MUST(cudaSetDevice(g));
      MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      streams_.push_back(stream);
      MUST(Shape::load());
    }
  }
  ~Ranks() {
    for (cudaStream_t stream : streams_) (void)cudaStreamDestroy(stream);
    (void)cudaFreeHost(watched_);
  }

  /// One launch on each rank. `bytes(from, to)`: size of a message; `offset`, `in_offset`: of all
  /// buffers, to send and to receive, from an aligned address.
  template <class Bytes>
  void run(Tally& tally, Bytes bytes, Index offset, Index in_offset, Maps maps, int blocks,
           bool in_turns) {
    ++id_;
    std::vector<DeviceArray> out, in;
    for (int r = 0; r < ranks_; ++r) {
      out.emplace_back(r % gpus(), size_t(ranks_) * room(bytes));
      in.emplace_back(r % gpus(), size_t(ranks_) * room(bytes));
      out.back().put(sent(r), out.back().bytes());
      MUST(cudaMemset(in.back().data(), marker, in.back().bytes()));
    }
    const auto at = [&](const DeviceArray& array, int peer) {
      return array.data() + Index(peer) * Index(room(bytes));
    };
    MUST(cudaDeviceSynchronize());
    std::vector<Work> works(static_cast<size_t>(ranks_));
    for (int r = 0; r < ranks_; ++r) {
      Work& work = works[size_t(r)];
      for (int p = 0; p < ranks_; ++p) {
        work.peers.scratch[p] = scratch_[size_t(p)].as<Packet>();
        work.out[p] = {at(out[size_t(r)], p) + offset, bytes(r, p)};
        work.in[p] = {at(in[size_t(r)], p) + in_offset, bytes(p, r)};
        const bool can =
            maps == Maps::all || maps == Maps::late || (maps == Maps::some && r % 2 == 0);
        if (p != r && can) {
          work.where[p] =
              detail::RemoteBuffer::where(Word(id_), Word(work.in[p].data - in[size_t(r)].data()));
        }
        const bool has = maps == Maps::all || (maps == Maps::some && p % 2 == 0);
        if (p == r || !has) continue;
        const Word entry =
            detail::RemoteBuffer::entry(Word(id_), reinterpret_cast<Word>(in[size_t(p)].data()));
        const int slot = detail::RemoteBuffer::slot(detail::RemoteBuffer::where(Word(id_), 0));
        tables_[size_t(r)].put(&entry, sizeof entry,
                               size_t(p * detail::RemoteBuffer::slots + slot) * sizeof entry);
      }
      work.peers.half_packets = half_bytes_ / Index{sizeof(Packet)};
      work.peers.rank = r;
      work.peers.ranks = ranks_;
      work.table = maps == Maps::never ? nullptr : tables_[size_t(r)].as<Word>();
      work.state = {states_[size_t(r)].as<Word>(), blocks_of_state};
      work.in_turns = in_turns;
      work.rings = detail::Rings::limit(ranks_, false, blocks, in_turns);
      work.watch = {&watched_->stop, &watched_->failure, Word{5} * 1'000'000'000};
    }
    for (int r = 0; r < ranks_; ++r) {
      const detail::DeviceTarget target{r % gpus(), streams_[size_t(r)], blocks};
      MUST(cudaSetDevice(target.device));
      MUST(Shape::launch(works[size_t(r)], target));
    }
    for (cudaStream_t stream : streams_) MUST(cudaStreamSynchronize(stream));
    if (watched_->failure.peer != 0) {
      std::printf("FAILED: a lane waited for rank %d, step %llu: %d ranks, %d blocks, maps %d\n",
                  int(watched_->failure.peer) - 1, (unsigned long long)watched_->failure.step,
                  ranks_, blocks, int(maps));
      std::exit(1);
    }
    for (int r = 0; r < ranks_; ++r) {
      std::vector<unsigned char> got(in[size_t(r)].bytes());
      in[size_t(r)].get(got.data(), got.size());
      std::vector<unsigned char> want(got.size(), marker);
      for (int p = 0; p < ranks_; ++p) {
        const unsigned char* const from = sent(p) + Index(r) * Index(room(bytes)) + offset;
        std::copy_n(from, bytes(p, r), want.data() + Index(p) * Index(room(bytes)) + in_offset);
      }
      tally.check(
          got == want,
          "rank %d of %d, %lld bytes from 0 to 1, offsets %lld, %lld, maps %d, %d blocks, turns %d",
          r, ranks_, (long long)bytes(0, 1), (long long)offset, (long long)in_offset, int(maps),
          blocks, int(in_turns));
    }
  }

 private:
  static constexpr int blocks_of_state = 64;
  struct Watched {
    Word stop = 0;
    detail::LaneFailure failure;
  };
  /// Bytes between the buffers of a rank, a multiple of 256.
  template <class Bytes>
  std::size_t room(Bytes bytes) const {
    Index most = 0;
    for (int r = 0; r < ranks_; ++r) {
      for (int p = 0; p < ranks_; ++p) most = std::max(most, bytes(r, p));
    }
    return std::size_t(most + 512) / 256 * 256;
  }
  /// Returns what a rank sends in this launch.
  const unsigned char* sent(int rank) const {
    static const std::vector<unsigned char> random = [] {
      std::mt19937 next{7};
      std::vector<unsigned char> bytes(size_t{48} << 20);
      for (unsigned char& c : bytes) c = (unsigned char)(next());
      return bytes;
    }();
    return random.data() + (rank * 31 + id_) % 64 * 4099;
  }
  int ranks_, id_ = 0;
  Index half_bytes_;
  Watched* watched_;
  std::vector<DeviceArray> scratch_, states_, tables_;
  std::vector<cudaStream_t> streams_;
};

}  // namespace

int main() {
  (void)gpus();  // ends the program as skipped where there is none
  Tally tally;
  for (const int ranks : {2, 3, 5}) {
    Ranks world{ranks, Index{4} << 20};
    const int each = (ranks + gpus() - 1) / gpus();  // ranks that share a GPU
    for (const int blocks : {1, 3, 16, 32}) {
      std::printf("# %d ranks, %d blocks\n", ranks, blocks);
      std::fflush(stdout);
      if (blocks * each > 96) continue;
      for (const bool in_turns : {false, true}) {
        if (in_turns && ranks == 2) continue;
        for (const Maps maps : {Maps::never, Maps::late, Maps::all, Maps::some}) {
          for (const Index bytes :
               {Index{4096}, Index{300'000}, (Index{1} << 20) + 5, (Index{5} << 20) + 48}) {
            if (ranks > 3 && bytes > Index{2} << 20) continue;
            for (const Index in_offset : {0, 4}) {
              world.run(
                  tally, [&](int, int) { return bytes; }, 0, in_offset, maps, blocks, in_turns);
            }
          }
          const Index most = Index{ranks > 3 ? 1 : 6} << 20;
          world.run(
              tally, [&](int from, int to) { return (from + 2 * to) % 3 * most / 3; }, 16, 32, maps,
              blocks, in_turns);
          world.run(
              tally, [&](int from, int to) { return from == to ? 0 : most - 7 * to; }, 3, 3, maps,
              blocks, in_turns);
        }
      }
    }
  }
  return tally.result("Direct");
}
