#pragma once

#include <ccl/types/word.hpp>

#include <cuda/std/type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <optional>
#include <string>
#include <string_view>

namespace ccl {

using float16 = __half;
using bfloat16 = __nv_bfloat16;
using float8_e4m3 = __nv_fp8_e4m3;
using float8_e5m2 = __nv_fp8_e5m2;

/// Element types that a program can select at run time. Each has a number and a name. A composition
/// accepts any trivially copyable type.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"  // they have the types' names, and need DataType:: before
enum class DataType : int {
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  float16,
  bfloat16,
  float32,
  float64,
  float8_e4m3,
  float8_e5m2
};
#pragma GCC diagnostic pop
inline constexpr int data_type_count = 14;

/// Type as a value; the argument that `with_type` passes.
template <class T>
struct TypeTag {
  using type = T;
};

/// Calls `f(TypeTag<T>{})` with the C++ type of `type` and returns its result. `type` must be one
/// of the enumerators.
template <class F>
constexpr decltype(auto) with_type(DataType type, F&& f) {
  switch (type) {
    case DataType::int8:
      return f(TypeTag<cuda::std::int8_t>{});
    case DataType::int16:
      return f(TypeTag<cuda::std::int16_t>{});
    case DataType::int32:
      return f(TypeTag<cuda::std::int32_t>{});
    case DataType::int64:
      return f(TypeTag<cuda::std::int64_t>{});
    case DataType::uint8:
      return f(TypeTag<cuda::std::uint8_t>{});
    case DataType::uint16:
      return f(TypeTag<cuda::std::uint16_t>{});
    case DataType::uint32:
      return f(TypeTag<cuda::std::uint32_t>{});
    case DataType::uint64:
      return f(TypeTag<cuda::std::uint64_t>{});
    case DataType::float16:
      return f(TypeTag<float16>{});
    case DataType::bfloat16:
      return f(TypeTag<bfloat16>{});
    case DataType::float32:
      return f(TypeTag<float>{});
    case DataType::float64:
      return f(TypeTag<double>{});
    case DataType::float8_e4m3:
      return f(TypeTag<float8_e4m3>{});
    case DataType::float8_e5m2:
      break;
  }
  return f(TypeTag<float8_e5m2>{});
}

/// Returns the bytes of one element.
constexpr Index size_of(DataType type) {
  return with_type(type, []<class T>(TypeTag<T>) { return Index{sizeof(T)}; });
}

namespace detail {
template <class T>
constexpr std::optional<DataType> find_data_type() {
  using cuda::std::is_same_v;
  if constexpr (cuda::std::is_integral_v<T> && !is_same_v<T, bool> && sizeof(T) <= 8) {
    // Integers are matched by size and sign, so that long, long long and char have a number too.
    constexpr int log2_size = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return DataType((cuda::std::is_signed_v<T> ? int(DataType::int8) : int(DataType::uint8)) +
                    log2_size);
  } else if constexpr (is_same_v<T, float16>) {
    return DataType::float16;
  } else if constexpr (is_same_v<T, bfloat16>) {
    return DataType::bfloat16;
  } else if constexpr (is_same_v<T, float>) {
    return DataType::float32;
  } else if constexpr (is_same_v<T, double>) {
    return DataType::float64;
  } else if constexpr (is_same_v<T, float8_e4m3>) {
    return DataType::float8_e4m3;
  } else if constexpr (is_same_v<T, float8_e5m2>) {
    return DataType::float8_e5m2;
  } else {
    return std::nullopt;
  }
}
}  // namespace detail

/// True if `T` has a `DataType`.
template <class T>
inline constexpr bool has_data_type = detail::find_data_type<T>().has_value();

/// `DataType` of a C++ type. Integers are matched by size and sign: `long long` is int64.
template <class T>
inline constexpr DataType data_type_of = [] {
  static_assert(has_data_type<T>,
                "ccl: this type has no DataType (it is none of int8..uint64, half, bfloat16, "
                "float, double, fp8); use it as the element type of a composition instead");
  return detail::find_data_type<T>().value_or(DataType::int8);
}();

/// Returns the name of `type` in nccl-tests: "float", "half", "f8e4m3", "int32", ...
constexpr std::string_view name(DataType type) {
  constexpr std::string_view names[data_type_count] = {
      "int8",   "int16", "int32",    "int64", "uint8",  "uint16", "uint32",
      "uint64", "half",  "bfloat16", "float", "double", "f8e4m3", "f8e5m2"};
  return names[int(type)];
}

/// Returns the type with this name, or nothing if there is none. Accepts the names of the
/// enumerators ("float32"), "fp8_e4m3" and "fp8_e5m2" too.
constexpr std::optional<DataType> parse_data_type(std::string_view text) {
  for (int i = 0; i < data_type_count; ++i) {
    if (name(DataType(i)) == text) return DataType(i);
  }
  if (text == "float16") return DataType::float16;
  if (text == "float32") return DataType::float32;
  if (text == "float64") return DataType::float64;
  if (text == "float8_e4m3" || text == "fp8_e4m3") return DataType::float8_e4m3;
  if (text == "float8_e5m2" || text == "fp8_e5m2") return DataType::float8_e5m2;
  return std::nullopt;
}

/// Returns all names as one list for messages: "int8, int16, ...".
inline std::string data_type_names() {
  std::string all;
  for (int i = 0; i < data_type_count; ++i) {
    if (i != 0) all += ", ";
    all += name(DataType(i));
  }
  return all;
}

}  // namespace ccl
