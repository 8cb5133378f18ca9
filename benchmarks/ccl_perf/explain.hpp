#pragma once

#include "compositions.hpp"
#include "explained.hpp"
#include "sideband.hpp"

namespace ccl::perf {

/// Times calls of `call`, each begun by all ranks together, by the phases that its lanes note
/// (CCL_TRACE_PHASES). Each part is the mean over the ranks of its median. Collective. Fails with
/// `Errc::not_supported` if the lanes of `choice` note none.
Result<Explained> explain(const Communicator& comm, const Options& options,
                          const Sideband& sideband, Compositions& compositions,
                          const Choice& choice, const Call& call, Index bytes);

}  // namespace ccl::perf
