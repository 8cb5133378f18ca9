// Compiled against NVIDIA's header of the device interface, if there is one.
#include "support/nccl_device_layout.hpp"

#include <nccl.h>
#include <nccl_device.h>

ccl::test::NcclDeviceLayout ccl::test::nvidias_nccl_device_layout() {
  return {NCCL_VERSION_CODE, layout_of_dev_comm<ncclDevComm>(),
          layout_of_window<ncclWindow_vidmem>(), layout_of_table<ncclDevCommWindowTable>(),
          layout_of_wants<ncclDevCommRequirements>()};
}
