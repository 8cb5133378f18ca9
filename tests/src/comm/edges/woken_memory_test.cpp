#include "comm/edges/woken_memory.hpp"

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/error_matchers.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail;

namespace {
std::string wrong(Word handles, Word borrowed) {
  WokenMemory said;
  said.name.handles = handles;
  said.name.borrowed = borrowed;
  return wrong_woken_memory(said);
}
}  // namespace

TEST_CASE("memory that has pages again has a cuMem handle and is its owner's") {
  CHECK(wrong(1, 0).empty());
  CHECK(wrong(2, 0).empty());
  CHECK(mentions(wrong(0, 0), "kind of handle is 0, not from 1 to 2"));
  CHECK(mentions(wrong(3, 0), "kind of handle is 3"));
  CHECK(mentions(wrong(std::numeric_limits<Word>::max(), 0), "kind of handle is 18446744073709"));
  CHECK(mentions(wrong(1, 1), "owner is 1, not 0"));
}

TEST_CASE("a message is an array if its length is a multiple of an element's") {
  const std::vector<Word> sent{7, 8};
  const auto bytes = std::as_bytes(std::span{sent});
  std::string why;
  CHECK(read_array<Word>(bytes, why) == sent);
  CHECK(read_array<Word>({}, why) == std::vector<Word>{});
  CHECK(why.empty());
  CHECK_FALSE(read_array<Word>(bytes.first(9), why));
  CHECK(why == "length of a description of memory is 9, no multiple of 8");
}
