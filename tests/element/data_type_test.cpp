#include <ccl/element/data_type.hpp>

#include "support/catch.hpp"

using namespace ccl;

TEST_CASE("every data type has a size, a C++ type and a name that parses back") {
  const Index sizes[] = {1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 1, 1};
  const char* names[] = {"int8",   "int16", "int32",    "int64", "uint8",  "uint16", "uint32",
                         "uint64", "half",  "bfloat16", "float", "double", "f8e4m3", "f8e5m2"};
  for (int i = 0; i < data_type_count; ++i) {
    const auto type = DataType(i);
    CHECK(size_of(type) == sizes[i]);
    CHECK(name(type) == names[i]);
    CHECK(parse_data_type(names[i]) == type);
    CHECK(with_type(type, []<class T>(TypeTag<T>) { return data_type_of<T>; }) == type);
  }
}

TEST_CASE("other spellings of a type are known, unknown ones are not") {
  CHECK(parse_data_type("float32") == DataType::float32);
  CHECK(parse_data_type("float16") == DataType::float16);
  CHECK(parse_data_type("float64") == DataType::float64);
  CHECK(parse_data_type("fp8_e4m3") == DataType::float8_e4m3);
  CHECK(parse_data_type("float8_e5m2") == DataType::float8_e5m2);
  CHECK_FALSE(parse_data_type("floaty"));
  CHECK_FALSE(parse_data_type(""));
  CHECK(data_type_names().find("int8, int16") == 0);
}

TEST_CASE("integers count by size and sign") {
  STATIC_REQUIRE(data_type_of<long> == DataType::int64);
  STATIC_REQUIRE(data_type_of<long long> == DataType::int64);
  STATIC_REQUIRE(data_type_of<unsigned char> == DataType::uint8);
  struct Pair {
    int a, b;
  };
  STATIC_REQUIRE_FALSE(has_data_type<Pair>);
  STATIC_REQUIRE_FALSE(has_data_type<bool>);
  STATIC_REQUIRE(has_data_type<float8_e4m3>);
}
