// With CCL_DETERMINISTIC, the bits of the drop-in library's reductions on GPUs depend on no size,
// offset, split, run and rank: BITS_CASES random cases (600 by default) for 3 to 8 ranks, which
// share GPUs if there are fewer, or for TEST_RANKS of them. The control is Ring, whose order of
// sums depends on the place of an element. Its bits must differ.
#include <cmath>
#include <random>

#include "gpu/nccl.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr Index longest = 3 << 19;
constexpr Index usual = 1 << 18;  // one part of 64 is longer

template <class T>
struct Element;
template <>
struct Element<float> {
  static constexpr ncclDataType_t type = ncclFloat;
};
template <>
struct Element<bfloat16> {
  static constexpr ncclDataType_t type = ncclBfloat16;
};

/// Counts the elements whose bytes differ.
template <class Word>
__global__ void count_differing(const Word* a, const Word* b, Index n, unsigned long long* differ) {
  const Index step = Index(gridDim.x) * blockDim.x;
  for (Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    if (a[i] != b[i]) atomicAdd(differ, 1ull);
  }
}

/// A part of the whole, and where its result goes.
struct Part {
  Index from, count, to;

  static Part random(std::mt19937& bits) {
    const auto up_to = [&](Index most) { return Index(bits() % unsigned(most + 1)); };
    const Index count =
        up_to(63) == 0
            ? longest - up_to(longest - usual - 1)
            : std::max<Index>(1, Index(std::exp2(double(up_to(1800)) / 100.0)) - up_to(3));
    return {up_to(longest - count), count, up_to(31)};
  }
};

/// One rank's memory and calls for elements of one type.
template <class T>
class Bits {
  using Word = std::conditional_t<sizeof(T) == 4, unsigned, unsigned short>;

 public:
  Bits(int rank, ncclComm_t comm, cudaStream_t stream) : comm_{comm}, stream_{stream} {
    std::mt19937 bits{unsigned(rank + 1)};
    std::uniform_real_distribution<double> digits{1, 2};
    in_.fill(
        [&](Index) {
          const double size = std::ldexp(digits(bits), int(bits() % 17) - 8);
          return T(float(bits() % 2 == 0 ? size : -size));
        },
        stream_);
    differ_.fill([](Index) { return 0ull; }, stream_);
  }

  /// Returns how many elements of `cases` random parts differ from those of the whole.
  unsigned long long play(long cases, ncclRedOp_t op) {
    reduce({0, longest, 0}, op, whole_.get());
    std::mt19937 bits{unsigned(cases)};  // the same on all ranks
    for (long n = 0; n < cases; ++n) {
      const Part part = Part::random(bits);
      reduce(part, op, out_.get() + part.to);
      compare(part);
      if (n % 256 == 255) MUST_CUDA(cudaStreamSynchronize(stream_));
    }
    return found();
  }
  /// The number of elements of the whole that differ from another rank's.
  unsigned long long compare_with_root() {
    MUST_NCCL(ncclBroadcast(whole_.get(), out_.get(), size_t(longest), Element<T>::type, 0, comm_,
                            stream_));
    compare({0, longest, 0});
    return found();
  }

 private:
  void reduce(Part part, ncclRedOp_t op, T* to) {
    MUST_NCCL(ncclAllReduce(in_.get() + part.from, to, size_t(part.count), Element<T>::type, op,
                            comm_, stream_));
  }
  void compare(Part part) {
    const unsigned blocks = unsigned(std::min<Index>(8, (part.count + 1023) / 1024));
    count_differing<<<blocks, 256, 0, stream_>>>(
        reinterpret_cast<const Word*>(out_.get() + part.to),
        reinterpret_cast<const Word*>(whole_.get() + part.from), part.count, differ_.get());
    MUST_CUDA(cudaGetLastError());
  }
  unsigned long long found() {
    const Pinned<unsigned long long> on_host{1};
    MUST_CUDA(cudaMemcpyAsync(on_host.get(), differ_.get(), sizeof(unsigned long long),
                              cudaMemcpyDeviceToHost, stream_));
    MUST_CUDA(cudaStreamSynchronize(stream_));
    return on_host[0];
  }

  ncclComm_t comm_;
  cudaStream_t stream_;
  Buffer<T> in_{longest, 0}, whole_{longest, 0}, out_{longest + 32, 0};
  Buffer<unsigned long long> differ_{1, 0};
};

struct Found {
  unsigned long long sums = 0, means = 0, halves = 0;
};

Found play_rank(int rank, int gpu, ncclComm_t comm, long cases) {
  MUST_CUDA(cudaSetDevice(gpu));
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Found found;
  Bits<float> sums{rank, comm, stream}, means{rank, comm, stream};
  Bits<bfloat16> halves{rank, comm, stream};
  found.sums = sums.play(cases / 2, ncclSum) + sums.compare_with_root();
  found.means = means.play(cases / 4, ncclAvg) + means.compare_with_root();
  found.halves = halves.play(cases / 4, ncclSum) + halves.compare_with_root();
  MUST_CUDA(cudaStreamDestroy(stream));
  return found;
}

/// All ranks as threads of a process of their own, which ends with whether they found what they
/// should: no difference in one order, some by Ring.
void play(int ranks, int gpus, long cases, bool one_order) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("CCL_DETERMINISTIC", one_order ? "1" : "0", 1);
    if (!one_order) ::setenv("CCL_ALGO", "Ring", 1);
    std::vector<int> devices;
    for (int r = 0; r < ranks; ++r) devices.push_back(r % gpus);
    std::vector<ncclComm_t> comms(size_t(ranks), nullptr);
    MUST_NCCL(ncclCommInitAll(comms.data(), ranks, devices.data()));
    std::vector<Found> all(size_t(ranks), Found{});
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r) {
      threads.emplace_back(
          [&, r] { all[size_t(r)] = play_rank(r, devices[size_t(r)], comms[size_t(r)], cases); });
    }
    for (auto& thread : threads) thread.join();
    Found total;
    for (const Found& found : all) {
      total.sums += found.sums;
      total.means += found.means;
      total.halves += found.halves;
    }
    const bool differ = total.sums + total.means + total.halves > 0;
    std::printf(
        "%d ranks, %s, %ld cases: elements that differ: %llu of float sums, %llu of means, "
        "%llu of bfloat16 sums\n",
        ranks, one_order ? "one order" : "Ring", cases, total.sums, total.means, total.halves);
    for (const ncclComm_t comm : comms) MUST_NCCL(ncclCommDestroy(comm));
    std::fflush(stdout);
    std::_Exit(differ == one_order ? 2 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d ranks in %s ended with %d", ranks,
        one_order ? "one order" : "Ring", status);
}

}  // namespace

int main() {
  const int gpus = find_ranks().gpus;
  if (gpus == 0) return skipped();
  ::setenv("CCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  const char* const wanted = std::getenv("BITS_CASES");
  const long cases = wanted != nullptr ? std::atol(wanted) : 600;
  const char* const given = std::getenv("TEST_RANKS");
  const int only = given != nullptr ? std::atoi(given) : 0;
  for (int ranks = 3; ranks <= 8; ++ranks) {
    if (only != 0 && ranks != only) continue;
    play(ranks, gpus, cases, true);
    play(ranks, gpus, std::min(cases, 600L), false);
  }
  return result("Bits of reductions", gpus);
}
