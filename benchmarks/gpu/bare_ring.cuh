#pragma once

// Ring all-reduce of float sums, written by hand for one protocol each, without headers of ccl. It
// is the reference for the library's kernels. Wires, steps and batches are equal, so the difference
// is the cost of the library's abstractions.
#include <cuda_runtime.h>

namespace bare {

using Word = unsigned long long;

/// One channel's end of one wire, as this rank uses it.
struct End {
  ulonglong2* slots;
  Word* posted;  // for Simple
  Word* credit;
  Word* kept;
};

struct Work {
  const End *in, *out;  // from the previous rank, to the next rank; one for each channel
  const float* input;
  float* output;
  long long count;
  int rank, ranks;
  int channels, slot_count, slot_packets, chunk_steps;
  const Word* stop;
  Word* lane_failure;  // rank + 1 and step of the first wait that timed out
  Word deadline_ns;    // limit of one wait; 0: none
};

__device__ inline void store_line(ulonglong2* at, Word a, Word b) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(a), "l"(b) : "memory");
}
__device__ inline ulonglong2 load_line(const ulonglong2* at) {
  ulonglong2 p;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(p.x), "=l"(p.y)
               : "l"(at)
               : "memory");
  return p;
}
__device__ inline void store_bulk(ulonglong2* at, ulonglong2 p) {
  asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(p.x), "l"(p.y) : "memory");
}
__device__ inline Word load_word(const Word* at) {
  Word w;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(w) : "l"(at) : "memory");
  return w;
}
__device__ inline Word load_acquire(const Word* at) {
  Word w;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(w) : "l"(at) : "memory");
  return w;
}
__device__ inline void store_word(Word* at, Word w) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"(w) : "memory");
}
__device__ inline void store_release(Word* at, Word w) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(at), "l"(w) : "memory");
}
__device__ inline Word add(Word a, Word b) {
  const float low = __uint_as_float(unsigned(a)) + __uint_as_float(unsigned(b));
  const float high = __uint_as_float(unsigned(a >> 32)) + __uint_as_float(unsigned(b >> 32));
  return Word(__float_as_uint(high)) << 32 | __float_as_uint(low);
}

/// Polls of a wait. Waits end if the host stops them or one times out. The rank and step of that
/// wait are then recorded.
struct Polls {
  const Work& work;
  unsigned count = 0;
  Word since = 0;  // hash of the current wait, and the tick of its start
  bool ended = false;
  __device__ bool end(int peer, Word step) {
    if (ended) return true;
    if (++count % 4096 != 0) return false;
    since = look(work, since, peer, step);
    return ended = since == ~Word{0};
  }
  __device__ __noinline__ static Word look(const Work& work, Word since, int peer, Word step) {
    if (load_word(work.stop) != 0 || load_word(work.lane_failure) != 0) return ~Word{0};
    Word now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    const unsigned tick = unsigned(now >> 20) & 0x7fffffffu;
    const unsigned what = (unsigned(step) * 64 + unsigned(peer)) * 0x9e3779b1u;
    if (since == 0 || unsigned(since >> 32) != what) return Word{what} << 32 | 1u << 31 | tick;
    const unsigned gone = (tick - unsigned(since)) & 0x7fffffffu;
    if (work.deadline_ns == 0 || Word{gone} << 20 < work.deadline_ns) return since;
    store_word(work.lane_failure + 1, step);
    store_release(work.lane_failure, Word(peer + 1));
    return ~Word{0};
  }
};

/// Rounds of one channel's part of the message, with one chunk for each rank.
struct Rounds {
  long long next, end, at = 0;
  int ranks, most, chunk = 0;
  static constexpr int grain = 32;  // 128 bytes
  __device__ Rounds(const Work& work, int channel, int max_elements)
      : ranks{work.ranks}, most{max_elements / grain * grain} {
    const long long part = up((work.count + work.channels - 1) / work.channels);
    next = part * channel;
    end = next + part < work.count ? next + part : work.count;
  }
  __device__ static long long up(long long n) { return (n + grain - 1) / grain * grain; }
  __device__ bool advance() {
    if (next >= end) return false;
    at = next;
    const long long fair = (end - at + ranks - 1) / ranks;
    chunk = int(fair < most ? up(fair) : most);
    next += static_cast<long long>(chunk) * ranks;
    return true;
  }
  __device__ long long begin_of(int share) const {
    return at + static_cast<long long>(share) * chunk;
  }
  __device__ int size_of(int share) const {
    const long long left = end - begin_of(share);
    return int(left < 0 ? 0 : left < chunk ? left : chunk);
  }
};

/// Warp on lines of 120 bytes of data and 8 bytes of flag. Two tiles of four lines form a pair. A
/// lane has four adjacent floats and, if it holds no flags, four more, for accesses of 16 bytes.
class Ll128 {
 public:
  static constexpr int tile = 120, batch = 2, width = 32;  // elements, pairs of tiles, lanes
  __device__ Ll128(const Work& work, int channel)
      : in_{work.in[channel]},
        out_{work.out[channel]},
        input_{work.input},
        output_{work.output},
        prev_{(work.rank + work.ranks - 1) % work.ranks},
        next_{(work.rank + 1) % work.ranks},
        slot_count_{work.slot_count},
        slot_packets_{work.slot_packets},
        slice_{work.slot_packets / 32 * tile},
        lane_{int(threadIdx.x % 32)},
        last_{lane_ % 8 == 7},
        word_{lane_ / 8 * 15 + lane_ % 8 * 2},
        pair_{4 * (last_ ? 28 + lane_ / 8 : lane_ / 8 * 7 + lane_ % 8)},
        polls_{work} {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    received_ = *in_.kept;
    sent_ = *out_.kept;
    drained_ = load_word(out_.credit);
  }
  __device__ int slice() const { return slice_; }
  __device__ void leave() {
    __syncwarp();
    if (lane_ != 0 || polls_.ended) return;
    store_word(in_.kept, received_);
    store_word(out_.kept, sent_);
  }

  template <bool Recv, bool Own, bool Store, bool Send>
  __device__ void step(long long begin, int size) {
    for (int at = 0; at < size; at += slice_) {
      const int n = size - at < slice_ ? size - at : slice_;
      if (Send) {
        while (drained_ + Word(slot_count_ - 1) < sent_) {
          drained_ = load_word(out_.credit);
          if (drained_ + Word(slot_count_ - 1) < sent_ && polls_.end(next_, sent_)) break;
        }
      }
      const ulonglong2* from = in_.slots + slot(received_) + lane_;
      ulonglong2* to = out_.slots + slot(sent_) + lane_;
      int left = n;
#pragma unroll 1
      for (; left >= batch * 2 * tile; left -= batch * 2 * tile) {
        pairs<Recv, Own, Store, Send, batch>(from, to, begin + at + n - left);
      }
      if (left >= 2 * tile) {
        pairs<Recv, Own, Store, Send, 1>(from, to, begin + at + n - left);
        left -= 2 * tile;
      }
#pragma unroll 1
      for (; left > 0; left -= tile) {
        rest<Recv, Own, Store, Send>(from, to, begin + at + n - left, left);
      }
      __syncwarp();
      if (Send) ++sent_;
      if (Recv) {
        ++received_;
        if (lane_ == 0 && !polls_.ended) store_word(in_.credit, received_);
      }
    }
  }

 private:
  __device__ long long slot(Word step) const {
    return static_cast<long long>(int(step) & (slot_count_ - 1)) * slot_packets_;
  }
  template <bool Recv, bool Own, bool Store, bool Send, int N>
  __device__ void pairs(const ulonglong2*& from, ulonglong2*& to, long long at) {
    ulonglong2 a[N], b[N];
    if (Own) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const float* const x = input_ + at + pair_ + n * 2 * tile;
        a[n] = *reinterpret_cast<const ulonglong2*>(x);
        b[n] = {};
        if (!last_) b[n] = *reinterpret_cast<const ulonglong2*>(x + 128);
      }
    }
    if (Recv) {
      ulonglong2 low[N], high[N];
      bool here;
      do {
#pragma unroll
        for (int n = 0; n < N; ++n) {
          low[n] = load_line(from + n * 64);
          high[n] = load_line(from + n * 64 + 32);
        }
        here = true;
#pragma unroll
        for (int n = 0; n < N; ++n) {
          here = here & (low[n].y == received_ + 1) & (high[n].y == received_ + 1);
        }
      } while (!arrived(here));
      from += N * 64;
#pragma unroll
      for (int n = 0; n < N; ++n) {
        if (last_) low[n].y = high[n].x;
        a[n].x = Own ? add(a[n].x, low[n].x) : low[n].x;
        a[n].y = Own ? add(a[n].y, low[n].y) : low[n].y;
        b[n].x = Own ? add(b[n].x, high[n].x) : high[n].x;
        b[n].y = Own ? add(b[n].y, high[n].y) : high[n].y;
      }
    }
    if (Send) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
        store_line(to + n * 64, a[n].x, last_ ? sent_ + 1 : a[n].y);
        store_line(to + n * 64 + 32, last_ ? a[n].y : b[n].x, last_ ? sent_ + 1 : b[n].y);
      }
      to += N * 64;
    }
    if (Store) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
        float* const x = output_ + at + pair_ + n * 2 * tile;
        *reinterpret_cast<ulonglong2*>(x) = a[n];
        if (!last_) *reinterpret_cast<ulonglong2*>(x + 128) = b[n];
      }
    }
  }

  /// Processes one tile, of which `left` elements exist.
  template <bool Recv, bool Own, bool Store, bool Send>
  __device__ void rest(const ulonglong2*& from, ulonglong2*& to, long long at, int left) {
    Word f[2] = {};
    const int first = word_ * 2;
    if (Own) {
      const float* const x = input_ + at + first;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (first + i < left && !(last_ && i > 1))
          f[i / 2] |= Word(__float_as_uint(x[i])) << i % 2 * 32;
      }
    }
    if (Recv) {
      ulonglong2 got;
      do {
        got = load_line(from);
      } while (!arrived(got.y == received_ + 1));
      from += 32;
      f[0] = Own ? add(f[0], got.x) : got.x;
      f[1] = Own ? add(f[1], got.y) : got.y;
    }
    if (Send) {
      store_line(to, f[0], last_ ? sent_ + 1 : f[1]);
      to += 32;
    }
    if (Store) {
      float* const x = output_ + at + first;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (first + i < left && !(last_ && i > 1))
          x[i] = __uint_as_float(unsigned(f[i / 2] >> i % 2 * 32));
      }
    }
  }
  /// True if lanes with flags have received them, or a wait has ended.
  __device__ bool arrived(bool here) {
    return __all_sync(~0u, here | !last_) || __all_sync(~0u, polls_.end(prev_, received_));
  }

  End in_, out_;
  const float* input_;
  float* output_;
  int prev_, next_, slot_count_, slot_packets_, slice_, lane_;
  bool last_;  // true: holds the flags
  int word_;   // first word of the lane in a tile
  int pair_;   // first element of the lane in a pair
  Polls polls_;
  Word received_, sent_, drained_;
};

/// Group of 128 threads on plain slots and counts of them. Groups of a block have barriers of their
/// own.
class Simple {
 public:
  static constexpr int width = 128, tile = width * 4, batch = 4;
  __device__ Simple(const Work& work, int channel)
      : in_{work.in[channel]},
        out_{work.out[channel]},
        input_{work.input},
        output_{work.output},
        prev_{(work.rank + work.ranks - 1) % work.ranks},
        next_{(work.rank + 1) % work.ranks},
        slot_count_{work.slot_count},
        slot_packets_{work.slot_packets},
        slice_{work.slot_packets / width * tile},
        lane_{int(threadIdx.x) % width},
        polls_{work} {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    received_ = *in_.kept;
    sent_ = *out_.kept;
    drained_ = load_word(out_.credit);
  }
  __device__ int slice() const { return slice_; }
  __device__ void leave() {
    sync();
    if (lane_ != 0 || polls_.ended) return;
    store_word(in_.kept, received_);
    store_word(out_.kept, sent_);
  }

  template <bool Recv, bool Own, bool Store, bool Send>
  __device__ void step(long long begin, int size) {
    for (int at = 0; at < size; at += slice_) {
      const int n = size - at < slice_ ? size - at : slice_;
      if (lane_ == 0) {
        if (Send) {
          while (drained_ + Word(slot_count_ - 1) < sent_) {
            drained_ = load_word(out_.credit);
            if (drained_ + Word(slot_count_ - 1) < sent_ && polls_.end(next_, sent_)) break;
          }
        }
        if (Recv) {
          while (load_acquire(in_.posted) < received_ + 1 && !polls_.end(prev_, received_)) {
          }
        }
      }
      // No lane fills a slot if the wait of lane 0 for it has failed.
      const ulonglong2* from = in_.slots + slot(received_) + lane_;
      ulonglong2* to = out_.slots + slot(sent_) + lane_;
      int left = all(!polls_.ended) ? n : 0;
#pragma unroll 1
      for (; left >= batch * tile; left -= batch * tile) {
        move<Recv, Own, Store, Send, batch, Fill::full>(from, to, begin + at + n - left, left);
      }
      if (const int whole = left % 4 == 0 ? left : left / tile * tile; whole > 0) {
        move<Recv, Own, Store, Send, batch, Fill::quads>(from, to, begin + at + n - left, whole);
        left -= whole;
        const int back = ((whole + tile - 1) / tile - batch) * width;
        from += back, to += back;
      }
      if (left > 0) {
        move<Recv, Own, Store, Send, 1, Fill::any>(from, to, begin + at + n - left, left);
      }
      sync();
      if (Send) {
        if (lane_ == 0 && !polls_.ended) store_release(out_.posted, sent_ + 1);
        ++sent_;
      }
      if (Recv) {
        ++received_;
        if (lane_ == 0 && !polls_.ended) store_word(in_.credit, received_);
      }
    }
  }

 private:
  __device__ static unsigned barrier() { return threadIdx.x / width + 1; }
  __device__ static void sync() {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier()), "n"(width) : "memory");
  }
  __device__ static bool all(bool here) {
    int there = 0;
    asm volatile(
        "{ .reg .pred p, q; setp.ne.s32 p, %1, 0; bar.red.and.pred q, %2, %3, p; "
        "selp.s32 %0, 1, 0, q; }"
        : "=r"(there)
        : "r"(int(here)), "r"(barrier()), "n"(width)
        : "memory");
    return there != 0;
  }
  /// Presence of a lane's four floats: all; all or none; or some.
  enum class Fill { full, quads, any };
  __device__ long long slot(Word step) const {
    return static_cast<long long>(int(step) & (slot_count_ - 1)) * slot_packets_;
  }
  template <bool Recv, bool Own, bool Store, bool Send, int N, Fill How>
  __device__ void move(const ulonglong2*& from, ulonglong2*& to, long long at, int left) {
    ulonglong2 f[N], got[N];
    const int first = lane_ * 4;
    if (Own) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const float* const x = input_ + at + n * tile + first;
        const int there = left - n * tile - first;
        if (How == Fill::full || there >= 4) {
          f[n] = *reinterpret_cast<const ulonglong2*>(x);
        } else if (How == Fill::any) {
          float e[4] = {};
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (i < there) e[i] = x[i];
          }
          f[n].x = Word(__float_as_uint(e[1])) << 32 | __float_as_uint(e[0]);
          f[n].y = Word(__float_as_uint(e[3])) << 32 | __float_as_uint(e[2]);
        }
      }
    }
    if (Recv) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
        if (How != Fill::quads || n * tile < left) got[n] = load_line(from + n * width);
      }
      from += N * width;
#pragma unroll
      for (int n = 0; n < N; ++n) {
        f[n].x = Own ? add(f[n].x, got[n].x) : got[n].x;
        f[n].y = Own ? add(f[n].y, got[n].y) : got[n].y;
      }
    }
    if (Send) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
        if (How == Fill::full || n * tile + first < left) store_bulk(to + n * width, f[n]);
      }
      to += N * width;
    }
    if (Store) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
        float* const x = output_ + at + n * tile + first;
        const int there = left - n * tile - first;
        if (How == Fill::full || there >= 4) {
          *reinterpret_cast<ulonglong2*>(x) = f[n];
        } else if (How == Fill::any) {
          const Word w[2] = {f[n].x, f[n].y};
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (i < there) x[i] = __uint_as_float(unsigned(w[i / 2] >> i % 2 * 32));
          }
        }
      }
    }
  }

  End in_, out_;
  const float* input_;
  float* output_;
  int prev_, next_, slot_count_, slot_packets_, slice_, lane_;
  Polls polls_;
  Word received_, sent_, drained_;
};

/// Kernel of the all-reduce. Group g of block b works on channel g * blocks + b.
template <class Protocol>
__global__ void __launch_bounds__(512, 1) ring_all_reduce(const __grid_constant__ Work work) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  const int group = __shfl_sync(~0u, int(threadIdx.x) / Protocol::width, 0);
  const int channel = group * int(gridDim.x) + int(blockIdx.x);
  if (channel >= work.channels) return;
  Protocol ring{work, channel};
  Rounds rounds{work, channel, ring.slice() * work.chunk_steps};
  const int ranks = work.ranks;
  const auto behind = [&](int j) {
    const int r = work.rank - j;
    return r < 0 ? r + ranks : r;
  };
  while (rounds.advance()) {
    int s = behind(1);
    ring.template step<false, true, false, true>(rounds.begin_of(s), rounds.size_of(s));
    for (int j = 2; j < ranks; ++j) {
      s = behind(j);
      ring.template step<true, true, false, true>(rounds.begin_of(s), rounds.size_of(s));
    }
    s = work.rank;
    ring.template step<true, true, true, true>(rounds.begin_of(s), rounds.size_of(s));
    for (int j = 1; j < ranks - 1; ++j) {
      s = behind(j);
      ring.template step<true, false, true, true>(rounds.begin_of(s), rounds.size_of(s));
    }
    s = behind(ranks - 1);
    ring.template step<true, false, true, false>(rounds.begin_of(s), rounds.size_of(s));
  }
  ring.leave();
}

template <class Protocol>
cudaError_t launch(const Work& work, int blocks, int groups, cudaStream_t stream) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(unsigned(blocks));
  config.blockDim = dim3(unsigned(groups * Protocol::width));
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, ring_all_reduce<Protocol>, work);
}

}  // namespace bare
