#include <ccl/detail/base/selection.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/error_matchers.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

std::string why(const Result<void>& r) {
  return r ? "" : r.error().what;
}

}  // namespace

TEST_CASE("a setting is its CCL_ name, else its NCCL_ name, else its initial value") {
  CHECK(detail::setting_flag("SHM_DISABLE") == false);
  CHECK_FALSE(detail::setting_given("SHM_DISABLE"));
  const Environment nccl{"NCCL_SHM_DISABLE", "1"};
  CHECK(detail::setting_flag("SHM_DISABLE") == true);
  CHECK(detail::setting_given("SHM_DISABLE"));
  const Environment ccl{"CCL_SHM_DISABLE", "0"};
  CHECK(detail::setting_flag("SHM_DISABLE") == false);
}

TEST_CASE("a name that NCCL does not have is not read from NCCL_") {
  const Environment nccl{"NCCL_TIMEOUT", "5"};
  CHECK(detail::setting_seconds("TIMEOUT").value() == 0);
}

TEST_CASE("values of each kind are read") {
  CHECK(detail::setting_bytes("MEMORY_BUDGET").value() == 0);   // the communicator's choice
  CHECK(detail::setting_bytes("LL128_BUFFSIZE").value() == 0);  // none
  CHECK(detail::setting_integer("MAX_CTAS").value() == 0);
  CHECK(detail::setting_seconds("INIT_TIMEOUT").value() == 60);
  CHECK(detail::setting_text("DEBUG").value() == "WARN");
  const Environment a{"CCL_MEMORY_BUDGET", "3g"}, b{"CCL_INIT_TIMEOUT", "0.5"},
      c{"CCL_DEBUG", "info"};
  CHECK(detail::setting_bytes("MEMORY_BUDGET").value() == Index{3} << 30);
  CHECK(detail::setting_seconds("INIT_TIMEOUT").value() == 0.5);
  CHECK(detail::setting_text("DEBUG").value() == "INFO");
}

TEST_CASE("a bad value is an error that says what fits") {
  const auto bad = [](const char* name, const char* value, const char* hint) {
    const Environment env{name, value};
    const auto checked = detail::check_settings();
    INFO(name << "=" << value << ": " << why(checked));
    REQUIRE_FALSE(checked);
    CHECK(checked.error().code == Errc::bad_setting);
    CHECK(mentions(checked.error().what, name));
    CHECK(mentions(checked.error().what, hint));
  };
  bad("CCL_SHM_DISABLE", "yes", "0 or 1");
  bad("NCCL_SHM_DISABLE", "2", "0 or 1");
  bad("CCL_MAX_CTAS", "0", "from 1 to 4096");
  bad("CCL_MAX_CTAS", "12x", "from 1 to 4096");
  bad("CCL_MEMORY_BUDGET", "12T", "with K, M or G");
  bad("CCL_BUFFSIZE", "99999999999999999999", "number of bytes");
  bad("CCL_TIMEOUT", "-1", "at least 0");
  bad("CCL_TIMEOUT", "nan", "at least 0");
  bad("CCL_TIMEOUT", "1e300", "at most 1e9");
  bad("CCL_MNNVL_CLIQUE_ID", "-2", "a whole number, at least -1");
  bad("NCCL_NVLS_ENABLE", "3", "0 or 1");
  bad("CCL_NVLS_ENABLE", "2", "0 or 1");
  bad("CCL_DEBUG", "LOUD", "TRACE");
  bad("CCL_P2P_LEVEL", "LOC NVL", "PHB");
  bad("CCL_NET", "Infiniband", "SOCKET, IB");
  bad("NCCL_NET", "AWS Libfabric", "SOCKET, IB");
  bad("CCL_ALGO", "nosuch:Ring", "reducescatter");
  bad("CCL_ALGO", "Ring;:Tree", "allreduce");
  bad("NCCL_PROTO", "LL;allreduce,broadcast:Simple", "parted by semicolons");
  bad("CCL_ALGO", "Ring,Rnig", "there are Ring Tree");
  bad("CCL_ALGO", "Ring;allreduce:^Rnig", "OneShot");
  bad("NCCL_PROTO", "^LL129", "there are Simple LL LL128");
  bad("CCL_ALGO", "^", "a list to leave out");
  bad("CCL_ALGO", "Ring;allreduce:^,", "a list to leave out");
  bad("NCCL_PROTO", "^ ", "there are Simple LL LL128");
  bad("CCL_TRANSPORT", "^", "shm ib socket");
  bad("CCL_TRANSPORT", "sockt", "there are p2p loopback shm ib socket");
  bad("CCL_TRANSPORT", "^shm,sockt", "shm ib socket");
  bad("CCL_DEBUG_SUBSYS", "INIT,NETS", "BOOTSTRAP");
  bad("CCL_DEBUG_SUBSYS", "INIT NET", "parted by commas");
  bad("CCL_DEBUG_SUBSYS", "^NETS", "INIT,NET");
  bad("CCL_IB_ADDR_RANGE", "garbage", "10.1.0.0/16");
  bad("CCL_IB_ADDR_RANGE", "10.1.0.0", "10.1.0.0/16");
  bad("NCCL_IB_ADDR_RANGE", "10.1.0.0/33", "prefix length");
  bad("CCL_IB_ADDR_RANGE", "fd00::/x", "fd00::/8");
  bad("CCL_NET_FORCE_MERGE", ";;", "mlx5_0,mlx5_1");
  bad("CCL_NET_FORCE_MERGE", "mlx5_0 mlx5_1", "parted by commas");
  bad("CCL_NET_FORCE_MERGE", "mlx5_0:x,mlx5_1", "such as mlx5_0");
  for (const char* pairs : {"garbage", "0", "0-x", "0-0000:1b:00.0", "-1", "0-1,,2-3", ","}) {
    bad("CCL_P2P_EXCLUDE", pairs, "such as 0-1");
  }
  const Environment env{"CCL_MAX_CTAS", "4097"};
  CHECK(detail::setting_integer("MAX_CTAS").error().code == Errc::bad_setting);
}

TEST_CASE("what NCCL takes in a text is taken") {
  const auto good = [](const char* name, const char* value) {
    const Environment env{name, value};
    INFO(name << "=" << value);
    CHECK(why(detail::check_settings()) == "");
  };
  good("NCCL_ALGO", "^NVLSTree,PAT;allreduce:Tree, Ring;");
  good("NCCL_PROTO", "AllReduce:LL128;reduce_scatter:^LL;broadcast:");
  good("CCL_TRANSPORT", "^Shm, Socket");
  good("CCL_ALGO", "Hierarchical-Ring-Ring,copy_engine");
  CHECK(detail::know_name("ALGO", "Mine"));  // as a composition of it does
  good("CCL_ALGO", "Mine;send_recv:Pairwise;all_to_all_v:OneShot;all_reduce_rows:TwoShot");
  good("NCCL_NET", "ib");
  good("NCCL_NET", "Socket");
  good("NCCL_DEBUG_SUBSYS", "ALL");
  good("NCCL_DEBUG_SUBSYS", "^init,NVLS,");
  good("NCCL_DEBUG_SUBSYS", "CALL,REG,PROFILE,RAS");
  good("NCCL_IB_ADDR_RANGE", "0.0.0.0/0");
  good("NCCL_IB_ADDR_RANGE", "fd00:1::/128");
  good("NCCL_NET_FORCE_MERGE", "mlx5_0,mlx5_1;mlx5_2:1,mlx5_3:1;");
  good("NCCL_NET_FORCE_MERGE", "eth0.100,roce-p0");
  good("CCL_P2P_EXCLUDE", "0-1, 0000:1b:00.0-0000:43:00.0,");
}

TEST_CASE("NCCL's own initial values are as if they were not set") {
  const Environment nvls{"NCCL_NVLS_ENABLE", "2"}, cumem{"NCCL_CUMEM_ENABLE", "-2"};
  CHECK(why(detail::check_settings()) == "");
  CHECK(detail::setting_flag("NVLS_ENABLE") == true);
  CHECK(detail::setting_flag("CUMEM_ENABLE") == true);
  CHECK_FALSE(detail::setting_given("CUMEM_ENABLE"));
}

TEST_CASE("names that find_package and oneAPI's scripts set are no settings") {
  const Environment root{"CCL_ROOT", "/opt/ccl"}, path{"CCL_CONFIGURATION_PATH", ""},
      which{"CCL_CONFIGURATION", "cpu_gpu_dpcpp"}, old{"CCL_ATL_TRANSPORT_PATH", "/opt/lib"};
  const Environment test{"CCL_TEST_TOPOLOGIES", "/opt/files"}, empty{"CCL_SUCH_A_NAME", ""};
  CHECK(why(detail::check_settings()) == "");
}

TEST_CASE("the old name of a renamed setting counts, unless the new one is set") {
  const Environment old{"CCL_JOURNAL_SIZE", "17"};
  CHECK(why(detail::check_settings()) == "");
  CHECK(detail::setting_integer("FLIGHT_RECORDER_SIZE").value() == 17);
  const Environment now{"CCL_FLIGHT_RECORDER_SIZE", "18"};
  CHECK(detail::setting_integer("FLIGHT_RECORDER_SIZE").value() == 18);
}

TEST_CASE("an unknown name is an error that lists all and names the nearest") {
  CHECK(detail::check_settings());
  const Environment env{"CCL_SOCKET_IFNAM", "eth0"};
  const auto checked = detail::check_settings();
  REQUIRE_FALSE(checked);
  CHECK(checked.error().code == Errc::bad_setting);
  CHECK(mentions(checked.error().what, "did you mean CCL_SOCKET_IFNAME?"));
  for (const detail::Setting& s : detail::all_settings()) {
    CHECK(mentions(checked.error().what, fmt::format(" CCL_{}", s.name).c_str()));
  }
  const Environment sign{"CCL_SOCKET_IFNAM", "eth0="};  // not an empty value
  CHECK_FALSE(detail::check_settings());
}

TEST_CASE("asking for what is not in the table is our bug") {
  CHECK(detail::setting_text("NO_SUCH").error().code == Errc::internal);
  CHECK(detail::setting_flag("DEBUG").error().code == Errc::internal);
}

TEST_CASE("every initial value fits its own setting") {
  for (const detail::Setting& s : detail::all_settings()) {
    INFO(s.name);
    CHECK_FALSE(s.meaning.empty());
    if (s.initial.empty()) continue;
    const std::string name = fmt::format("CCL_{}", s.name);
    const Environment env{name.c_str(), std::string{s.initial}.c_str()};
    CHECK(why(detail::check_settings()) == "");
  }
}

TEST_CASE("docs/reference/settings.md lists every setting as it is") {
  std::ifstream file{CCL_SOURCE_DIR "/docs/reference/settings.md"};
  REQUIRE(file);
  std::ostringstream text;
  text << file.rdbuf();
  const std::string docs = text.str();
  size_t rows = 0;
  for (size_t at = 0; (at = docs.find("\n| `CCL_", at)) != docs.npos; ++at) ++rows;
  CHECK(rows == detail::all_settings().size());
  for (const detail::Setting& s : detail::all_settings()) {
    const std::string row = fmt::format("\n| `CCL_{}` | {} | {} | {} |\n", s.name,
                                        s.initial.empty() ? "" : fmt::format("`{}`", s.initial),
                                        s.nccl ? "yes" : "", s.meaning);
    INFO("docs/reference/settings.md lacks this row:" << row);
    CHECK(docs.find(row) != docs.npos);
  }
}

TEST_CASE("the rows of docs/reference/settings.md", "[.print]") {
  for (const detail::Setting& s : detail::all_settings()) {
    fmt::print("| `CCL_{}` | {} | {} | {} |\n", s.name,
               s.initial.empty() ? "" : fmt::format("`{}`", s.initial), s.nccl ? "yes" : "",
               s.meaning);
  }
}
