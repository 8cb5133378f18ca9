#pragma once

#include <cstddef>

#include "verify.hpp"

/// Another library that runs the same collectives on the same ranks: MPI or none, as linked.
namespace ccl::perf::rival {

/// Returns the name of the library, or nullptr if there is none.
const char* name();
/// Joins the ranks that the launcher started. Ends the program if that fails.
void start(int* argc, char*** argv);
void stop();
int rank();
int ranks();
/// Broadcasts the first rank's bytes.
void share(void* data, std::size_t bytes);
void barrier();
/// Returns the version as text.
std::string version();
bool runs(const Shape& shape, DataType type, RedOp redop, bool in_place);
void run(const Shape& shape, const Call& call);

}  // namespace ccl::perf::rival
