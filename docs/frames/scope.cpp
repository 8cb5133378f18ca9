// Frame of the pages' code blocks that stand at namespace scope. See CONTRIBUTING.md.
#include <ccl/ccl.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

// BLOCK
