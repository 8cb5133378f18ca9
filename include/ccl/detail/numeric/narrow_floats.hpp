#pragma once

#include <ccl/element/data_type.hpp>

namespace ccl::detail {

/// Types whose runs are converted to float and back with the best instructions of this CPU.
template <class T>
inline constexpr bool is_narrow_float =
    cuda::std::is_same_v<T, float16> || cuda::std::is_same_v<T, bfloat16> ||
    cuda::std::is_same_v<T, float8_e4m3> || cuda::std::is_same_v<T, float8_e5m2>;

/// Converts `count` elements of `T`, a narrow float, at any address, exactly.
template <class T>
void widen_run(const void* from, float* to, Index count);

/// Rounds each element as `Element<T>::narrow`: to nearest, ties to even, NaN to NaN.
template <class T>
void narrow_run(const float* from, void* to, Index count);

extern template void widen_run<float16>(const void*, float*, Index);
extern template void widen_run<bfloat16>(const void*, float*, Index);
extern template void widen_run<float8_e4m3>(const void*, float*, Index);
extern template void widen_run<float8_e5m2>(const void*, float*, Index);
extern template void narrow_run<float16>(const float*, void*, Index);
extern template void narrow_run<bfloat16>(const float*, void*, Index);
extern template void narrow_run<float8_e4m3>(const float*, void*, Index);
extern template void narrow_run<float8_e5m2>(const float*, void*, Index);

}  // namespace ccl::detail
