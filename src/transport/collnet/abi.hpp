#pragma once

#include <cstddef>
#include <cstdint>

#include "plug_in/logger.hpp"

// Interface of NCCL's plug-ins for networks that reduce: order and types of all members are those
// of NCCL 2.32.3 (src/include/plugin/net of its sources). Functions return an `ncclResult_t`.
namespace ccl::detail::collnet {

constexpr std::size_t handle_bytes = 128;                // NCCL_NET_HANDLE_MAXSIZE
constexpr std::size_t max_bytes = std::size_t{1} << 40;  // NCCL_MAX_NET_SIZE_BYTES

/// Kinds of memory that a network accesses, as bits.
enum MemoryKind : int { host_memory = 1, gpu_memory = 2, dma_buf = 4 };

/// Devices that act as one.
template <int Most>
struct MergedDevices {
  int count;
  int devices[Most];
};

/// Device of a network, in version 8, which has no limit of bytes.
struct PropertiesV8 {
  char* name;
  char* pci_path;  // in /sys; may be null
  std::uint64_t guid;
  int memory_kinds;
  int registers_for_all;  // memory is registered for all groups at once
  int speed;              // Mbit/s
  int port;
  float latency;
  int max_groups;
  int max_recvs;
  int offload_type, offload_version;
};
/// Bytes of one operation, at most, in version 8, as NCCL takes them to be.
constexpr std::size_t max_bytes_v8 = std::size_t{512} << 20;

/// Device of a network, in versions 9 and 10.
struct PropertiesV10 {
  char* name;
  char* pci_path;  // in /sys; may be null
  std::uint64_t guid;
  int memory_kinds;
  int registers_for_all;  // memory is registered for all groups at once
  int force_flush;
  int speed;  // Mbit/s
  int port;
  float latency;
  int max_groups;
  int max_recvs;
  int offload_type, offload_version;
  MergedDevices<4> merged;
  std::size_t max_message_bytes, max_reduced_bytes;
};
struct PropertiesV11 {
  PropertiesV10 of_v10;
  int max_requests_at_once;
};
struct PropertiesV12 {
  char* name;
  char* pci_path;
  std::uint64_t guid;
  int memory_kinds;
  int registers_for_all;
  int force_flush;
  int speed;
  int port;
  float latency;
  int max_groups;
  int max_recvs;
  int offload_type, offload_version;
  MergedDevices<8> merged;
  std::size_t max_message_bytes, max_reduced_bytes;
  int max_requests_at_once;
  std::int16_t rail, plane;
};
static_assert(offsetof(PropertiesV8, speed) == 32 && sizeof(PropertiesV8) == 64);
static_assert(offsetof(PropertiesV10, max_reduced_bytes) == 96 && sizeof(PropertiesV10) == 104);
static_assert(offsetof(PropertiesV11, max_requests_at_once) == 104 && sizeof(PropertiesV11) == 112);
static_assert(offsetof(PropertiesV12, max_reduced_bytes) == 112 && sizeof(PropertiesV12) == 128);

/// Returns the properties as version 10 has them.
constexpr PropertiesV10 in_v10(const PropertiesV8& of, int device) {
  PropertiesV10 all{};
  all.name = of.name;
  all.pci_path = of.pci_path;
  all.guid = of.guid;
  all.memory_kinds = of.memory_kinds;
  all.registers_for_all = of.registers_for_all;
  all.speed = of.speed;
  all.port = of.port;
  all.latency = of.latency;
  all.max_groups = of.max_groups;
  all.max_recvs = of.max_recvs;
  all.offload_type = of.offload_type;
  all.offload_version = of.offload_version;
  all.merged = {1, {device}};
  all.max_message_bytes = all.max_reduced_bytes = max_bytes_v8;
  return all;
}
/// Returns the properties as version 10 has them, which knows at most 4 merged devices.
constexpr PropertiesV10 in_v10(const PropertiesV12& of) {
  PropertiesV10 all{};
  all.name = of.name;
  all.pci_path = of.pci_path;
  all.guid = of.guid;
  all.memory_kinds = of.memory_kinds;
  all.registers_for_all = of.registers_for_all;
  all.force_flush = of.force_flush;
  all.speed = of.speed;
  all.port = of.port;
  all.latency = of.latency;
  all.max_groups = of.max_groups;
  all.max_recvs = of.max_recvs;
  all.offload_type = of.offload_type;
  all.offload_version = of.offload_version;
  for (int n = 0; n < 4; ++n) all.merged.devices[n] = of.merged.devices[n];
  all.merged.count = of.merged.count < 4 ? of.merged.count : 4;
  all.max_message_bytes = of.max_message_bytes;
  all.max_reduced_bytes = of.max_reduced_bytes;
  return all;
}

/// Piece of registered memory.
template <class Bytes>
struct MemoryPartOf {
  void* memory_handle;
  void* at;
  Bytes bytes;
};
using MemoryPart = MemoryPartOf<std::size_t>;
using MemoryPartV8 = MemoryPartOf<std::uint32_t>;

/// Functions between `devices` and the end, which all versions have in one order. `group` is a
/// communicator of the network: one rank of each host. Version 8 has other numbers.
///
/// An all-gather or reduce-scatter is about a window of `bytes` from `offset` on, of the data of
/// all ranks, one after the other, `bytes_each` of each. The parts are the whole window, and `send`
/// or `recv` is what lies in it of this rank's data. A null request: not now, call again.
template <class Count, class MemoryPart>
struct GroupFunctionsOf {
  int (*connect)(void* handles[], int ranks, int rank, void* listener, void** group);
  int (*supports)(int type, int op, int* supported);
  int (*register_memory)(void* group, void* at, std::size_t bytes, int kind, void** memory_handle);
  int (*register_dma_buf)(void* group, void* at, std::size_t bytes, int kind, std::uint64_t offset,
                          int fd, void** memory_handle);
  int (*deregister_memory)(void* group, void* memory_handle);
  int (*all_reduce)(void* group, void* send, void* recv, Count count, int type, int op,
                    void* send_handle, void* recv_handle, void** request);
  int (*all_gather)(void* group, void* send, int part_count, MemoryPart* recv,
                    std::size_t bytes_each, std::size_t offset, std::size_t bytes,
                    void* send_handle, void** request);
  int (*reduce_scatter)(void* group, int part_count, MemoryPart* send, void* recv,
                        std::size_t bytes_each, std::size_t offset, std::size_t bytes, int type,
                        int op, void* recv_handle, void** request);
  int (*flush)(void* group, void* at, int bytes, void* memory_handle, void** request);
  int (*test)(void* request, int* done, int* bytes);
  int (*close_group)(void* group);
  int (*close_listener)(void* listener);
};
using GroupFunctions = GroupFunctionsOf<std::size_t, MemoryPart>;
using GroupFunctionsV8 = GroupFunctionsOf<int, MemoryPartV8>;

/// Versions 11 and 12, which differ in the properties alone.
template <int Version, class Properties, class Merged>
struct PlugInTable {
  static constexpr int version = Version;
  const char* name;
  int (*init)(void** context, std::uint64_t communicator, PlugInLogger log);
  int (*devices)(int* count);
  int (*properties)(int device, Properties* properties);
  int (*listen)(void* context, int device, void* handle, void** listener);
  GroupFunctions group;
  int (*merge_devices)(int* device, Merged* merged);
  int (*finalize)(void* context);
};
using PlugInV12 = PlugInTable<12, PropertiesV12, MergedDevices<8>>;
using PlugInV11 = PlugInTable<11, PropertiesV11, MergedDevices<4>>;

/// Versions 8 to 10: one context for the process, which has no end.
template <class Properties>
struct ProcessWidePlugIn {
  const char* name;
  int (*init)(PlugInLogger log);
  int (*devices)(int* count);
  int (*properties)(int device, Properties* properties);
  int (*listen)(int device, void* handle, void** listener);
};
template <int Version>
struct PlugInTableV9 : ProcessWidePlugIn<PropertiesV10> {
  static constexpr int version = Version;
  GroupFunctions group;
  int (*merge_devices)(int* device, MergedDevices<4>* merged);
};
using PlugInV10 = PlugInTableV9<10>;
using PlugInV9 = PlugInTableV9<9>;
struct PlugInV8 : ProcessWidePlugIn<PropertiesV8> {
  static constexpr int version = 8;
  GroupFunctionsV8 group;
};
static_assert(sizeof(PlugInV12) == 19 * sizeof(void*) && sizeof(PlugInV10) == 18 * sizeof(void*) &&
              sizeof(PlugInV8) == 17 * sizeof(void*));

}  // namespace ccl::detail::collnet
