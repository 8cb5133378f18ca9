#pragma once

#include <cstddef>

#include "verify.hpp"

/// Another library that runs the same collectives on the same ranks: MPI, or nothing, as linked.
namespace ccl::perf::rival {

/// nullptr: this program has none.
const char* name();
/// Joins the ranks that the launcher started. Ends the program if that fails.
void start(int* argc, char*** argv);
void stop();
int rank();
int ranks();
/// The first rank's bytes, to everyone.
void share(void* data, std::size_t bytes);
void barrier();
/// Which version, in words.
std::string version();
bool runs(const Shape& shape, DataType type, RedOp redop, bool in_place);
void run(const Shape& shape, const Call& call);

}  // namespace ccl::perf::rival
