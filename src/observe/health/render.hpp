#pragma once

#include <string>

#include "observe/health/session.hpp"
#include "observe/health/snapshot.hpp"

namespace ccl::detail::health {

/// Answer to `STATUS` in JSON: the keys of NCCL, and ccl's own.
std::string status_json(const Snapshot& snapshot);
/// Answer to `STATUS` in the layout of NCCL's text. `verbose` lists every rank.
std::string status_text(const Snapshot& snapshot, bool verbose);
/// Answer to `DIAGNOSTICS`: one line for each communicator, and one for each rank that has failed.
std::string diagnostics_text(const Snapshot& snapshot);

/// "2026-11-26 14:02:11", local time.
std::string local_time(Word ns);

}  // namespace ccl::detail::health
