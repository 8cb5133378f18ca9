// Cost of the library's abstractions, in its Ring all-reduce of floats over LL128 and Simple. They
// are compared with kernels written by hand (bare_ring.cuh), on the same wires of one process's
// GPUs. Prints one line of JSON for each size, with times from a CUDA graph, in turns. One more
// line for each kernel has the compiler's register and code counts.
//   seams_bench [min bytes] [max bytes] [repetitions] [factor between sizes: 4]
// Exits with 1 if the library's kernel takes 4 registers more or spills, a result is wrong, or the
// library takes more than 1.02 of the time of the kernel by hand.
#include <ccl/ccl.cuh>

#include <algorithm>
#include <cstring>

#include "bare_ring.cuh"
#include "machine.cuh"

using namespace ccl;
using namespace ccl::bench;

namespace {

constexpr Index kib = 1024, mib = 1024 * kib;
bool all_good = true;

template <class Proto>
using Body = detail::WireBody<AllReduce, Ring, Proto, 16, detail::Reduction<Sum, float>, false>;
template <class Proto>
using Lanes = detail::LanesOf<Proto>;

/// Two sets of wires around the ring, with the default plan of a composition of `Proto`. Each
/// kernel keeps its own counts.
template <class Proto, class Bare>
class Rival {
 public:
  explicit Rival(Machine& machine)
      : machine_{machine}, plan_{detail::default_device_plan<Ring, Proto>(128)} {
    const int gpus = machine.gpus();
    const Index slots = plan_.slot_bytes * plan_.slot_count * plan_.channels;
    MUST(cudaHostAlloc(&watched_, sizeof *watched_, cudaHostAllocPortable));
    *watched_ = {};
    std::vector<char*> memory[2];
    std::vector<Word*> words[2];
    for (int k = 0; k < 2; ++k) {
      for (int g = 0; g < gpus; ++g) {
        memory[k].push_back(static_cast<char*>(Machine::zeroed(g, slots)));
        words[k].push_back(static_cast<Word*>(Machine::zeroed(g, Index{plan_.channels} * 4 * 128)));
      }
    }
    for (int g = 0; g < gpus; ++g) {
      const int before = (g + gpus - 1) % gpus, after = (g + 1) % gpus;
      std::vector<Wire> wires(size_t(2 * gpus * plan_.channels));
      std::vector<bare::End> ends(size_t(2 * plan_.channels));
      std::vector<RingPosition> positions;
      std::vector<int> order;
      for (int p = 0; p < gpus; ++p) order.push_back(p);
      int* const order_there = put(g, order);
      for (int c = 0; c < plan_.channels; ++c) {
        positions.push_back({g, gpus, order_there});
        for (const bool in : {true, false}) {
          const int to = in ? g : after, from = in ? before : g;
          const auto word = [&](int k, int at, int n) {
            return words[k][size_t(at)] + (Index{c} * 4 + n) * 16;
          };
          const auto slot = [&](int k) {
            return memory[k][size_t(to)] + Index{c} * plan_.slot_count * plan_.slot_bytes;
          };
          Wire w;
          w.slots = reinterpret_cast<Packet*>(slot(0));
          w.posted = word(0, to, 0);
          w.drained = word(0, from, 1);
          w.sent = in ? nullptr : word(0, from, 2);
          w.received = in ? word(0, to, 3) : nullptr;
          w.slot_count = plan_.slot_count;
          w.slot_packets = int(plan_.slot_bytes / Index{sizeof(Packet)});
          wires[size_t((in ? 0 : gpus * plan_.channels) + c * gpus + (in ? before : after))] = w;
          ends[size_t((in ? 0 : plan_.channels) + c)] = {
              reinterpret_cast<ulonglong2*>(slot(1)), as_bare(word(1, to, 0)),
              as_bare(word(1, from, 1)), as_bare(in ? word(1, to, 3) : word(1, from, 2))};
        }
      }
      wires_.push_back(put(g, wires));
      ends_.push_back(put(g, ends));
      positions_.push_back(put(g, positions));
    }
    machine.sync();
    compare_kernels();
  }

  void compare(Index bytes, int repetitions) {
    const auto ours = [&] { run_ours(bytes); };
    const auto by_hand = [&] { run_by_hand(bytes); };
    bool ok = machine_.check(Shape::all_reduce, bytes, 2, ours) &&
              machine_.check(Shape::all_reduce, bytes, 2, by_hand);
    const int launches = bytes < 16 * mib ? 50 : bytes < 512 * mib ? 20 : 10;
    std::vector<double> times[2];
    for (int r = 0; ok && r < repetitions; ++r) {  // in turns; each side is first equally often
      for (const int which : {r % 2, 1 - r % 2}) {
        times[which].push_back(which == 0 ? machine_.time(launches, 5, ours)
                                          : machine_.time(launches, 5, by_hand));
      }
    }
    ok = ok && machine_.check(Shape::all_reduce, bytes, 1, ours) &&
         machine_.check(Shape::all_reduce, bytes, 1, by_hand) && watched_->lane_failure.peer == 0;
    for (auto& t : times) std::sort(t.begin(), t.end());
    const auto middle = [&](int which) { return ok ? times[which][times[which].size() / 2] : 0; };
    const double ratio = ok ? middle(0) / middle(1) : 0;
    std::printf(
        "{\"proto\":\"%s\",\"gpus\":%d,\"bytes\":%lld,\"ccl_us\":%.3f,\"ccl_min_us\":%.3f,"
        "\"by_hand_us\":%.3f,\"by_hand_min_us\":%.3f,\"ratio\":%.4f,\"ok\":%s}\n",
        Proto::name, machine_.gpus(), static_cast<long long>(bytes), middle(0),
        ok ? times[0].front() : 0, middle(1), ok ? times[1].front() : 0, ratio,
        ok ? "true" : "false");
    std::fflush(stdout);
    all_good = all_good && ok && ratio <= 1.02;
  }

 private:
  struct Watched {
    Word stop = 0;
    detail::LaneFailure lane_failure;
  };
  static bare::Word* as_bare(Word* at) { return reinterpret_cast<bare::Word*>(at); }
  template <class T>
  static T* put(int g, const std::vector<T>& from) {
    const size_t bytes = from.size() * sizeof(T);
    void* const at = Machine::zeroed(g, Index(bytes));
    MUST(cudaMemcpy(at, from.data(), bytes, cudaMemcpyDefault));
    return static_cast<T*>(at);
  }
  detail::CudaShape shape(Index bytes) {
    detail::DeviceTarget target;
    target.max_blocks = 128;
    target.share = &share_;
    return detail::device_shape<Lanes<Proto>, Body<Proto>::max_lanes>(bytes, plan_.channels,
                                                                      target);
  }
  void run_ours(Index bytes) {
    const int gpus = machine_.gpus();
    const detail::CudaShape how = shape(bytes);
    for (int g = 0; g < gpus; ++g) {
      MUST(cudaSetDevice(g));
      detail::WireWork<detail::Reduction<Sum, float>> work{
          detail::Reduction<Sum, float>{Sum{}, gpus}};
      work.in = wires_[size_t(g)];
      work.out = work.in + gpus * plan_.channels;
      work.rings = positions_[size_t(g)];
      work.rank = g;
      work.ranks = gpus;
      work.channels = how.channels;
      work.slice_steps = 1;
      work.chunk_steps = plan_.chunk_steps;
      work.layout = {bytes / Index{sizeof(float)}, 0, 0, true};
      work.input = machine_[g].in;
      work.output = machine_[g].out;
      work.watch = {&watched_->stop, &watched_->lane_failure, Word{2'000'000'000}};
      MUST(
          (detail::CudaExecutor::launch<Lanes<Proto>, Body<Proto>>(work, how, machine_[g].stream)));
    }
  }
  void run_by_hand(Index bytes) {
    const detail::CudaShape how = shape(bytes);
    for (int g = 0; g < machine_.gpus(); ++g) {
      MUST(cudaSetDevice(g));
      bare::Work work{};
      work.in = ends_[size_t(g)];
      work.out = work.in + plan_.channels;
      work.input = machine_[g].in;
      work.output = machine_[g].out;
      work.count = bytes / Index{sizeof(float)};
      work.rank = g;
      work.ranks = machine_.gpus();
      work.channels = how.channels;
      work.slot_count = plan_.slot_count;
      work.slot_packets = int(plan_.slot_bytes / Index{sizeof(Packet)});
      work.chunk_steps = plan_.chunk_steps;
      work.stop = as_bare(&watched_->stop);
      work.lane_failure = as_bare(&watched_->lane_failure.peer);
      work.deadline_ns = 2'000'000'000;
      MUST((bare::launch<Bare>(work, how.blocks, div_up(how.channels, how.blocks),
                               machine_[g].stream)));
    }
  }
  void compare_kernels() {
    cudaFuncAttributes ours{}, by_hand{};
    MUST(cudaFuncGetAttributes(&ours, detail::run_collective<Lanes<Proto>, Body<Proto>>));
    MUST(cudaFuncGetAttributes(&by_hand, bare::ring_all_reduce<Bare>));
    const bool ok = ours.numRegs - by_hand.numRegs <= 4 && ours.localSizeBytes == 0;
    std::printf(
        "{\"proto\":\"%s\",\"ccl_registers\":%d,\"by_hand_registers\":%d,\"ccl_spills\":%zu,"
        "\"by_hand_spills\":%zu,\"ok\":%s}\n",
        Proto::name, ours.numRegs, by_hand.numRegs, ours.localSizeBytes, by_hand.localSizeBytes,
        ok ? "true" : "false");
    all_good = all_good && ok;
  }

  Machine& machine_;
  Plan plan_;
  Watched* watched_;
  detail::LaunchShare share_ = detail::LaunchShare::whole_gpu();
  std::vector<Wire*> wires_;
  std::vector<bare::End*> ends_;
  std::vector<RingPosition*> positions_;
};

}  // namespace

int main(int argc, char** argv) {
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus < 2) {
    std::printf("SKIP: needs two GPUs, has %d\n", gpus);
    return 77;
  }
  const Index least = argc > 1 ? std::atoll(argv[1]) : 64 * kib;
  const Index most = argc > 2 ? std::atoll(argv[2]) : 1024 * mib;
  const int repetitions = argc > 3 ? std::atoi(argv[3]) : 5;
  Machine machine{gpus, most};
  Rival<LL128, bare::Ll128> ll128{machine};
  Rival<Simple, bare::Simple> simple{machine};
  const double factor = argc > 4 ? std::atof(argv[4]) : 4;
  for (double at = double(least); Index(at) <= most; at *= factor) {
    const Index bytes = Index(at) / 16 * 16;
    if (bytes <= 64 * mib) ll128.compare(bytes, repetitions);
    if (bytes >= mib) simple.compare(bytes, repetitions);
  }
  return all_good ? 0 : 1;
}
