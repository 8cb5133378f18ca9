// Frame of a block of docs/reference/compatibility.md: the version's own header and no other.
#include <ccl/version.hpp>

// BLOCK
