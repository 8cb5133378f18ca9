#pragma once

// What NCCL's own header declares is what this library exports; all else is hidden.
#pragma GCC visibility push(default)
#include <nccl.h>
extern "C" {
// Not in every 2.28's header.
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags);
// In nccl_device.h; PyTorch is linked with them.
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void* wants, void* made);
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const void* made);
}
#pragma GCC visibility pop
