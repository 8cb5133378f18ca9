// expect: ccl: Traced takes algorithms whose lanes run collectives, such as Ring, Tree, OneShot, TwoShot and Direct
#include <ccl/algo/copy_engine.hpp>
#include <ccl/traced.hpp>

static_assert(sizeof(ccl::Traced<ccl::CopyEngine>) > 0);
