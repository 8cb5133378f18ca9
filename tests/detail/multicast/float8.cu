// Loads of NVLink multicast that reduce 8-bit floats, which code for sm_100a and sm_100f has.
// Compiled, never run. Nothing of ccl uses them: `SwitchOp` has what code for every GPU from sm_90
// on has.
#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

using ccl::Packet;
using ccl::Word;

#define CCL_TEST_KERNEL(name, instruction)                                                       \
  __global__ void name(Word at, Packet* to) {                                                    \
    unsigned a, b, c, d;                                                                         \
    asm volatile("multimem.ld_reduce.relaxed.sys.global." instruction " {%0, %1, %2, %3}, [%4];" \
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)                                            \
                 : "l"(at)                                                                       \
                 : "memory");                                                                    \
    *to = {{a | Word{b} << 32, c | Word{d} << 32}};                                              \
  }

CCL_TEST_KERNEL(add_e4m3_in_halves, "add.acc::f16.v4.e4m3x4")
CCL_TEST_KERNEL(add_e5m2_in_halves, "add.acc::f16.v4.e5m2x4")
CCL_TEST_KERNEL(add_e4m3, "add.v4.e4m3x4")
CCL_TEST_KERNEL(add_e5m2, "add.v4.e5m2x4")
CCL_TEST_KERNEL(min_e4m3, "min.v4.e4m3x4")
CCL_TEST_KERNEL(min_e5m2, "min.v4.e5m2x4")
CCL_TEST_KERNEL(max_e4m3, "max.v4.e4m3x4")
CCL_TEST_KERNEL(max_e5m2, "max.v4.e5m2x4")
