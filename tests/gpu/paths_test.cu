// Paths between GPUs. Paths that work are used. Others are replaced by a path through host memory
// or through a GPU in between.
#include "communicator.cuh"
#include "gpu/driver.hpp"
#include "transport/p2p/check.hpp"

using namespace ccl;
using namespace ccl::test;
using detail::PathFault;

namespace {

constexpr Index counts[] = {1, 1023, 65536, 300001};

/// Barrier between allocations and launches. If ranks of one process share a GPU, an allocation or
/// a free can wait for another rank's kernel, which waits for its own. No rank launches before all
/// have allocated, and none allocates before all have freed.
struct Quiet {
  const Communicator& comm;
  void meet() const { must(comm.barrier()); }
  ~Quiet() { meet(); }
};

template <class Algo, class Proto>
void sums(const Rank& at) {
  const auto all_reduce =
      must(Collective<AllReduce, Algo, Proto, DefaultTransport>::create(at.comm));
  for (const Index n : counts) {
    const Quiet quiet{at.comm};
    Buffer<float> in{n, 0}, out{n, 0};
    in.fill([&](Index i) { return value(at.rank, i); }, at.stream);
    quiet.meet();
    const auto sum = [&](Index i) {
      double s = 0;
      for (int r = 0; r < at.ranks; ++r) s += value(r, i);
      return s;
    };
    at.go([&] { return all_reduce(in.get(), out.get(), n, Sum{}, at.stream); });
    check(out.wrong(n, sum, at.stream) == 0, "%s count %ld rank %d", all_reduce.name().c_str(),
          long(n), at.rank);
  }
}

template <class Proto>
void messages(const Rank& at) {
  const auto all_to_all =
      must(Collective<AllToAll, Pairwise, Proto, DefaultTransport>::create(at.comm));
  for (const Index n : counts) {
    const Quiet quiet{at.comm};
    Buffer<float> in{n * at.ranks, 0}, out{n * at.ranks, 0};
    in.fill([&](Index i) { return value(at.rank * 3 + int(i / n), i); }, at.stream);
    quiet.meet();
    at.go([&] { return all_to_all(in.get(), out.get(), n, at.stream); });
    check(out.wrong(
              n * at.ranks,
              [&](Index i) { return value(int(i / n) * 3 + at.rank, Index{at.rank} * n + i % n); },
              at.stream) == 0,
          "%s count %ld rank %d", all_to_all.name().c_str(), long(n), at.rank);
  }
}

/// True if two ranks of one process have the same GPU.
bool some_share_context(const Communicator& comm) {
  for (int p = 0; p < comm.ranks(); ++p) {
    for (int q = 0; q < p; ++q) {
      const PeerInfo &one = comm.peer(p), &other = comm.peer(q);
      if (one.pid_hash == other.pid_hash && one.bus_id == other.bus_id) return true;
    }
  }
  return false;
}

/// Every edge of the ranks carries steps of both kinds, eager and in graphs, which are made at
/// times that no barrier orders.
void works(const Communicator& comm) {
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (const bool graph : {false, true}) {
    if (graph && some_share_context(comm)) continue;
    Rank at{comm, stream};
    at.graph = graph;
    sums<Ring, Simple>(at);
    sums<Tree, LL>(at);
    messages<Simple>(at);
    messages<LL>(at);
  }
  MUST_CUDA(cudaStreamDestroy(stream));
}

int fault(const Communicator& comm, int peer) {
  return comm.peer(peer).way.fault;
}

void sound(const Communicator& comm) {
  for (int p = 0; p < comm.ranks(); ++p) {
    check(p == comm.rank() || fault(comm, p) == int(PathFault::none), "rank %d to %d: fault %d",
          comm.rank(), p, fault(comm, p));
    check(comm.peer(p).way.relay == -1, "rank %d to %d: through %d", comm.rank(), p,
          comm.peer(p).way.relay);
  }
  works(comm);
}

/// Ranks 0 and 1 do not address each other, and no GPU is between them.
void apart(const Communicator& comm, PathFault seen, const char* words) {
  if (comm.rank() < 2) {
    const int other = 1 - comm.rank();
    check(fault(comm, other) == int(seen), "rank %d: fault %d", comm.rank(), fault(comm, other));
    const std::string by =
        DefaultTransport::edge_transport(comm.peer(comm.rank()), comm.peer(other)).transport;
    check(by != "p2p", "rank %d to %d by %s", comm.rank(), other, by.c_str());
  }
  const auto only = Collective<AllReduce, Ring, LL, P2pTransport>::create(comm);
  const std::string text = only ? "nothing" : only.error().message();
  check(!only && only.error().code == Errc::no_transport && text.find(words) != text.npos,
        "P2P alone on rank %d: %s", comm.rank(), text.c_str());
  works(comm);
}

void refuses_lines(const Communicator& comm) {
  const auto made = Collective<AllReduce, Ring, LL128, DefaultTransport>::create(comm);
  const std::string text = made ? "nothing" : made.error().message();
  check(
      !made && made.error().code == Errc::not_supported && text.find("p2p carries 16") != text.npos,
      "LL128 through a GPU on rank %d: %s", comm.rank(), text.c_str());
}

/// Ranks 0 and 1, and 2 and 3, go through others.
void relayed(const Communicator& comm) {
  const int other = comm.rank() ^ 1;
  if (other < comm.ranks()) {
    const int between = comm.peer(other).way.relay;
    check(between >= 0 && between != comm.rank() && between != other, "rank %d to %d: through %d",
          comm.rank(), other, between);
    const EdgeTransport by =
        DefaultTransport::edge_transport(comm.peer(comm.rank()), comm.peer(other));
    check(std::string{by.transport} == "p2p" && by.line_bytes == 16, "rank %d to %d by %s",
          comm.rank(), other, by.transport);
  }
  // Rings of three have all pairs.
  if (comm.ranks() == 3) refuses_lines(comm);
  works(comm);
}

/// Ranks as if on two hosts of one NVLink domain. They use fabric handles if processes can have
/// them on this machine, and else the network.
void wide(const Communicator& comm) {
  const int other = comm.rank() < comm.ranks() / 2 ? comm.ranks() - 1 : 0;
  const std::string by =
      DefaultTransport::edge_transport(comm.peer(comm.rank()), comm.peer(other)).transport;
  const bool fault = comm.peer(other).way.fault != int(PathFault::none);
  check((by == "p2p") == !fault, "rank %d to %d by %s with fault %d", comm.rank(), other,
        by.c_str(), comm.peer(other).way.fault);
  if (comm.rank() == 0) std::printf("between hosts of one NVLink domain: by %s\n", by.c_str());
  works(comm);
}

const detail::CudaDriver* real = nullptr;
/// Copy that loses what a probe writes to a peer.
CUresult lossy_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  int ordinal = -1;
  CUmemorytype kind{};
  CUdevice current = -1;
  CUpointer_attribute what[] = {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
  void* into[] = {&ordinal, &kind};
  (void)real->ctx_get_device(&current);
  const bool known = real->pointer_get_attributes(2, what, into, to) == CUDA_SUCCESS;
  if (known && kind == CU_MEMORYTYPE_DEVICE && ordinal != current &&
      bytes == detail::path_trial_bytes) {
    return CUDA_SUCCESS;
  }
  return real->memcpy_async(to, from, bytes, stream);
}

/// Every edge by P2P with CCL_P2P_READ_ENABLE: the slots of Simple are with the sender, those of
/// LL and LL128 where they always are.
void reads(const Communicator& comm) {
  sound(comm);
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (const bool graph : {false, true}) {
    if (graph && some_share_context(comm)) continue;
    Rank at{comm, stream};
    at.graph = graph;
    sums<Tree, Simple>(at);
    sums<Ring, LL>(at);
    sums<Ring, LL128>(at);
    sums<Tree, LL128>(at);
    messages<LL128>(at);
  }
  MUST_CUDA(cudaStreamDestroy(stream));
}

/// Rank 0 alone has the setting: what it is about is refused on all ranks, and nothing else.
void reads_alone(const Communicator& comm) {
  ::setenv("CCL_P2P_READ_ENABLE", comm.rank() == 0 ? "1" : "0", 1);
  const auto made = Collective<AllReduce, Ring, Simple, DefaultTransport>::create(comm);
  const std::string text = made ? "nothing" : made.error().message();
  check(
      !made && made.error().code == Errc::mismatch && text.find("CCL_P2P_READ_ENABLE") != text.npos,
      "Simple where rank 0 alone reads, on rank %d: %s", comm.rank(), text.c_str());
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  sums<Ring, LL>(Rank{comm, stream});
  MUST_CUDA(cudaStreamDestroy(stream));
}

/// Runs in this process, which must not fork afterwards.
void lossy(const Config& config) {
  static const detail::CudaDriver before = *must(detail::cuda_driver());
  real = &before;
  detail::CudaDriver driver = before;
  driver.memcpy_async = lossy_copy;
  detail::use_cuda_driver(driver, detail::cuda_device_count());
  auto comms = must(Communicator::create_all(2, config));
  std::vector<std::thread> threads;
  for (auto& comm : comms) {
    threads.emplace_back([&comm] {
      MUST_CUDA(cudaSetDevice(comm.device()));
      apart(comm, PathFault::corrupt, "read as something else");
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace

/// Without arguments all of them.
int main(int argc, char** argv) {
  const auto wanted = [&](const char* name) {
    bool listed = argc < 2;
    for (int a = 1; a < argc; ++a) listed = listed || std::strcmp(argv[a], name) == 0;
    return listed;
  };
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_TIMEOUT", "5", 0);
  Config config;
  config.memory_budget_bytes = Index{1} << 30;
  const auto both = [&](int count, const RankBody& body) {
    as_threads(count, config, body);
    as_processes(count, config, body);
  };
  if (wanted("sound")) both(ranks.count, sound);
  if (wanted("reads")) {
    if (ranks.count > 1) as_processes(ranks.count, config, reads_alone);
    ::setenv("CCL_P2P_READ_ENABLE", "1", 1);
    both(ranks.count, reads);
    ::setenv("CCL_CUMEM_ENABLE", "0", 1);
    both(ranks.count, reads);
    ::unsetenv("CCL_CUMEM_ENABLE");
    ::unsetenv("CCL_P2P_READ_ENABLE");
  }
  ::setenv("CCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  if (wanted("shared")) both(2 * ranks.count, works);
  ::setenv("CCL_P2P_EXCLUDE", "0-1", 1);
  if (wanted("apart")) {
    both(2, [](const Communicator& comm) { apart(comm, PathFault::excluded, "CCL_P2P_EXCLUDE"); });
  }
  if (wanted("three")) both(3, relayed);
  if (wanted("reads")) {  // which a GPU in between does not
    ::setenv("CCL_P2P_READ_ENABLE", "1", 1);
    both(3, relayed);
    ::unsetenv("CCL_P2P_READ_ENABLE");
  }
  ::setenv("CCL_P2P_EXCLUDE", "0-1,2-3", 1);
  if (wanted("four")) both(4, relayed);
  ::unsetenv("CCL_P2P_EXCLUDE");
  if (ranks.gpus >= 2 && wanted("wide")) {
    ::setenv("CCL_MNNVL_UUID", "1", 1);
    as_processes(ranks.count, config, wide, 2);
    ::unsetenv("CCL_MNNVL_UUID");
  }
  if (ranks.gpus >= 2 && wanted("lossy")) lossy(config);
  return result("Paths", ranks.gpus);
}
