#include <cuda/std/bit>

#include "gpu_kernels.hpp"
#include "pattern.hpp"

namespace ccl::perf::gpu {
namespace {

using Count = unsigned long long;
constexpr int lanes = 256;

template <class T>
using BitsOf = cuda::std::conditional_t<
    sizeof(T) == 1, cuda::std::uint8_t,
    cuda::std::conditional_t<
        sizeof(T) == 2, cuda::std::uint16_t,
        cuda::std::conditional_t<sizeof(T) == 4, cuda::std::uint32_t, cuda::std::uint64_t>>>;

/// Strided loop over `count` items by all lanes of the grid.
struct Items {
  Index at = Index{blockIdx.x} * blockDim.x + threadIdx.x;
  Index step = Index{gridDim.x} * blockDim.x;
};
unsigned blocks(Index count) {
  const Index wanted = div_up(count, Index{lanes} * 4);
  return unsigned(wanted < 1 ? 1 : wanted > 2048 ? 2048 : wanted);
}
__device__ void add(Count mine, Count* wrong) {
  if (mine != 0) atomicAdd(wrong, mine);
}

template <class T>
__global__ void fill_values(RedOp redop, int ranks, int rank, Index count, T* send) {
  for (Items i; i.at < count; i.at += i.step) {
    send[i.at] = from_whole<T>(sent_value<T>(redop, ranks, rank, i.at));
  }
}
/// Fills moved data. In place, `send` can lie anywhere in another buffer.
__global__ void fill_moved(int from, Index bytes, char* send) {
  const bool aligned = reinterpret_cast<Word>(send) % 8 == 0;
  for (Items i; i.at * 8 < bytes; i.at += i.step) {
    const Word word = moved_word(from, i.at);
    if (aligned && i.at * 8 + 8 <= bytes) {
      reinterpret_cast<Word*>(send)[i.at] = word;
    } else {
      for (int b = 0; b < 8 && i.at * 8 + b < bytes; ++b) send[i.at * 8 + b] = char(word >> 8 * b);
    }
  }
}
template <class T>
__global__ void count_values(RedOp redop, int ranks, Index first, Index count, const T* recv,
                             Count* wrong) {
  Count mine = 0;
  for (Items i; i.at < count; i.at += i.step) {
    const T want = reduced_value<T>(redop, ranks, first + i.at);
    mine += cuda::std::bit_cast<BitsOf<T>>(want) != cuda::std::bit_cast<BitsOf<T>>(recv[i.at]);
  }
  add(mine, wrong);
}
template <class Bits>
__global__ void count_moved(int from, Index at, Index count, const Bits* recv, Count* wrong) {
  Count mine = 0;
  for (Items i; i.at < count; i.at += i.step) {
    mine += recv[i.at] != moved_element<Bits>(from, at + i.at * Index{sizeof(Bits)});
  }
  add(mine, wrong);
}
__global__ void count_poison_gone(const unsigned char* memory, Index bytes, Count* wrong) {
  Count mine = 0;
  for (Items i; i.at < bytes; i.at += i.step) mine += memory[i.at] != poison_byte;
  add(mine, wrong);
}

__device__ Word clock_ns() {
  Word now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
__global__ void gate(const volatile unsigned* opened, unsigned* missed, unsigned number,
                     Word deadline_ns) {
  const Word begin = clock_ns();
  while (int(*opened - number) < 0) {
    if (clock_ns() - begin < deadline_ns) continue;
    atomicAdd_system(missed, 1u);
    return;
  }
}

/// Answers each number that the host writes to `*asked` by the clock, in order.
__global__ void answer_clock(const volatile unsigned* asked, volatile Count* answers, int rounds,
                             Word deadline_ns) {
  const Word begin = clock_ns();
  for (int n = 1; n <= rounds; ++n) {
    while (int(*asked) < n) {
      if (clock_ns() - begin > deadline_ns) return;
    }
    answers[n - 1] = clock_ns();
    __threadfence_system();
  }
}

template <class Kernel>
void load(Kernel kernel, cudaError_t& first) {
  cudaFuncAttributes attributes{};
  const cudaError_t e = cudaFuncGetAttributes(&attributes, kernel);
  if (first == cudaSuccess) first = e;
}

}  // namespace

cudaError_t launch_fill_values(DataType type, RedOp redop, int ranks, int rank, Index count,
                               std::byte* send, cudaStream_t stream) {
  with_type(type, [&]<class T>(TypeTag<T>) {
    fill_values<<<blocks(count), lanes, 0, stream>>>(redop, ranks, rank, count,
                                                     reinterpret_cast<T*>(send));
  });
  return cudaGetLastError();
}
cudaError_t launch_fill_moved(int from, Index bytes, std::byte* send, cudaStream_t stream) {
  fill_moved<<<blocks(div_up(bytes, Index{8})), lanes, 0, stream>>>(from, bytes,
                                                                    reinterpret_cast<char*>(send));
  return cudaGetLastError();
}
cudaError_t launch_count_values(DataType type, RedOp redop, int ranks, Index first, Index count,
                                const std::byte* recv, Count* wrong, cudaStream_t stream) {
  with_type(type, [&]<class T>(TypeTag<T>) {
    count_values<<<blocks(count), lanes, 0, stream>>>(redop, ranks, first, count,
                                                      reinterpret_cast<const T*>(recv), wrong);
  });
  return cudaGetLastError();
}
cudaError_t launch_count_moved(const Piece& piece, Index element_bytes, const std::byte* recv,
                               Count* wrong, cudaStream_t stream) {
  const Index count = piece.bytes / element_bytes;
  with_bits(element_bytes, [&]<class Bits>(TypeTag<Bits>) {
    count_moved<<<blocks(count), lanes, 0, stream>>>(
        piece.from, piece.at, count, reinterpret_cast<const Bits*>(recv + piece.to), wrong);
  });
  return cudaGetLastError();
}
cudaError_t launch_count_poison_gone(const std::byte* memory, Index bytes, Count* wrong,
                                     cudaStream_t stream) {
  count_poison_gone<<<blocks(bytes), lanes, 0, stream>>>(
      reinterpret_cast<const unsigned char*>(memory), bytes, wrong);
  return cudaGetLastError();
}
cudaError_t launch_gate(const unsigned* opened, unsigned* missed, unsigned number,
                        double deadline_s, cudaStream_t stream) {
  gate<<<1, 1, 0, stream>>>(opened, missed, number, Word(deadline_s * 1e9));
  return cudaGetLastError();
}

cudaError_t launch_answer_clock(const unsigned* asked, unsigned long long* answers, int rounds,
                                double deadline_s, cudaStream_t stream) {
  answer_clock<<<1, 1, 0, stream>>>(asked, answers, rounds, Word(deadline_s * 1e9));
  return cudaGetLastError();
}

cudaError_t load_kernels() {
  cudaError_t first = cudaSuccess;
  for (int t = 0; t < data_type_count; ++t) {
    with_type(DataType(t), [&]<class T>(TypeTag<T>) {
      load(fill_values<T>, first);
      load(count_values<T>, first);
    });
  }
  for (const Index size : {1, 2, 4, 8}) {
    with_bits(size, [&]<class Bits>(TypeTag<Bits>) { load(count_moved<Bits>, first); });
  }
  load(fill_moved, first);
  load(count_poison_gone, first);
  load(gate, first);
  load(answer_clock, first);
  return first;
}

}  // namespace ccl::perf::gpu
