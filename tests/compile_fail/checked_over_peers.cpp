// expect: ccl: Checked takes algorithms over wires that run collectives, such as Ring and Tree
#include <ccl/algo/one_shot.hpp>
#include <ccl/checked.hpp>

static_assert(sizeof(ccl::Checked<ccl::OneShot>) > 0);
