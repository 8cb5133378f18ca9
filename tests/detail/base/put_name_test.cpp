#include <ccl/detail/base/put_name.hpp>

#include <string>

#include "support/catch.hpp"

using ccl::detail::put_name;

namespace {
std::string put(std::string_view name) {
  char field[24];
  for (char& c : field) c = 'x';
  put_name(field, name);
  return field;
}
}  // namespace

TEST_CASE("a name that fits is copied whole") {
  CHECK(put("").empty());
  CHECK(put("sum") == "sum");
  CHECK(put("a name of 23 characters") == "a name of 23 characters");
}

TEST_CASE("names that are too long and begin alike stay different") {
  const std::string begin(40, 'a');
  const std::string one = put(begin + "1"), other = put(begin + "2"), longer = put(begin + "11");
  CHECK(one.size() == 23);
  CHECK(one.substr(0, 15) == std::string(14, 'a') + "~");
  CHECK((one != other && one != longer && other != longer));
  CHECK(put(begin + "1") == one);
  CHECK(put("a name of 24 characters!").substr(0, 15) == "a name of 24 c~");
}

// At compile time, too: the hash of "a", repeated, is that of FNV-1a.
static_assert([] {
  char field[16] = {};
  put_name(field, "aaaaaaaaaaaaaaaa");
  return field[6] == '~' && field[15] == 0;
}());
