#pragma once

// collective.cuh, and kernels with the instructions of NVLink multicast for the compositions over
// `NvlsTransport` that a translation unit instantiates. They have not run on hardware. Without this
// header such a call on GPUs is `Errc::no_device_code`. It must come before other headers of ccl.

#include <ccl/algo/nvls.hpp>
#include <ccl/collective.cuh>
#include <ccl/detail/multicast/switch_kernels.cuh>
#include <ccl/transport/nvls.hpp>
