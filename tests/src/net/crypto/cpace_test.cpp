#include "net/crypto/cpace.hpp"

#include "net/crypto/sodium.hpp"
#include "support/catch.hpp"
#include "support/hex.hpp"
#include "support/skip.hpp"

using namespace ccl::detail::net;
using namespace ccl::test;

namespace {

bool can_run() {
  if (has_sodium()) return true;
  skip(sodium_problem());
  return false;
}

// The vectors of draft-irtf-cfrg-cpace for ristretto255 and SHA-512.
const auto session = array_of_hex<16>("7e4b4791d6a8ef019b936c79fb7f2c57");
const auto scalar_a =
    array_of_hex<32>("da3d23700a9e5699258aef94dc060dfda5ebb61f02a5ea77fad53f4ff0976d08");
const auto scalar_b =
    array_of_hex<32>("d2316b454718c35362d83d69df6320f38578ed5984651435e2949762d900b80d");

Share vector_generator() {
  return cpace_generator(text_bytes("Password"),
                         from_hex("6f630b425f726573706f6e6465720b415f696e69746961746f72"), session);
}

}  // namespace

TEST_CASE("CPace gives the draft's generator, shares and key") {
  if (!can_run()) return;
  const Share generator = vector_generator();
  CHECK(to_hex(generator) == "a6fc82c3b8968fbb2e06fee81ca858586dea50d248f0c7ca6a18b0902a30b36b");
  const auto a = CpaceShare::make(generator, scalar_a);
  const auto b = CpaceShare::make(generator, scalar_b);
  CHECK(to_hex(a.share) == "d40fb265a7abeaee7939d91a585fe59f7053f982c296ec413c624c669308f87a");
  CHECK(to_hex(b.share) == "08bcf6e9777a9c313a3db6daa510f2d398403319c2341bd506a92e672eb7e307");
  const CpaceMessage first{a.share, text_bytes("ADa")}, second{b.share, text_bytes("ADb")};
  const auto of_a = cpace_key(a, b.share, session, first, second);
  const auto of_b = cpace_key(b, a.share, session, first, second);
  REQUIRE(of_a);
  REQUIRE(of_b);
  CHECK(to_hex(*of_a) ==
        "4c5469a16b2364c4b944ebc1a79e51d1674ad47db26e8718154f59faebfaa52d8346f30aa58377117eb20d527f"
        "2cbc5c76381f7fd372e89df8239f87f2e02ed1");
  CHECK(*of_a == *of_b);
}

TEST_CASE("CPace refuses the identity and what is no point") {
  if (!can_run()) return;
  const auto mine = CpaceShare::make(vector_generator());
  const char* const invalid[] = {
      "0000000000000000000000000000000000000000000000000000000000000000",  // the identity
      "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",  // not canonical
      "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",  // the field's prime
      "0100000000000000000000000000000000000000000000000000000000000000",  // negative
      "26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371"   // not square (RFC 9496)
  };
  for (const char* const text : invalid) {
    INFO(text);
    const auto theirs = array_of_hex<32>(text);
    CHECK_FALSE(cpace_key(mine, theirs, session, {mine.share, {}}, {theirs, {}}));
  }
}

TEST_CASE("another password, session, order or data gives another key") {
  if (!can_run()) return;
  const auto key = [](std::string_view password_a, std::string_view password_b,
                      std::string_view data_a, std::string_view data_b) {
    const auto a = CpaceShare::make(cpace_generator(text_bytes(password_a), {}, session), scalar_a);
    const auto b = CpaceShare::make(cpace_generator(text_bytes(password_b), {}, session), scalar_b);
    const auto of_a = cpace_key(a, b.share, session, {a.share, text_bytes(data_a)}, {b.share, {}});
    const auto of_b = cpace_key(b, a.share, session, {a.share, text_bytes(data_b)}, {b.share, {}});
    REQUIRE((of_a && of_b));
    return *of_a == *of_b;
  };
  CHECK(key("one", "one", "x", "x"));
  CHECK_FALSE(key("one", "two", "x", "x"));
  CHECK_FALSE(key("one", "one", "x", "y"));
  CHECK_FALSE(cpace_generator(text_bytes("one"), {}, session) ==
              cpace_generator(text_bytes("one"), {}, array_of_hex<16>("01")));
  // Two exchanges never have the same share.
  CHECK_FALSE(CpaceShare::make(vector_generator()).share ==
              CpaceShare::make(vector_generator()).share);
}
