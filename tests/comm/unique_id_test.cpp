#include <ccl/comm/unique_id.hpp>

#include <cstdlib>

#include "support/catch.hpp"

using namespace ccl;

TEST_CASE("an id survives as text") {
  const UniqueId id = create_unique_id().value();
  const std::string text = id.to_string();
  CHECK(text.size() == 256);
  CHECK(UniqueId::from_string(text).value() == id);
  CHECK(UniqueId::from_string(text.substr(1)).error().code == Errc::invalid_argument);
  CHECK(UniqueId::from_string(text.substr(0, 255) + "g").error().code == Errc::invalid_argument);
  CHECK(UniqueId::from_string(std::string(256, '0')).error().code == Errc::invalid_argument);
}

TEST_CASE("no two ids are alike") {
  CHECK_FALSE(create_unique_id().value() == create_unique_id().value());
}

TEST_CASE("an id worked out from an address is the same everywhere, and the job's own") {
  const auto id = unique_id_at("127.0.0.1:4711", "job 1");
  REQUIRE(id);
  CHECK(unique_id_at("127.0.0.1:4711", "job 1").value() == *id);
  CHECK_FALSE(unique_id_at("127.0.0.1:4711", "job 2").value() == *id);
  CHECK_FALSE(unique_id_at("127.0.0.1:4712", "job 1").value() == *id);
  CHECK(unique_id_at("127.0.0.1:0", "").error().code == Errc::invalid_argument);
  CHECK(unique_id_at("127.0.0.1", "").error().code == Errc::invalid_argument);
}

TEST_CASE("each host names the interface of a link-local address in its own way") {
  const auto id = unique_id_at("[fe80::1%lo]:4711", "job");
  const auto other = unique_id_at("[fe80::1%1]:4711", "job");  // lo's number
  REQUIRE(id);
  REQUIRE(other);
  CHECK(*id == *other);
  const auto without = unique_id_at("[fe80::1]:4711", "job");
  REQUIRE_FALSE(without);
  CHECK(without.error().code == Errc::invalid_argument);
  CHECK(without.error().what.find("as in fe80::1%eth0") != std::string::npos);
}

TEST_CASE("a port that stays taken is an error") {
  const auto id = unique_id_at("127.0.0.1:" + std::to_string(21000), "job").value();
  ::setenv("CCL_INIT_TIMEOUT", "0.1", 1);
  const auto first = start_root(id, 0);
  const auto second = start_root(id, 0);
  ::unsetenv("CCL_INIT_TIMEOUT");
  REQUIRE_FALSE(second);
  CHECK(second.error().what.find("CCL_COMM_ID") != std::string::npos);
}
