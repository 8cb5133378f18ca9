#pragma once

// collective.hpp, the protocols, and the kernels of the collectives that a translation unit
// instantiates. <ccl/ccl.cuh> adds groups, pipelines and fused collectives.

#include <ccl/collective.hpp>
#include <ccl/detail/copy/kernels.cuh>
#include <ccl/detail/exchange/kernels.cuh>
#include <ccl/detail/exec/register_device_code.cuh>
#include <ccl/detail/multicast/kernels.cuh>
#include <ccl/detail/peer/direct_kernels.cuh>
#include <ccl/detail/peer/kernels.cuh>
#include <ccl/detail/wire/kernels.cuh>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/sentinel.hpp>
#include <ccl/proto/simple.hpp>
