#include "base/io/mapping.hpp"

#include <cstdlib>

#include "support/catch.hpp"
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace ccl::detail;

TEST_CASE("only memory of the agreed size that none can shorten is taken from another process") {
  CHECK(keeps_size(shareable_memory("a test", 4096).value(), 4096));
  CHECK_FALSE(keeps_size(shareable_memory("a test", 4096).value(), 4095));
  CHECK_FALSE(keeps_size(shareable_memory("a test", 4096).value(), 8192));
  // Its owner can shorten it while others have it mapped.
  const Fd unsealed{::memfd_create("a test", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  REQUIRE(::ftruncate(unsealed.get(), 4096) == 0);
  CHECK_FALSE(keeps_size(unsealed, 4096));
  REQUIRE(::fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  CHECK(keeps_size(unsealed, 4096));
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const Fd in{ends[0]}, out{ends[1]};
  CHECK_FALSE(keeps_size(in, 0));
  CHECK_FALSE(keeps_size(Fd{}, 4096));
}
