// Frame of the pages' code blocks that create a composition of an algorithm `Algo`. See
// CONTRIBUTING.md.
#include <ccl/ccl.hpp>

using Algo = ccl::Ring;

inline ccl::Result<void> page() {
// BLOCK
  return {};
}
