#pragma once

#include <cstddef>
#include <cstdint>

#include "plug_in/logger.hpp"

// Interfaces of NCCL's network plug-ins, versions 9 to 12, as its programs define them: order and
// types of all members are those of NCCL 2.32 (src/include/plugin/net of its sources).
namespace ccl::detail::net_abi {

constexpr std::size_t handle_bytes = 128;  // of what a receiver tells a sender
constexpr int max_requests = 32;           // under way on a connection

/// Results of all functions.
enum Result : int {
  success,
  cuda_error,
  system_error,
  internal_error,
  invalid_argument,
  invalid_usage,
  remote_error,
  in_progress
};

/// Kinds of memory: `regMr` takes one of the first two, and a device lists those that it takes.
enum Memory : int { host_memory = 1, gpu_memory = 2, dma_buf = 4 };

/// Processor that moves the bytes of a device.
enum Driver : int { driven_by_host };

/// Reports an event of the plug-in below one of the caller's.
using ProfilerCallback = Result (*)(void** event, int type, void* parent, std::int64_t plug_in,
                                    void* data);

struct CommConfig {
  int traffic_class = -1;  // -1: the plug-in's choice
};

template <int Most>
struct VirtualDevice {
  int count;
  int devices[Most];
};

/// Properties of a device. `More` is what the version adds.
template <int MostDevices, class More>
struct Properties {
  char* name;      // "mlx5_0"
  char* pci_path;  // below /sys
  std::uint64_t card;
  int memory;         // kinds, as bits
  int global_memory;  // 1: a registration serves all connections
  int flushes;        // 1: received data must be flushed
  int mbps;
  int port;
  float latency_us;
  int max_connections;
  int max_grouped_receives;
  int driver;
  int driver_version;
  VirtualDevice<MostDevices> parts;
  std::size_t max_bytes;  // of a message
  std::size_t max_collective_bytes;
  [[no_unique_address]] More more;
};
struct NoMore {};
struct MoreV11 {
  int max_requests_at_once;
};
struct MoreV12 {
  int max_requests_at_once;
  std::int16_t rail, plane;
};
using PropertiesV9 = Properties<4, NoMore>;
using PropertiesV10 = PropertiesV9;
using PropertiesV11 = Properties<4, MoreV11>;
using PropertiesV12 = Properties<8, MoreV12>;
static_assert(sizeof(PropertiesV9) == 104 && offsetof(PropertiesV9, max_bytes) == 88);
static_assert(sizeof(PropertiesV11) == 112 && offsetof(PropertiesV11, more) == 104);
static_assert(sizeof(PropertiesV12) == 128 && offsetof(PropertiesV12, max_bytes) == 104);

// Functions that all versions have in common, in their order.

struct Devices {
  Result (*count)(int* devices);
};
template <class Properties>
struct DeviceProperties {
  Result (*get)(int device, Properties* properties);
};
struct Registration {
  Result (*reg)(void* comm, void* at, std::size_t bytes, int kind, void** handle);
  Result (*reg_dma_buf)(void* comm, void* at, std::size_t bytes, int kind, std::uint64_t offset,
                        int fd, void** handle);
  Result (*dereg)(void* comm, void* handle);
};
/// Version 9 has no events of the caller.
struct TransferV9 {
  Result (*isend)(void* comm, void* at, std::size_t bytes, int tag, void* handle, void** request);
  Result (*irecv)(void* comm, int count, void** at, std::size_t* bytes, int* tags, void** handles,
                  void** request);
};
struct Transfer {
  Result (*isend)(void* comm, void* at, std::size_t bytes, int tag, void* handle, void* event,
                  void** request);
  Result (*irecv)(void* comm, int count, void** at, std::size_t* bytes, int* tags, void** handles,
                  void** events, void** request);
};
struct Completion {
  Result (*iflush)(void* comm, int count, void** at, int* bytes, void** handles, void** request);
  Result (*test)(void* request, int* done, int* bytes);
  Result (*close_send)(void* comm);
  Result (*close_recv)(void* comm);
  Result (*close_listen)(void* listener);
};
/// Functions that ccl does not call.
struct Unused {
  void* device_registration;
  void* receive_consumed;
  void* make_virtual_device;
};

/// Version 9: the process initializes the plug-in once.
struct InterfaceV9 {
  const char* name;
  Result (*init)(PlugInLogger log);
  Devices devices;
  DeviceProperties<PropertiesV9> properties;
  Result (*listen)(int device, void* handle, void** listener);
  Result (*connect)(int device, void* handle, void** comm, void** on_device);
  Result (*accept)(void* listener, void** comm, void** on_device);
  Registration registration;
  TransferV9 transfer;
  Completion completion;
  Unused unused;
};
/// Version 10: connections have a configuration.
struct InterfaceV10 {
  const char* name;
  Result (*init)(PlugInLogger log, ProfilerCallback profiler);
  Devices devices;
  DeviceProperties<PropertiesV10> properties;
  Result (*listen)(int device, void* handle, void** listener);
  Result (*connect)(int device, CommConfig* config, void* handle, void** comm, void** on_device);
  Result (*accept)(void* listener, void** comm, void** on_device);
  Registration registration;
  Transfer transfer;
  Completion completion;
  Unused unused;
};
/// Versions 11 and 12: each communicator initializes the plug-in.
template <class Properties>
struct InterfaceV11 {
  const char* name;
  Result (*init)(void** context, std::uint64_t communicator, CommConfig* config, PlugInLogger log,
                 ProfilerCallback profiler);
  Devices devices;
  DeviceProperties<Properties> properties;
  Result (*listen)(void* context, int device, void* handle, void** listener);
  Result (*connect)(void* context, int device, void* handle, void** comm, void** on_device);
  Result (*accept)(void* listener, void** comm, void** on_device);
  Registration registration;
  Transfer transfer;
  Completion completion;
  Unused unused;
  Result (*finalize)(void* context);
  void* set_attributes;
};
static_assert(sizeof(InterfaceV9) == 20 * sizeof(void*));
static_assert(sizeof(InterfaceV10) == 20 * sizeof(void*));
static_assert(sizeof(InterfaceV11<PropertiesV12>) == 22 * sizeof(void*));

}  // namespace ccl::detail::net_abi
