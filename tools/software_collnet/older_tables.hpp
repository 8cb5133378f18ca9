#pragma once

#include <cstdint>

#include "plug_in/logger.hpp"
#include "transport/collnet/abi.hpp"

namespace software_collnet {

/// Tables of a plug-in in older versions of NCCL's CollNet interface, made from that of version 12.
template <const ccl::detail::collnet::PlugInV12& Of>
class OlderTables {
  using PropertiesV8 = ccl::detail::collnet::PropertiesV8;
  using MemoryPart = ccl::detail::collnet::MemoryPart;
  using MemoryPartV8 = ccl::detail::collnet::MemoryPartV8;
  using PropertiesV10 = ccl::detail::collnet::PropertiesV10;
  using PropertiesV11 = ccl::detail::collnet::PropertiesV11;
  using PropertiesV12 = ccl::detail::collnet::PropertiesV12;

  static int init_v10(ccl::detail::PlugInLogger log) {
    void* context = nullptr;
    return Of.init(&context, 0, log);
  }
  static int properties_v8(int device, PropertiesV8* all) {
    PropertiesV12 found{};
    const int code = Of.properties(device, &found);
    *all = {found.name,         found.pci_path,          found.guid,
            found.memory_kinds, found.registers_for_all, found.speed,
            found.port,         found.latency,           found.max_groups,
            found.max_recvs,    found.offload_type,      found.offload_version};
    return code;
  }
  static int properties_v10(int device, PropertiesV10* all) {
    PropertiesV12 found{};
    const int code = Of.properties(device, &found);
    *all = in_v10(found);
    return code;
  }
  static int properties_v11(int device, PropertiesV11* all) {
    PropertiesV12 found{};
    const int code = Of.properties(device, &found);
    *all = {in_v10(found), found.max_requests_at_once};
    return code;
  }
  static int listen_v10(int device, void* handle, void** listener) {
    return Of.listen(nullptr, device, handle, listener);
  }
  static int all_reduce_v8(void* group, void* send, void* recv, int count, int type, int op,
                           void* send_handle, void* recv_handle, void** request) {
    return Of.group.all_reduce(group, send, recv, std::size_t(count), type, op, send_handle,
                               recv_handle, request);
  }
  static int all_gather_v8(void* group, void* send, int part_count, MemoryPartV8* recv,
                           std::size_t each, std::size_t offset, std::size_t bytes,
                           void* send_handle, void** request) {
    MemoryPart all{recv->memory_handle, recv->at, recv->bytes};
    return Of.group.all_gather(group, send, part_count, &all, each, offset, bytes, send_handle,
                               request);
  }
  static int reduce_scatter_v8(void* group, int part_count, MemoryPartV8* send, void* recv,
                               std::size_t each, std::size_t offset, std::size_t bytes, int type,
                               int op, void* recv_handle, void** request) {
    MemoryPart all{send->memory_handle, send->at, send->bytes};
    return Of.group.reduce_scatter(group, part_count, &all, recv, each, offset, bytes, type, op,
                                   recv_handle, request);
  }

 public:
  static constexpr ccl::detail::collnet::PlugInV11 v11{
      Of.name, Of.init, Of.devices, properties_v11, Of.listen, Of.group, nullptr, Of.finalize,
  };
  static constexpr ccl::detail::collnet::PlugInV10 v10{
      {Of.name, init_v10, Of.devices, properties_v10, listen_v10}, Of.group, nullptr};
  static constexpr ccl::detail::collnet::PlugInV9 v9{
      {Of.name, init_v10, Of.devices, properties_v10, listen_v10}, Of.group, nullptr};
  static constexpr ccl::detail::collnet::PlugInV8 v8{
      {Of.name, init_v10, Of.devices, properties_v8, listen_v10},
      {Of.group.connect, Of.group.supports, Of.group.register_memory, Of.group.register_dma_buf,
       Of.group.deregister_memory, all_reduce_v8, all_gather_v8, reduce_scatter_v8, Of.group.flush,
       Of.group.test, Of.group.close_group, Of.group.close_listener}};
};

}  // namespace software_collnet
