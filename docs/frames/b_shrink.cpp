// Frame of a function of docs/guide/embedding.md, which needs more than a communicator.
#include <ccl/ccl.hpp>

#include <set>
#include <utility>
#include <vector>

// BLOCK
