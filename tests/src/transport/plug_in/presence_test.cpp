#include "transport/plug_in/presence.hpp"

#include <fmt/format.h>

#include <string>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/error_matchers.hpp"
#include "support/log_of.hpp"
#include "support/net_plug_in.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail;

namespace {

const TestNet v12{12}, v11{11};

NetPlugInPresence with(const std::string& libraries, const std::string& name = "") {
  const Environment by{{{"CCL_NET_PLUGIN", libraries}, {"CCL_NET", name}}};
  const auto presence = net_plug_in_presence();
  REQUIRE(presence);
  return *presence;
}
Error error_of(const std::string& libraries, const std::string& name) {
  const Environment by{{{"CCL_NET_PLUGIN", libraries}, {"NCCL_NET", name}}};
  const auto presence = net_plug_in_presence();
  REQUIRE_FALSE(presence);
  return presence.error();
}

}  // namespace

TEST_CASE("there is a network plug-in only if a setting asks for one") {
  const NetPlugInPresence plain = with("");
  CHECK(plain.plug_in == nullptr);
  CHECK(plain.absence == NetPlugInAbsence::not_asked);
  CHECK(with("none").absence == NetPlugInAbsence::not_asked);
  for (const char* own : {"IB", "ib", "Socket"}) {
    CHECK(with(v12.path(), own).absence == NetPlugInAbsence::not_chosen);
  }
  const NetPlugInPresence asked = with(v12.path());
  REQUIRE(asked.plug_in != nullptr);
  CHECK(asked.plug_in->text() == fmt::format("network plug-in Test ({}, version 12)", v12.path()));
  CHECK(asked.id != 0);
  CHECK(asked.only);
  CHECK(asked.absence == NetPlugInAbsence::none);
  const NetPlugInPresence older = with(v11.path(), "tEST");
  REQUIRE(older.plug_in != nullptr);
  CHECK(older.plug_in != asked.plug_in);
  CHECK(older.id == asked.id);  // it has the same name
}

TEST_CASE("a library that is missing is a warning, or an error if its plug-in is named") {
  const std::string log =
      log_of([] { CHECK(with("no-such").absence == NetPlugInAbsence::not_found); });
  CHECK(mentions(log, "WARN INIT net plug-in no-such: cannot be loaded"));
  const Error unknown = error_of("no-such", "AWS Libfabric");
  CHECK(unknown.code == Errc::bad_setting);
  CHECK(mentions(unknown.what, "NCCL_NET=AWS Libfabric names no network of this process"));
  CHECK(mentions(unknown.what, "no-such: cannot be loaded"));
  CHECK(mentions(unknown.what, "IB, Socket or the name of a network plug-in"));
  CHECK(mentions(error_of(v12.path(), "Other").what, "has Test"));
  CHECK(mentions(error_of("none", "Test").what, "CCL_NET_PLUGIN is none"));
  CHECK(mentions(error_of("", "Test").what, "libnccl-net.so: cannot be loaded"));
}

TEST_CASE("a plug-in that does not work gives way to the next") {
  for (const char* function : {"init", "devices", "getProperties"}) {
    v12.fail(function, 0, 2);
    const auto presence = with(fmt::format("{},{},{}", function, v12.path(), v11.path()));
    v12.fail(function, 0, 0);
    REQUIRE(presence.plug_in != nullptr);
    CHECK(mentions(presence.plug_in->text(), "version 11"));
  }
  v12.fail("init", 0, 3);
  const Error error = error_of(std::string{","} + v12.path(), "Test");
  v12.fail("init", 0, 0);
  CHECK(mentions(error.what, "init of the network plug-in Test ("));
  CHECK(mentions(error.what, "gave ncclInternalError (3)"));
}

TEST_CASE("a plug-in that does not begin ends the look at the limit of creation") {
  const Environment limit{"CCL_INIT_TIMEOUT", "0.1"};
  v11.fail("init", 0, TestNet::held);
  const Environment by{"CCL_NET_PLUGIN", std::string{",,"} + v11.path()};
  const auto late = net_plug_in_presence();
  v11.fail("init", 0, 0);
  REQUIRE_FALSE(late);
  CHECK(late.error().code == Errc::timed_out);
  CHECK(mentions(late.error().what, v11.path()));
  CHECK(mentions(late.error().what, "has not begun within 0.1 s"));
}

TEST_CASE("programs for NCCL look for the default library, which need not be there") {
  look_for_default_net_plug_in();
  CHECK(with("").absence == NetPlugInAbsence::not_found);
  CHECK(with("none").absence == NetPlugInAbsence::not_asked);
}
