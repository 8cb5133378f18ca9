#pragma once

#include <nanobind/nanobind.h>

namespace ccl::python {

/// Adds calls of ccl's libnccl.so.2 to the module, and the order of their CUDA streams: `launch`
/// for a collective, `ask` for a function of a communicator that returns at once, `SideStream`,
/// `Mark`.
void bind_gpu_calls(nanobind::module_& m);

}  // namespace ccl::python
