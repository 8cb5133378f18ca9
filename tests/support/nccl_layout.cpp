// Compiled against NVIDIA's header, if there is one.
#include "support/nccl_layout.hpp"

#include <nccl.h>

ccl::test::NcclLayout ccl::test::nvidias_nccl_layout() {
  NcclLayout all;
  CCL_NCCL_LAYOUT_2_28()
#if NCCL_VERSION_CODE >= 23203
  CCL_NCCL_LAYOUT_2_32()
#endif
  return all;
}
