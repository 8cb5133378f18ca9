#pragma once

#include <ccl/comm/communicator.hpp>

namespace ccl::detail::nccl {

/// Settings that decide what runs, equal on all ranks of a communicator.
struct CommonSettings {
  bool one_order = false;  // CCL_DETERMINISTIC
  bool fallback = false;   // all ranks have loaded the NCCL that CCL_NCCL_FALLBACK names
};

/// Compares the settings of all ranks. `has_fallback`: this rank has loaded the real NCCL. Where
/// only some ranks have, none uses it, and the log says so. Collective. Fails with `Errc::mismatch`
/// on all ranks if CCL_DETERMINISTIC differs between them, because they would run different
/// compositions.
Result<CommonSettings> common_settings(const Communicator& comm, bool has_fallback);

}  // namespace ccl::detail::nccl
