#pragma once

#include <ccl/types/result.hpp>

namespace ccl::detail {

/// Why a rank has no RDMA port to use. Travels in PeerInfo.
enum class IbAbsence : int {
  none,        // it has one
  not_built,   // rdma-core's headers were not there
  no_library,  // no libibverbs, or too old a one
  no_device,   // no RDMA device
  not_chosen,  // CCL_IB_HCA leaves out all that could be used
  not_active,  // no port is up
  no_gid,      // no address that the settings allow
  disabled     // CCL_IB_DISABLE
};

struct IbPresence {
  int kinds = 0;  // of active ports: 1 InfiniBand, 2 RoCE
  IbAbsence absence = IbAbsence::none;
};

/// Of this process. An error only for settings that do not fit.
Result<IbPresence> ib_presence();

}  // namespace ccl::detail
