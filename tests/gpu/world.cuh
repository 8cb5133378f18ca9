#pragma once

// Ranks on the GPUs of this machine, in one process, over wires in device memory: the counterpart
// of tests/support/world.hpp for CPU lanes. With fewer GPUs than ranks, several ranks share one.
// Their launches are small enough to be resident together.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/detail/exec/cuda_executor.cuh>
#include <ccl/detail/wire/context.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

namespace ccl::test {

inline void must(cudaError_t e, const char* what, int line) {
  if (e == cudaSuccess) return;
  std::printf("line %d: %s: %s\n", line, what, cudaGetErrorString(e));
  std::exit(1);
}
#define MUST(call) ::ccl::test::must((call), #call, __LINE__)

/// GPUs that this program may use. Ends the program as skipped where there is none.
inline int gpus() {
  static const int count = [] {
    // A kernel that is loaded while another waits for it would wait for that one.
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    int n = 0;
    const cudaError_t e = cudaGetDeviceCount(&n);
    if (e != cudaSuccess || n == 0) {
      std::printf("SKIP: no GPU (%s)\n", cudaGetErrorString(e));
      std::exit(77);
    }
    for (int g = 0; g < n; ++g) {
      MUST(cudaSetDevice(g));
      for (int p = 0; p < n; ++p) {
        if (p != g) MUST(cudaDeviceEnablePeerAccess(p, 0));
      }
    }
    return n;
  }();
  return count;
}

/// Results of a program's checks.
struct Tally {
  long cases = 0, wrong = 0;
  void check(bool ok, const char* format, auto... values) {
    ++cases;
    if (ok) return;
    if (++wrong <= 20) {
      std::printf("WRONG: ");
      std::printf(format, values...);
      std::printf("\n");
    }
  }
  int result(const char* name) const {
    std::printf("%s: %ld cases on %d GPUs, %ld wrong\n", name, cases, gpus(), wrong);
    return wrong == 0 && cases > 0 ? 0 : 1;
  }
};

/// Device memory of one GPU, zero at first. Owns it.
class DeviceArray {
 public:
  DeviceArray(int gpu, size_t bytes) : gpu_{gpu}, bytes_{bytes} {
    MUST(cudaSetDevice(gpu_));
    MUST(cudaMalloc(&data_, bytes + 1));
    MUST(cudaMemset(data_, 0, bytes));
    MUST(cudaDeviceSynchronize());
  }
  DeviceArray(DeviceArray&& other) noexcept
      : gpu_{other.gpu_}, bytes_{other.bytes_}, data_{other.data_} {
    other.data_ = nullptr;
  }
  DeviceArray& operator=(DeviceArray&&) = delete;
  ~DeviceArray() {
    if (data_ != nullptr) (void)cudaFree(data_);
  }
  char* data() const { return static_cast<char*>(data_); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }
  void put(const void* from, size_t bytes, size_t at = 0) const {
    MUST(cudaMemcpy(data() + at, from, bytes, cudaMemcpyDefault));
  }
  void get(void* to, size_t bytes, size_t at = 0) const {
    MUST(cudaMemcpy(to, data() + at, bytes, cudaMemcpyDefault));
  }

 private:
  int gpu_;
  size_t bytes_;
  void* data_ = nullptr;
};

/// Wires from every rank to every other; counts live on from one launch to the next.
class World {
 public:
  World(int ranks, int channels, int slots, Index slot_bytes, int blocks = 1)
      : ranks_{ranks},
        channels_{channels},
        blocks_{blocks},
        slot_count_{slots},
        slot_packets_{int(slot_bytes / Index{sizeof(Packet)})},
        order_(ranks) {
    std::iota(order_.begin(), order_.end(), 0);
    const int devices = gpus();
    const int wires = ranks * channels;
    MUST(cudaHostAlloc(&watch_, sizeof(Watched), cudaHostAllocPortable));
    *watch_ = {};
    for (int r = 0; r < ranks; ++r) {
      const int g = r % devices;
      slots_.emplace_back(g, size_t(wires * slots * slot_bytes));
      words_.emplace_back(g, size_t(wires) * 4 * 128);
      tables_.emplace_back(g, sizeof(Wire) * 2 * wires + sizeof(RingPosition) * channels +
                                  sizeof(TreePosition) * channels + sizeof(int) * ranks +
                                  sizeof(detail::Cursor) * 2 * wires + 256);
      cudaStream_t stream;
      MUST(cudaSetDevice(g));
      MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      streams_.push_back(stream);
    }
    for (int from = 0; from < ranks; ++from) {
      for (int to = 0; to < ranks; ++to) {
        for (int c = 0; c < channels; ++c) {
          // Data and its count lie with the receiver, credits with the sender.
          const int in = c * ranks + from, out = c * ranks + to;
          Wire w;
          w.slots = slots_[to].as<Packet>() + in * slots * slot_bytes / Index{sizeof(Packet)};
          w.posted = words_[to].as<Word>() + in * 64;
          w.received = words_[to].as<Word>() + in * 64 + 16;
          w.drained = words_[from].as<Word>() + out * 64 + 32;
          w.sent = words_[from].as<Word>() + out * 64 + 48;
          w.slot_count = slot_count_;
          w.slot_packets = slot_packets_;
          wires_.push_back(w);
        }
      }
    }
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() {
    for (int r = 0; r < ranks_; ++r) {
      MUST(cudaSetDevice(gpu(r)));
      MUST(cudaStreamDestroy(streams_[r]));
    }
    MUST(cudaFreeHost(watch_));
  }
  int ranks() const { return ranks_; }
  int gpu(int rank) const { return rank % gpus(); }
  std::vector<int>& order() { return order_; }
  const detail::LaneFailure& failed() const { return watch_->lane_failure; }
  /// Returns the bytes in the slots of all wires to `rank`.
  std::vector<unsigned char> slots_to(int rank) const {
    std::vector<unsigned char> bytes(slots_[rank].bytes());
    slots_[rank].get(bytes.data(), bytes.size());
    return bytes;
  }
  /// Ends running and later launches.
  void stop(Word why) { watch_->stop = why; }
  void forget() { *watch_ = {}; }
  double deadline_s = 2;
  std::vector<int> absent;  // ranks that do not launch

  /// One launch of every rank; `setup(rank, work)` gives buffers and layout. False: a lane gave up.
  template <class Op, class Algo, class Proto, class Group, int Align, class R, class F>
  bool run(const R& reduction, int slice_steps, int chunk_steps, int root, F setup) {
    // No wire here is proxied, but kernels for any alignment may serve such wires.
    using Body = detail::WireBody<Op, Algo, Proto, Align, R, Align == detail::any_align>;
    for (int r = 0; r < ranks_; ++r) {
      upload(r, root, Op::rooted);
      MUST(cudaSetDevice(gpu(r)));
      MUST((detail::CudaExecutor::load<Group, Body>()));
    }
    for (int g = 0; g < gpus(); ++g) {
      MUST(cudaSetDevice(g));
      MUST(cudaDeviceSynchronize());
    }
    for (int r = 0; r < ranks_; ++r) {
      if (std::count(absent.begin(), absent.end(), r) != 0) continue;
      const int wires = ranks_ * channels_;
      const Tables t = tables(r);
      detail::WireWork<R> work{reduction};
      work.in = t.wires;
      work.out = t.wires + wires;
      work.rings = t.rings;
      work.trees = t.trees;
      work.rank = r;
      work.ranks = ranks_;
      work.root = root;
      work.channels = channels_;
      work.slice_steps = slice_steps;
      work.chunk_steps = chunk_steps;
      work.slot_count = slot_count_;
      work.slot_packets = slot_packets_;
      work.watch = {&watch_->stop, &watch_->lane_failure, Word(deadline_s * 1e9)};
      work.sends.cursor = t.cursors;
      work.recvs.cursor = t.cursors + wires;
      setup(r, work);
      MUST(cudaSetDevice(gpu(r)));
      MUST((detail::CudaExecutor::launch<Group, Body>(
          work, {channels_, std::min(blocks_, channels_), ranks_ <= gpus() ? &share_ : nullptr},
          streams_[r])));
    }
    for (int r = 0; r < ranks_; ++r) MUST(cudaStreamSynchronize(streams_[r]));
    return watch_->lane_failure.peer == 0 && watch_->stop == 0;
  }

 private:
  struct Watched {
    Word stop = 0;
    detail::LaneFailure lane_failure;
  };
  struct Tables {
    Wire* wires;  // in, then out
    detail::Cursor* cursors;
    RingPosition* rings;
    TreePosition* trees;
    int* order;
  };
  Tables tables(int r) const {
    Tables t;
    t.wires = tables_[r].as<Wire>();
    t.cursors = reinterpret_cast<detail::Cursor*>(t.wires + 2 * ranks_ * channels_);
    t.rings = reinterpret_cast<RingPosition*>(t.cursors + 2 * ranks_ * channels_);
    t.trees = reinterpret_cast<TreePosition*>(t.rings + channels_);
    t.order = reinterpret_cast<int*>(t.trees + channels_);
    return t;
  }
  void upload(int r, int root, bool rooted) const {
    const Tables t = tables(r);
    const int wires = ranks_ * channels_;
    std::vector<Wire> ends(2 * wires);
    std::vector<RingPosition> rings(channels_);
    std::vector<TreePosition> trees(channels_);
    for (int c = 0; c < channels_; ++c) {
      for (int p = 0; p < ranks_; ++p) {
        if (p == r) continue;
        ends[c * ranks_ + p] = wires_[(p * ranks_ + r) * channels_ + c];
        ends[wires + c * ranks_ + p] = wires_[(r * ranks_ + p) * channels_ + c];
      }
      rings[c] = {int(std::find(order_.begin(), order_.end(), r) - order_.begin()), ranks_,
                  t.order};
      trees[c] = double_binary_tree(r, ranks_, root, rooted ? 0 : c % 2);
    }
    const std::vector<detail::Cursor> cursors(2 * wires);
    MUST(cudaMemcpy(t.wires, ends.data(), sizeof(Wire) * ends.size(), cudaMemcpyDefault));
    MUST(cudaMemcpy(t.cursors, cursors.data(), sizeof(detail::Cursor) * cursors.size(),
                    cudaMemcpyDefault));
    MUST(cudaMemcpy(t.rings, rings.data(), sizeof(RingPosition) * channels_, cudaMemcpyDefault));
    MUST(cudaMemcpy(t.trees, trees.data(), sizeof(TreePosition) * channels_, cudaMemcpyDefault));
    MUST(cudaMemcpy(t.order, order_.data(), sizeof(int) * ranks_, cudaMemcpyDefault));
  }

  int ranks_, channels_, blocks_, slot_count_, slot_packets_;
  std::vector<int> order_;
  detail::LaunchShare share_ = detail::LaunchShare::whole_gpu();
  std::vector<DeviceArray> slots_, words_, tables_;
  std::vector<Wire> wires_;  // [from][to][channel]
  std::vector<cudaStream_t> streams_;
  Watched* watch_ = nullptr;
};

}  // namespace ccl::test
