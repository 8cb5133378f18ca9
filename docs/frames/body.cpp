// Frame of the pages' code blocks that stand inside a function. See CONTRIBUTING.md.
#include <ccl/ccl.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

inline ccl::Result<void> page(ccl::Communicator comm, float* send, float* recv, ccl::Index count,
                              ccl::Stream stream) {
  {  // a scope of its own: a block may name its own communicator `comm`
// BLOCK
  }
  (void)comm, (void)send, (void)recv, (void)count, (void)stream;
  return {};
}
