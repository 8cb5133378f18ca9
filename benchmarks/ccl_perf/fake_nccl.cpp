// Emulation of the NCCL functions that `ccl_perf --compare nccl` calls, on CPU memory for tests. It
// supports messages of at most 1 MiB of each rank, and sums of floats. With NCCL_SYM_CTAS set,
// FAKE_NCCL=hang, crash, wrong or fail makes it misbehave.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

constexpr std::size_t room = std::size_t{1} << 20;  // bytes of one rank
constexpr int max_ranks = 16;

struct Shared {
  std::atomic<unsigned> arrived, round;
  alignas(64) char data[max_ranks][room];
};

std::size_t size_of(int type) {
  constexpr std::size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[type];
}

bool misbehaves(const char* how) {
  const char* const asked = std::getenv("FAKE_NCCL");
  return std::getenv("NCCL_SYM_CTAS") != nullptr && asked != nullptr &&
         std::strcmp(asked, how) == 0;
}

}  // namespace

extern "C" {

struct Id {
  char bytes[128];
};
struct ncclComm {
  Shared* shared;
  int ranks, rank;

  void meet() const {
    const unsigned round = shared->round;
    if (++shared->arrived == unsigned(ranks)) {
      shared->arrived = 0;
      ++shared->round;
    }
    while (shared->round == round) std::this_thread::yield();
  }
};
using Comm = ncclComm*;

int ncclGetVersion(int* version) {
  *version = 22899;
  return 0;
}
const char* ncclGetErrorString(int) {
  return "fake error";
}
const char* ncclGetLastError(Comm) {
  return "asked for by FAKE_NCCL";
}
int ncclGetUniqueId(Id* id) {
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->bytes, sizeof id->bytes, "/ccl_fake_nccl.%d.%p", int(::getpid()),
                static_cast<void*>(id));
  return 0;
}
int ncclCommInitRank(Comm* comm, int ranks, Id id, int rank) {
  const char* const multicast = std::getenv("NCCL_NVLS_ENABLE");
  if (multicast == nullptr || std::strcmp(multicast, "0") != 0) std::abort();
  const int fd = ::shm_open(id.bytes, O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ::ftruncate(fd, sizeof(Shared)) != 0) return 2;
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  *comm = new ncclComm{static_cast<Shared*>(memory), ranks, rank};
  (*comm)->meet();
  ::shm_unlink(id.bytes);
  return 0;
}
int ncclCommDestroy(Comm comm) {
  comm->meet();
  delete comm;
  return 0;
}
int ncclCommGetAsyncError(Comm, int* error) {
  *error = 0;
  return 0;
}
int ncclMemAlloc(void** memory, std::size_t bytes) {
  *memory = std::malloc(bytes);
  return 0;
}
int ncclCommRegister(Comm, void*, std::size_t, void**) {
  return 0;
}
int ncclCommWindowRegister(Comm, void*, std::size_t, void** window, int) {
  *window = window;
  return 0;
}
int ncclGroupStart() {
  return 0;
}
int ncclGroupEnd() {
  return 0;
}

int ncclAllReduce(const void* send, void* recv, std::size_t count, int type, int op, Comm comm,
                  void*) {
  if (misbehaves("fail") || type != 7 || op != 0 || count * 4 > room) return 4;
  if (misbehaves("crash") && comm->rank == 1) std::abort();
  while (misbehaves("hang")) ::usleep(1000);
  std::memcpy(comm->shared->data[comm->rank], send, count * 4);
  comm->meet();
  std::vector<float> sum(count, misbehaves("wrong") ? 1.f : 0.f);
  for (int r = 0; r < comm->ranks; ++r) {
    const auto* const theirs = reinterpret_cast<const float*>(comm->shared->data[r]);
    for (std::size_t i = 0; i < count; ++i) sum[i] += theirs[i];
  }
  std::copy(sum.begin(), sum.end(), static_cast<float*>(recv));
  comm->meet();
  return 0;
}
int ncclAllGather(const void* send, void* recv, std::size_t count, int type, Comm comm, void*) {
  const std::size_t bytes = count * size_of(type);
  if (bytes > room) return 4;
  std::memcpy(comm->shared->data[comm->rank], send, bytes);
  comm->meet();
  for (int r = 0; r < comm->ranks; ++r) {
    std::memcpy(static_cast<char*>(recv) + std::size_t(r) * bytes, comm->shared->data[r], bytes);
  }
  comm->meet();
  return 0;
}
int ncclReduce(const void*, void*, std::size_t, int, int, int, Comm, void*) {
  return 5;
}
int ncclReduceScatter(const void*, void*, std::size_t, int, int, Comm, void*) {
  return 5;
}
int ncclBroadcast(const void*, void*, std::size_t, int, int, Comm, void*) {
  return 5;
}
int ncclSend(const void*, std::size_t, int, int, Comm, void*) {
  return 5;
}
int ncclRecv(void*, std::size_t, int, int, Comm, void*) {
  return 5;
}

}  // extern "C"
