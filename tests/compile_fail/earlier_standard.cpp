// expect: ccl: this is C++20; compile with -std=c++20 or later, or link ccl::runtime by CMake
// without precompiled headers
// with -std=c++17
#include <ccl/ccl.hpp>
