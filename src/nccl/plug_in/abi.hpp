#pragma once

#include <cstddef>
#include <cstdint>

#include "nccl/abi/abi.hpp"
#include "plug_in/logger.hpp"
#include <sys/types.h>

// Interfaces of NCCL's plug-ins, as its programs define them: order and types of all members are
// those of NCCL 2.32 (src/include/plugin of its sources).
namespace ccl::detail::nccl {

/// Kinds of a profiler's events, as bits of its mask.
enum EventKind : std::uint64_t {
  event_group = 1u << 0,
  event_coll = 1u << 1,
  event_p2p = 1u << 2,
  event_proxy_op = 1u << 3,
  event_proxy_step = 1u << 4,
  event_proxy_ctrl = 1u << 5,
  event_kernel_ch = 1u << 6,
  event_net = 1u << 7,
  event_group_api = 1u << 8,
  event_coll_api = 1u << 9,
  event_p2p_api = 1u << 10,
  event_kernel_launch = 1u << 11
};
/// States of an event that ccl reports.
enum EventState : int {
  state_send_wait = 9,
  state_recv_wait = 10,
  state_recv_flush_wait = 11,
  state_recv_gpu_wait = 12,
  state_proxy_idle = 13,
  state_proxy_active = 14,
  state_proxy_sleep = 15,
  state_proxy_wakeup = 16,
  state_proxy_append = 17,
  state_proxy_append_end = 18,
  state_proxy_op_in_progress = 19,
  state_send_peer_wait = 20,
  state_net_update = 21,
  state_kernel_ch_stop = 22,
  state_group_start_api_stop = 23,
  state_group_end_api_start = 24
};

/// Description of an event that begins. Versions 5 to 7 differ in the members at the end of each
/// part, which an older plug-in does not read.
struct EventDescription {
  std::uint64_t kind;
  void* parent;  // handle of another event, or null
  int rank;
  union {
    struct {
      bool captured;
      int depth;
    } group_api;
    struct {
      const char* func;
      std::size_t count;
      const char* type;
      int root;
      void* stream;
      bool captured;
      std::uint64_t tag;  // since version 7
    } coll_api;
    struct {
      const char* func;
      std::size_t count;
      const char* type;
      void* stream;
      bool captured;
      std::uint64_t tag;  // since version 7
    } p2p_api;
    struct {
      void* stream;
    } kernel_launch;
    struct {
      std::uint64_t number;  // of this function's calls on the communicator, from 0
      const char* func;
      const void* send;
      void* recv;
      std::size_t count;
      int root;
      const char* type;
      std::uint8_t channels;
      std::uint8_t warps;
      const char* algo;
      const char* proto;
      void* group;          // the group's event, for version 4
      const char* variant;  // this and the others: since version 7
      bool symmetric;
      std::uint64_t tag;
    } coll;
    struct {
      const char* func;
      void* buffer;
      const char* type;
      std::size_t count;
      int peer;
      std::uint8_t channels;
      void* group;
      std::uint64_t tag;  // since version 7
    } p2p;
    struct {
      pid_t pid;
      std::uint8_t channel;
      int peer;
      int steps;
      int chunk_bytes;
      int sends;
    } proxy_op;
    struct {
      int step;
    } proxy_step;
    struct {
      std::uint8_t channel;
      std::uint64_t timer;  // ns
    } kernel_ch;
    struct {
      std::int64_t id;  // kind and version of the network plug-in's data
      void* data;
    } net;
    // The largest part, of copy engines: ccl has no such events.
    struct {
      std::uint64_t words[14];
    } reserved;
  };
};
static_assert(offsetof(EventDescription, coll) == 24 && sizeof(EventDescription) == 136);

/// Further data of a state.
union EventStateArguments {
  std::size_t bytes;
  int proxy_ops;
  void* data;
  std::uint64_t timer;
};

/// Versions 5 to 7. All functions may fail without effect on the program.
struct ProfilerPlugIn {
  const char* name;
  ncclResult_t (*init)(void** context, std::uint64_t communicator, int* mask, const char* name,
                       int hosts, int ranks, int rank, PlugInLogger log);
  ncclResult_t (*start)(void* context, void** handle, EventDescription* what);
  ncclResult_t (*stop)(void* handle);
  ncclResult_t (*record)(void* handle, EventState state, EventStateArguments* more);
  ncclResult_t (*finalize)(void* context);
};

/// Functions whose algorithm a tuner may choose, by NCCL's numbers.
enum TunedFunction : int {
  tuned_broadcast,
  tuned_reduce,
  tuned_all_gather,
  tuned_reduce_scatter,
  tuned_all_reduce
};
constexpr int tuner_algorithms = 7, tuner_protocols = 3;
/// Times in us of algorithms and protocols, by NCCL's numbers: Tree 0, Ring 1; LL 0, LL128 1,
/// Simple
/// 2. Negative: it cannot run.
using TunerTable = float[tuner_algorithms][tuner_protocols];
struct NvlinkDomains {
  int count, min_ranks, max_ranks;
};
/// Constants of NCCL's cost model, which ccl does not have: zeros, as many as the newest version
/// has.
struct TunerConstants {
  double values[7 * 3 + 3 * 7 * 3 + 5 * 5 * 3];
};

/// Versions 5 to 7; a version from 6 on has another function at the end.
struct TunerPlugIn {
  const char* name;
  ncclResult_t (*init)(void** context, std::uint64_t communicator, std::size_t ranks,
                       std::size_t hosts, PlugInLogger log, NvlinkDomains* domains,
                       TunerConstants* constants);
  ncclResult_t (*choose)(void* context, TunedFunction function, std::size_t bytes, int calls,
                         float** table, int algorithms, int protocols, int registered,
                         int* channels);
  ncclResult_t (*finalize)(void* context);
};

/// Version 2; version 1 has no logger.
struct EnvPlugIn {
  const char* name;
  ncclResult_t (*init)(std::uint8_t major, std::uint8_t minor, std::uint8_t patch,
                       const char* suffix, PlugInLogger log);
  ncclResult_t (*finalize)();
  const char* (*get)(const char* variable);
};

}  // namespace ccl::detail::nccl
