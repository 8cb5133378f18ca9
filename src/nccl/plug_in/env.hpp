#pragma once

namespace ccl::detail::nccl {

/// Loads the env plug-in of NCCL_ENV_PLUGIN, once: it gives the values of all variables that begin
/// with NCCL_ from then on. Without it, or if it refuses, the environment gives them.
void load_env_plug_in();

}  // namespace ccl::detail::nccl
