// Library in place of the NCCL that CCL_NCCL_FALLBACK names: sums and products of doubles and of
// int64_t in CPU memory, for ranks of one process, and windows that are plain memory.
#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "nccl/abi/device_abi.hpp"
#include <dlfcn.h>

namespace {

struct Rendezvous {
  explicit Rendezvous(int ranks)
      : all{ranks}, send(std::size_t(ranks)), scale(std::size_t(ranks)) {}
  std::barrier<> all;
  std::vector<const void*> send;
  std::vector<double> scale;  // of each rank's values
};
std::mutex mutex;
std::map<std::string, std::shared_ptr<Rendezvous>> all_rendezvous;  // by id
std::map<std::string, int> counts;                                  // of calls
std::map<int, double> scalars;                                      // by number of the reduction

constexpr int library_version = 22903;
constexpr int collective = 7;  // a request of a device communicator that waits for all ranks

/// True if calls of this library's own functions reach them, and not those of ccl's library, which
/// comes first in the process. Sanitizers let no library be loaded so.
bool reaches_itself() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess &&
         (version == library_version || dlsym(RTLD_DEFAULT, "__asan_init") != nullptr ||
          dlsym(RTLD_DEFAULT, "__tsan_init") != nullptr);
}
/// True if NCCL would use NVLink multicast where the GPUs have it.
bool may_multicast() {
  const char* const enabled = std::getenv("NCCL_NVLS_ENABLE");
  return enabled == nullptr || std::string_view{enabled} != "0";
}
/// Written as the library is loaded, which is before its first call.
const bool loaded_with_multicast = may_multicast();

int count(const char* what, int more = 1) {
  const std::lock_guard lock{mutex};
  return counts[what] += more;
}

}  // namespace

struct ncclComm {
  int rank, ranks;
  std::shared_ptr<Rendezvous> rendezvous;
  int asked = 0;
};
struct ncclWindow_vidmem {
  char* memory;
};

namespace {
template <class T>
void reduce(ncclComm_t comm, const void* send, void* recv, std::size_t first, std::size_t n, int op,
            bool receives) {
  Rendezvous& all = *comm->rendezvous;
  const auto me = std::size_t(comm->rank);
  {
    const std::lock_guard lock{mutex};
    all.send[me] = send;
    all.scale[me] = op < ncclNumOps ? 1 : scalars[op];
  }
  all.all.arrive_and_wait();
  std::vector<T> result(n, op == ncclProd ? 1 : 0);
  for (std::size_t r = 0; r < all.send.size(); ++r) {
    for (std::size_t i = 0; i < n; ++i) {
      const T value = T(double(static_cast<const T*>(all.send[r])[first + i]) * all.scale[r]);
      op == ncclProd ? result[i] *= value : result[i] += value;
    }
  }
  all.all.arrive_and_wait();
  if (receives) std::memcpy(recv, result.data(), n * sizeof(T));
}

/// Reduces `n` values from `first` on, of which this rank gets the result if it `receives` it.
ncclResult_t reduce(ncclComm_t comm, const void* send, void* recv, std::size_t first, std::size_t n,
                    ncclDataType_t type, int op, bool receives) {
  count("reduction");
  if (std::getenv("FAKE_NCCL_REDUCES_NOT") != nullptr) return ncclInternalError;
  if (type == ncclFloat64) {
    reduce<double>(comm, send, recv, first, n, op, receives);
  } else if (type == ncclInt64) {
    reduce<std::int64_t>(comm, send, recv, first, n, op, receives);
  } else {
    return ncclInvalidArgument;
  }
  return ncclSuccess;
}

/// True if the variable names the rank of `comm`. FAKE_NCCL_FAILS and FAKE_NCCL_HANGS name one
/// whose creation does so, and FAKE_NCCL_WAKES_NOT one that cannot be resumed.
bool names(ncclComm_t comm, const char* variable) {
  const char* const rank = std::getenv(variable);
  return rank != nullptr && std::atoi(rank) == comm->rank;
}

/// Counts what a call's configuration says.
void look_at(const ncclCollConfig_t* config) {
  const bool named = config->algSelection != nullptr &&
                     std::string_view{config->algSelection} == "TREE" &&
                     config->forceAlgSelection == 1;
  count("configured", config->size == 64 && config->magic == NCCL_API_MAGIC ? 1 : 0);
  count("trees", named ? 1 : 0);
  count("blocks", std::max(config->maxCTAs, 0));
}
}  // namespace

#pragma GCC visibility push(default)
extern "C" {
int fake_nccl_count(const char* what) {
  return count(what, 0);
}
ncclResult_t ncclGetVersion(int* version) {
  *version = library_version;
  return ncclSuccess;
}
const char* ncclGetLastError(ncclComm_t) {
  return "as the test wishes";
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 0, sizeof *id);
  const std::string text = std::to_string(count("id"));
  std::memcpy(id->internal, text.data(), text.size());
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (!reaches_itself()) return ncclInternalError;
  const bool known = config->size == sizeof(ncclConfig_t) && config->version == library_version;
  if (!known || config->blocking != 0) return ncclInvalidArgument;
  const auto is = [](const char* text, const char* name) {
    return text != nullptr && std::string_view{text} == name;
  };
  count("multicast", may_multicast() || loaded_with_multicast ? 1 : 0);
  count("limited", config->maxCTAs == 7 && config->cgaClusterSize == 2 ? 1 : 0);
  count("named", is(config->netName, "Socket") && is(config->commName, "trainer") ? 1 : 0);
  const std::lock_guard lock{mutex};
  auto& rendezvous = all_rendezvous[id.internal];
  if (rendezvous == nullptr) rendezvous = std::make_shared<Rendezvous>(ranks);
  *comm = new ncclComm{rank, ranks, rendezvous};
  ++counts["communicators"];
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = names(comm, "FAKE_NCCL_FAILS")                         ? ncclSystemError
           : names(comm, "FAKE_NCCL_HANGS") || comm->asked++ == 0 ? ncclInProgress
                                                                  : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  count("communicators", -1);
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommSuspend(ncclComm_t, int flags) {
  count("suspended", flags);
  return std::getenv("FAKE_NCCL_RESTS_NOT") == nullptr ? ncclSuccess : ncclInvalidUsage;
}
ncclResult_t ncclCommResume(ncclComm_t comm) {
  if (names(comm, "FAKE_NCCL_WAKES_NOT")) return ncclSystemError;
  count("suspended", -NCCL_SUSPEND_MEM);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return ncclCommDestroy(comm);
}
ncclResult_t ncclAllReduce(const void* send, void* recv, std::size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t) {
  return reduce(comm, send, recv, 0, n, type, op, true);
}
ncclResult_t ncclReduceScatter(const void* send, void* recv, std::size_t n, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t) {
  return reduce(comm, send, recv, n * std::size_t(comm->rank), n, type, op, true);
}
ncclResult_t ncclReduce(const void* send, void* recv, std::size_t n, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t) {
  return reduce(comm, send, recv, 0, n, type, op, comm->rank == root);
}
ncclResult_t ncclAllReduceConfig(const void* send, void* recv, std::size_t n, ncclDataType_t type,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t,
                                 const ncclCollConfig_t* config) {
  look_at(config);
  return reduce(comm, send, recv, 0, n, type, op, true);
}
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t,
                                      ncclScalarResidence_t, ncclComm_t) {
  const std::lock_guard lock{mutex};
  const int made = ncclNumOps + ++counts["reductions made"];
  std::memcpy(&scalars[made], scalar, sizeof(double));
  *op = ncclRedOp_t(made);
  return ncclSuccess;
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t) {
  count("reductions ended");
  return ncclSuccess;
}
ncclResult_t ncclCommWindowRegister(ncclComm_t, void* memory, std::size_t, ncclWindow_t* window,
                                    int) {
  count("windows");
  *window = new ncclWindow_vidmem{static_cast<char*>(memory)};
  return ncclSuccess;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t window) {
  count("windows", -1);
  delete window;
  return ncclSuccess;
}
ncclResult_t ncclWinGetUserPtr(ncclComm_t, ncclWindow_t window, void** memory) {
  *memory = window->memory;
  return ncclSuccess;
}
ncclResult_t ncclPutSignal(const void*, std::size_t, ncclDataType_t, int, ncclWindow_t, std::size_t,
                           int, int, unsigned, ncclComm_t, cudaStream_t) {
  count("puts");
  return ncclSuccess;
}
ncclResult_t ncclSignal(int, int, int, unsigned, ncclComm_t, cudaStream_t) {
  count("signals");
  return ncclSuccess;
}
ncclResult_t ncclWaitSignal(int n, ncclWaitSignalDesc_t* waits, ncclComm_t, cudaStream_t) {
  for (int i = 0; i < n; ++i) count("waits", waits[i].opCnt);
  return ncclSuccess;
}
ncclResult_t ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t* properties) {
  properties->deviceApiSupport = true;
  properties->nRanks = comm->ranks;
  return ncclSuccess;
}
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void* wants, void* made) {
  if (wants == nullptr) return ncclInvalidArgument;
  if (*static_cast<const int*>(wants) == collective) comm->rendezvous->all.arrive_and_wait();
  *static_cast<int*>(made) = 100 + comm->rank;
  return ncclSuccess;
}
ncclResult_t ncclDevCommDestroy(ncclComm_t, const void*) {
  count("device communicators ended");
  return ncclSuccess;
}
ncclTeam_t ncclTeamLsa(ncclComm_t comm) {
  return {comm->ranks, comm->rank, 17};
}
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, std::size_t offset, int rank, void** at) {
  *at = window->memory + offset + rank;
  return ncclSuccess;
}
}
#pragma GCC visibility pop
