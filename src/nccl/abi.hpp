#pragma once

// This library exports the functions of NCCL's own header; all others are hidden.
#pragma GCC visibility push(default)
#include <nccl.h>
extern "C" {
// Missing in some headers of 2.28.
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags);
// Declared in nccl_device.h; PyTorch is linked with them.
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void* wants, void* made);
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const void* made);
}
#pragma GCC visibility pop
