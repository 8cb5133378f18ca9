#pragma once

#include <ccl/types/result.hpp>

#include <string>
#include <vector>

namespace ccl::detail {

/// Reason why a rank has no RDMA port. Travels in PeerInfo.
enum class IbAbsence : int {
  none,        // it has one
  not_built,   // rdma-core's headers were missing
  no_library,  // libibverbs is missing or too old
  no_device,   // no RDMA device
  not_chosen,  // CCL_IB_HCA excludes all usable ports
  not_active,  // no port is up
  no_gid,      // no address that the settings allow
  disabled     // CCL_IB_DISABLE
};

struct IbPresence {
  int kinds = 0;  // of active ports: 1 InfiniBand, 2 RoCE
  IbAbsence absence = IbAbsence::none;
};

/// RDMA ports of this process. Fails only if settings do not fit.
Result<IbPresence> ib_presence();

/// Active port that the settings allow.
struct IbPortName {
  std::string device;
  int number = 1;
  bool infiniband = false;  // else RoCE
};

/// Names the ports of `ib_presence`, in the order of their cards; none without an RDMA device.
Result<std::vector<IbPortName>> ib_port_names();

}  // namespace ccl::detail
