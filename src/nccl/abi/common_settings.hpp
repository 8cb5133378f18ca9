#pragma once

#include <ccl/comm/communicator.hpp>

namespace ccl::detail::nccl {

/// Settings that decide what runs, equal on all ranks of a communicator.
struct CommonSettings {
  bool one_order = false;    // CCL_DETERMINISTIC
  bool zero_blocks = false;  // the policy of all ranks: see `ZeroCopies`
  bool fallback = false;     // all ranks have loaded the NCCL that CCL_NCCL_FALLBACK names
};

/// Compares the settings of all ranks. `own.fallback`: this rank has loaded the real NCCL. Where
/// only some ranks have, none uses it, and the log says so; as with `zero_blocks`. Collective.
/// Fails with `Errc::mismatch` on all ranks if CCL_DETERMINISTIC differs between them, because they
/// would run different compositions. `own.one_order` is not looked at.
Result<CommonSettings> common_settings(const Communicator& comm, const CommonSettings& own);

}  // namespace ccl::detail::nccl
