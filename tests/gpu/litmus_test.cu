// Property on which LL128 depends and which PTX does not promise. Eight lanes that store 16 bytes
// each of a line in one instruction publish the line at once. A reader of the last word then reads
// the other fifteen too. For every ordered pair of GPUs, a writer overwrites lines in the other's
// memory at full speed while a reader there polls them.
//   ccl.test.gpu.litmus.gpu [lines per pair, in millions]
#include "world.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {
constexpr int blocks = 16, warps = 8, tiles_per_warp = 32;
constexpr int tiles = blocks * warps * tiles_per_warp;  // of four lines
constexpr Word last_ns = 20'000'000'000;

struct Seen {
  unsigned long long looks, fresh, torn;  // lines: looked at, seen with a new value, seen in pieces
};

/// `Whole`: as LL128 does. Else the lanes with the flag go first, which the reader must notice.
template <bool Whole>
__global__ void write_lines(Packet* lines, Word rounds) {
  const int lane = int(threadIdx.x) % 32;
  const int warp = int(blockIdx.x) * warps + int(threadIdx.x) / 32;
  for (Word r = 1; r <= rounds; ++r) {
    for (int t = 0; t < tiles_per_warp; ++t) {
      Packet* const tile = lines + (warp * tiles_per_warp + t) * 32;
      if (Whole || lane % 8 == 7) detail::DeviceMemory::store_relaxed(tile + lane, {r, r});
      __syncwarp();
      if (!Whole && lane % 8 != 7) detail::DeviceMemory::store_relaxed(tile + lane, {r, r});
    }
  }
}

/// Ends when every line carries the last round, or after 20 s.
__global__ void read_lines(const Packet* lines, Word rounds, Seen* seen) {
  const int lane = int(threadIdx.x) % 32;
  const int warp = int(blockIdx.x) * warps + int(threadIdx.x) / 32;
  const Word begin = detail::DeviceMemory::now_ns();
  Word before[tiles_per_warp] = {};
  unsigned long long looks = 0, fresh = 0, torn = 0;
  for (bool done = false; !done;) {
    done = true;
    for (int t = 0; t < tiles_per_warp; ++t) {
      const Packet* const tile = lines + (warp * tiles_per_warp + t) * 32;
      const Packet mine = detail::DeviceMemory::load_relaxed(tile + lane);
      const Word flag = __shfl_sync(0xffff'ffffu, mine.word[1], lane | 7);
      const unsigned old = __ballot_sync(0xffff'ffffu, mine.word[0] < flag || mine.word[1] < flag);
      if ((old >> (lane & ~7) & 0xff) != 0) ++torn;
      ++looks;
      if (flag != before[t]) ++fresh;
      before[t] = flag;
      done = done && __all_sync(0xffff'ffffu, flag == rounds);
    }
    if (detail::DeviceMemory::now_ns() - begin > last_ns) break;
  }
  if (lane % 8 != 0) return;
  atomicAdd(&seen->looks, looks);
  atomicAdd(&seen->fresh, fresh);
  atomicAdd(&seen->torn, torn);
}

template <bool Whole>
void run(Tally& tally, int from, int to, Word rounds) {
  const DeviceArray lines{to, size_t(tiles) * 32 * sizeof(Packet)};
  const DeviceArray seen{to, sizeof(Seen)};
  cudaStream_t reads, writes;
  MUST(cudaSetDevice(to));
  MUST(cudaStreamCreateWithFlags(&reads, cudaStreamNonBlocking));
  read_lines<<<blocks, warps * 32, 0, reads>>>(lines.as<Packet>(), rounds, seen.as<Seen>());
  MUST(cudaSetDevice(from));
  MUST(cudaStreamCreateWithFlags(&writes, cudaStreamNonBlocking));
  write_lines<Whole><<<blocks, warps * 32, 0, writes>>>(lines.as<Packet>(), rounds);
  MUST(cudaStreamSynchronize(writes));
  MUST(cudaStreamDestroy(writes));
  MUST(cudaSetDevice(to));
  MUST(cudaStreamSynchronize(reads));
  MUST(cudaStreamDestroy(reads));
  Seen s;
  seen.get(&s, sizeof s);
  std::printf(
      "GPU %d to GPU %d: %.0f million lines written, %llu looked at, %llu of them new, %llu torn\n",
      from, to, double(rounds) * tiles * 4 / 1e6, s.looks, s.fresh, s.torn);
  tally.check(Whole == (s.torn == 0),
              Whole ? "lines from GPU %d to GPU %d land in pieces"
                    : "lines in pieces from GPU %d to GPU %d went unseen",
              from, to);
  tally.check(s.fresh > 0, "nothing was seen to arrive from GPU %d at GPU %d", from, to);
}
}  // namespace

int main(int argc, char** argv) {
  const double millions = argc > 1 ? std::atof(argv[1]) : 20;
  const Word rounds = Word(millions * 1e6 / (tiles * 4)) + 1;
  Tally tally;
  for (int from = 0; from < gpus(); ++from) {
    for (int to = 0; to < gpus(); ++to) {
      if (from == to && gpus() > 1) continue;
      run<true>(tally, from, to, rounds);
      run<false>(tally, from, to, 200);
    }
  }
  return tally.result("Lines land whole");
}
