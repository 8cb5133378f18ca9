// expect: ccl: Traced takes algorithms over wires that run collectives, such as Ring and Tree
#include <ccl/algo/one_shot.hpp>
#include <ccl/traced.hpp>

static_assert(sizeof(ccl::Traced<ccl::OneShot>) > 0);
