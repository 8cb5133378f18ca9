#pragma once

#include <cstdint>

#include "plug_in/logger.hpp"
#include "transport/collnet/abi.hpp"

namespace software_collnet {

/// Tables of a plug-in in older versions of NCCL's CollNet interface, made from that of version 12.
template <const ccl::detail::collnet::PlugInV12& Of>
class OlderTables {
  using PropertiesV10 = ccl::detail::collnet::PropertiesV10;
  using PropertiesV11 = ccl::detail::collnet::PropertiesV11;
  using PropertiesV12 = ccl::detail::collnet::PropertiesV12;

  static int init_v10(ccl::detail::PlugInLogger log) {
    void* context = nullptr;
    return Of.init(&context, 0, log);
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

 public:
  static constexpr ccl::detail::collnet::PlugInV11 v11{
      Of.name, Of.init, Of.devices, properties_v11, Of.listen, Of.group, nullptr, Of.finalize,
  };
  static constexpr ccl::detail::collnet::PlugInV10 v10{
      Of.name, init_v10, Of.devices, properties_v10, listen_v10, Of.group, nullptr,
  };
};

}  // namespace software_collnet
