// Ring and Tree over wires between the GPUs of one process, or NCCL for the same work. Prints one
// line of JSON per case. Times are from a CUDA graph, and results are checked before and after.
//   wires_bench ccl  [ops] [protos] [min bytes] [max bytes] [quick]
//   wires_bench nccl [ops] <path of libnccl.so.2> [min bytes] [max bytes] [label]
// ops: any of r (all-reduce), g (all-gather), s (reduce-scatter), t (all-reduce by tree).
// protos: any of l (LL), 1 (LL128), s (Simple). NCCL_ALGO and NCCL_PROTO pin NCCL.
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/detail/exec/cuda_executor.cuh>
#include <ccl/detail/wire/context.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>

#include <algorithm>
#include <cstring>

#include "machine.cuh"
#include "nccl_at_run_time.hpp"

using namespace ccl;
using namespace ccl::bench;

namespace {

struct Config {
  int blocks;
  int groups;  // groups of a block
  int slot_kib;
  int chunk_steps;
};

class Bench {
 public:
  Bench(int gpus, Index bytes) : machine_{gpus, bytes}, table_(gpus), host_tables_(gpus) {
    MUST(cudaHostAlloc(&watched_, sizeof *watched_, cudaHostAllocPortable));
    *watched_ = {};
    for (int g = 0; g < gpus; ++g) {
      slots_.push_back(static_cast<char*>(Machine::zeroed(g, wire_bytes)));
      counters_.push_back(static_cast<Word*>(Machine::zeroed(g, counter_bytes)));
      table_[g] = static_cast<char*>(Machine::zeroed(g, table_bytes));
    }
    machine_.sync();
  }

  template <class Op, class Algo, class Proto, class Group, class R>
  void run(const R& how, Shape shape, Index bytes, const Config& config) {
    using Body = detail::WireBody<Op, Algo, Proto, 16, R, false>;
    const int channels = config.blocks * config.groups;
    if (config.groups * Group::width > Body::max_lanes) return;
    constexpr bool tree = Algo::wires > 2;
    if (Index{channels} * 8 * config.slot_kib * 1024 * (tree ? 4 : 1) > wire_bytes) return;
    connect<Op>(channels, config.slot_kib, tree);
    const int gpus = machine_.gpus();
    for (int g = 0; g < gpus; ++g) {
      MUST(cudaSetDevice(g));
      MUST((detail::CudaExecutor::load<Group, Body>()));
    }
    const Index size = sizeof(typename R::Type);
    const Index count = bytes / size;
    std::vector<detail::WireWork<R>> works(gpus, detail::WireWork<R>{how});
    for (int g = 0; g < gpus; ++g) {
      detail::WireWork<R>& w = works[g];
      const Table t = table(g, channels);
      w.in = t.wires;
      w.out = t.wires + gpus * channels;
      w.rings = t.rings;
      w.trees = t.trees;
      w.rank = g;
      w.ranks = gpus;
      w.channels = channels;
      w.slice_steps = 1;
      w.chunk_steps = config.chunk_steps;
      w.input = machine_[g].in;
      w.output = machine_[g].out;
      w.watch = {&watched_->stop, &watched_->lane_failure, Word{2'000'000'000}};
      w.layout = lay_out_message(shape, count, count / gpus, !tree);
    }
    char plan[200];
    std::snprintf(plan, sizeof plan,
                  ",\"algo\":\"%s\",\"proto\":\"%s\",\"channels\":%d,\"blocks\":%d,\"group\":%d,"
                  "\"slot_kib\":%d,\"chunk_steps\":%d",
                  Algo::name, Proto::name, channels, config.blocks, Group::width, config.slot_kib,
                  config.chunk_steps);
    report(machine_, "ccl", shape, bytes, plan, [&] {
      for (int g = 0; g < gpus; ++g) {
        MUST(cudaSetDevice(g));
        MUST((detail::CudaExecutor::launch<Group, Body>(
            works[g], {channels, config.blocks, &share_}, machine_[g].stream)));
      }
    });
    if (watched_->lane_failure.peer != 0) {
      std::printf("# a lane gave up waiting for rank %d at step %d\n",
                  int(watched_->lane_failure.peer) - 1, int(watched_->lane_failure.step));
      std::exit(1);
    }
  }

 private:
  static constexpr Index wire_bytes = Index{1} << 30, counter_bytes = Index{64} << 20;
  static constexpr Index table_bytes = Index{16} << 20;
  struct Watched {
    Word stop = 0;
    detail::LaneFailure lane_failure;
  };
  struct Table {
    Wire* wires;
    RingPosition* rings;
    TreePosition* trees;
    int* order;
  };
  static Layout lay_out_message(Shape shape, Index count, Index share, bool split) {
    if (shape == Shape::all_reduce) return {count, 0, 0, split};
    if (shape == Shape::all_gather) return {share, 0, share, false};
    return {share, share, 0, false};
  }
  Table table(int g, int channels) const { return lay_out(table_[g], channels); }
  Table lay_out(char* base, int channels) const {
    Table t;
    t.wires = reinterpret_cast<Wire*>(base);
    t.rings = reinterpret_cast<RingPosition*>(t.wires + 2 * machine_.gpus() * channels);
    t.trees = reinterpret_cast<TreePosition*>(t.rings + channels);
    t.order = reinterpret_cast<int*>(t.trees + channels);
    return t;
  }
  /// Creates wires for a shape, with slots only for the edges that are used.
  template <class Op>
  void connect(int channels, int slot_kib, bool tree) {
    const int gpus = machine_.gpus();
    for (int g = 0; g < gpus; ++g) {
      MUST(cudaSetDevice(g));
      MUST(cudaMemset(slots_[g], 0, size_t(wire_bytes)));
      MUST(cudaMemset(counters_[g], 0, size_t(counter_bytes)));
    }
    machine_.sync();
    std::vector<Index> used(gpus, 0);
    for (int g = 0; g < gpus; ++g) {
      host_tables_[g].assign(size_t(table_bytes), 0);
      const Table t = lay_out(host_tables_[g].data(), channels);
      const Table there = table(g, channels);
      for (int c = 0; c < channels; ++c) {
        t.rings[c] = {g, gpus, there.order};
        t.trees[c] = double_binary_tree(g, gpus, 0, Op::rooted ? 0 : c % 2);
      }
      for (int p = 0; p < gpus; ++p) t.order[p] = p;
    }
    for (int c = 0; c < channels; ++c) {
      for (int from = 0; from < gpus; ++from) {
        const TreePosition position = lay_out(host_tables_[from].data(), channels).trees[c];
        for (int to = 0; to < gpus; ++to) {
          const bool linked =
              tree ? position.up == to || std::count(position.down, position.down + 3, to) != 0
                   : to == (from + 1) % gpus;
          if (!linked || from == to) continue;
          const int in = c * gpus + from, out = c * gpus + to;
          Wire w;
          w.slots = reinterpret_cast<Packet*>(slots_[to] + used[to]);
          w.posted = counters_[to] + in * 64;
          w.received = counters_[to] + in * 64 + 16;
          w.drained = counters_[from] + out * 64 + 32;
          w.sent = counters_[from] + out * 64 + 48;
          w.slot_count = 8;
          w.slot_packets = slot_kib * 64;
          used[to] += Index{8} * slot_kib * 1024;
          lay_out(host_tables_[to].data(), channels).wires[in] = w;
          lay_out(host_tables_[from].data(), channels).wires[gpus * channels + out] = w;
        }
      }
    }
    for (int g = 0; g < gpus; ++g) {
      const Table t = lay_out(host_tables_[g].data(), channels);
      const size_t bytes = size_t(reinterpret_cast<char*>(t.order + gpus) - host_tables_[g].data());
      MUST(cudaMemcpy(table_[g], host_tables_[g].data(), bytes, cudaMemcpyDefault));
    }
    machine_.sync();
  }

  Machine machine_;
  std::vector<char*> table_;
  std::vector<std::vector<char>> host_tables_;
  std::vector<char*> slots_;
  std::vector<Word*> counters_;
  Watched* watched_;
  detail::LaunchShare share_ = detail::LaunchShare::whole_gpu();
};

constexpr Index kib = 1024, mib = 1024 * kib;

/// Returns blocks and warps that give each channel sufficient work and no more.
std::vector<Config> flag_configs(Index bytes, bool quick) {
  std::vector<Config> all;
  for (const int blocks : {1, 4, 16, 32, 64, 128}) {
    for (const int warps : {1, 4, 16}) {
      const Index per_channel = bytes / (blocks * warps);
      if (blocks * warps > 1 && per_channel < 512) continue;
      if (per_channel > 64 * kib && blocks < 128) continue;
      for (const int slot : {2, 4}) {
        if (slot == 2 && (quick || bytes < 256 * kib)) continue;
        all.push_back({blocks, warps, slot, 2});
      }
    }
  }
  return all;
}
std::vector<Config> bulk_configs(Index bytes, int width, bool quick) {
  std::vector<Config> all;
  for (const int blocks : {16, 32, 64, 128}) {
    const int groups = 512 / width;
    for (const int slot : {16, 32, 64, 128}) {
      if (slot * kib > Index{width} * 512 || slot * kib < Index{width} * 64) continue;
      if (bytes / (blocks * groups) < 4 * kib) continue;
      if (bytes > 16 * mib && blocks < (quick ? 128 : 32)) continue;
      for (const int chunk : {2, 4}) {
        if (chunk == 4 && quick) continue;
        all.push_back({blocks, groups, slot, chunk});
      }
    }
  }
  return all;
}

template <class Op, class Algo, class R>
void sweep(Bench& bench, const R& how, Shape shape, Index bytes, const char* protos, bool quick) {
  constexpr bool tree = Algo::wires > 2;
  if (std::strchr(protos, 'l') != nullptr && bytes <= mib) {
    for (const Config& c : flag_configs(bytes, quick)) {
      bench.run<Op, Algo, LL, detail::WarpLanes>(how, shape, bytes, c);
    }
  }
  if (std::strchr(protos, '1') != nullptr && bytes <= 64 * mib) {
    for (const Config& c : flag_configs(bytes, quick)) {
      bench.run<Op, Algo, LL128, detail::WarpLanes>(how, shape, bytes, c);
    }
  }
  if (std::strchr(protos, 's') != nullptr && bytes >= 256 * kib) {
    for (const Config& c : bulk_configs(bytes, 128, quick)) {
      bench.run<Op, Algo, Simple, detail::BlockLanes<128>>(
          how, shape, bytes, tree ? Config{c.blocks, 2, c.slot_kib, 1} : c);
    }
    if constexpr (!tree) {
      for (const Config& c : bulk_configs(bytes, 512, quick)) {
        bench.run<Op, Algo, Simple, detail::BlockLanes<512>>(how, shape, bytes, c);
      }
    }
  }
}

std::vector<Index> sizes(const char* min, const char* max) {
  std::vector<Index> all;
  for (Index bytes = 256; bytes <= 1024 * mib; bytes *= 4) {
    if (bytes >= std::atoll(min) && bytes <= std::atoll(max)) all.push_back(bytes);
  }
  return all;
}

void nccl(Machine& machine, const char* ops, const char* path, const std::vector<Index>& bytes,
          const char* label) {
  const Nccl nccl{path};
  const int gpus = machine.gpus();
  std::vector<Nccl::Comm> comms(gpus);
  MUST_NCCL(nccl.init_all(comms.data(), gpus, nullptr));
  char plan[100];
  std::snprintf(plan, sizeof plan, ",\"version\":%d,\"label\":\"%s\"", nccl.version(), label);
  for (const Shape shape : {Shape::all_reduce, Shape::all_gather, Shape::reduce_scatter}) {
    if (std::strchr(ops, "rgs"[int(shape)]) == nullptr) continue;
    for (const Index b : bytes) {
      const size_t count = size_t(b) / sizeof(float), share = count / size_t(gpus);
      report(machine, "nccl", shape, b, plan, [&] {
        MUST_NCCL(nccl.group_start());
        for (int g = 0; g < gpus; ++g) {
          MUST(cudaSetDevice(g));
          const Gpu& at = machine[g];
          if (shape == Shape::all_reduce) {
            MUST_NCCL(nccl.all_reduce(at.in, at.out, count, Nccl::float32, Nccl::sum, comms[g],
                                      at.stream));
          } else if (shape == Shape::all_gather) {
            MUST_NCCL(nccl.all_gather(at.in, at.out, share, Nccl::float32, comms[g], at.stream));
          } else {
            MUST_NCCL(nccl.reduce_scatter(at.in, at.out, share, Nccl::float32, Nccl::sum, comms[g],
                                          at.stream));
          }
        }
        MUST_NCCL(nccl.group_end());
      });
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto arg = [&](int i, const char* otherwise) { return argc > i ? argv[i] : otherwise; };
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus < 2) {
    std::printf("SKIP: needs two GPUs, has %d\n", gpus);
    return 77;
  }
  const char* const ops = arg(2, "rgs");
  const std::vector<Index> bytes = sizes(arg(4, "256"), arg(5, "1073741824"));
  if (bytes.empty()) return 0;
  if (std::strcmp(arg(1, "ccl"), "nccl") == 0) {
    Machine machine{gpus, bytes.back()};
    nccl(machine, ops, arg(3, "libnccl.so.2"), bytes, arg(6, ""));
    return 0;
  }
  Bench bench{gpus, bytes.back()};
  const char* const protos = arg(3, "l1s");
  const bool quick = argc > 6;
  const detail::Reduction<Sum, float> sum{Sum{}, gpus};
  for (const Index b : bytes) {
    if (std::strchr(ops, 'r') != nullptr) {
      sweep<AllReduce, Ring>(bench, sum, Shape::all_reduce, b, protos, quick);
    }
    if (std::strchr(ops, 't') != nullptr) {
      sweep<AllReduce, Tree>(bench, sum, Shape::all_reduce, b, protos, quick);
    }
    if (std::strchr(ops, 'g') != nullptr) {
      sweep<AllGather, Ring>(bench, detail::Bytes{}, Shape::all_gather, b, protos, quick);
    }
    if (std::strchr(ops, 's') != nullptr) {
      sweep<ReduceScatter, Ring>(bench, sum, Shape::reduce_scatter, b, protos, quick);
    }
  }
}
