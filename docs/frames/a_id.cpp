// Frame of the pages' code blocks that stand where ranks exchange an id. See CONTRIBUTING.md.
#include <ccl/ccl.hpp>

inline ccl::Result<void> page(int rank, int ranks, ccl::UniqueId id) {
// BLOCK
  return {};
}
