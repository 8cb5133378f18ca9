// expect: ccl: this type has no DataType
#include <ccl/element/data_type.hpp>

struct Complex {
  float re, im;
};
constexpr auto type = ccl::data_type_of<Complex>;
