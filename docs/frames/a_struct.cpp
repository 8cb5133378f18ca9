// Frame of the pages' code blocks that are members of a struct. See CONTRIBUTING.md.
#include <ccl/ccl.hpp>

#include <type_traits>

struct Page {
// BLOCK
};
