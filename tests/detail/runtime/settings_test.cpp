#include <ccl/comm/log.hpp>
#include <ccl/detail/base/selection.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "settings/report.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/error_matchers.hpp"
#include "support/log_of.hpp"
#include <unistd.h>

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
  bad("CCL_MAX_CTAS", "0", "from 1 to 4096");
  bad("CCL_MAX_CTAS", "12x", "from 1 to 4096");
  bad("CCL_MEMORY_BUDGET", "12T", "with K, M or G");
  bad("CCL_BUFFSIZE", "99999999999999999999", "number of bytes");
  bad("CCL_TIMEOUT", "-1", "at least 0");
  bad("CCL_TIMEOUT", "nan", "at least 0");
  bad("CCL_TIMEOUT", "1e300", "at most 1e9");
  bad("CCL_MNNVL_CLIQUE_ID", "-2", "a whole number, at least -1");
  bad("CCL_NVLS_ENABLE", "2", "0 or 1");
  bad("CCL_DEBUG", "LOUD", "TRACE");
  bad("CCL_P2P_LEVEL", "LOC NVL", "PHB");
  bad("CCL_ALGO", "nosuch:Ring", "reducescatter");
  bad("CCL_ALGO", "Ring;:Tree", "allreduce");
  bad("CCL_PROTO", "LL;allreduce,broadcast:Simple", "parted by semicolons");
  bad("CCL_ALGO", "Ring,Rnig", "there are Ring Tree");
  bad("CCL_ALGO", "Ring;allreduce:^Rnig", "OneShot");
  bad("CCL_PROTO", "^LL129", "there are Simple LL LL128");
  bad("CCL_ALGO", "^", "a list to leave out");
  bad("CCL_ALGO", "Ring;allreduce:^,", "a list to leave out");
  bad("CCL_PROTO", "^ ", "there are Simple LL LL128");
  bad("CCL_TRANSPORT", "^", "shm ib plugin socket");
  bad("CCL_TRANSPORT", "sockt", "there are p2p loopback shm ib plugin socket");
  bad("CCL_TRANSPORT", "^shm,sockt", "shm ib plugin socket");
  bad("CCL_DEBUG_SUBSYS", "INIT,NETS", "BOOTSTRAP");
  bad("CCL_DEBUG_SUBSYS", "INIT NET", "parted by commas");
  bad("CCL_DEBUG_SUBSYS", "^NETS", "INIT,NET");
  bad("CCL_IB_ADDR_RANGE", "garbage", "10.1.0.0/16");
  bad("CCL_IB_ADDR_RANGE", "10.1.0.0", "10.1.0.0/16");
  bad("CCL_IB_ADDR_RANGE", "10.1.0.0/33", "prefix length");
  bad("CCL_IB_ADDR_RANGE", "fd00::/x", "fd00::/8");
  bad("CCL_NET_FORCE_MERGE", ";;", "mlx5_0,mlx5_1");
  bad("CCL_NET_FORCE_MERGE", "mlx5_0 mlx5_1", "parted by commas");
  bad("CCL_NET_FORCE_MERGE", "mlx5_0:x,mlx5_1", "such as mlx5_0");
  for (const char* pairs : {"garbage", "0", "0-x", "0-0000:1b:00.0", "-1", "0-1,,2-3", ","}) {
    bad("CCL_P2P_EXCLUDE", pairs, "such as 0-1");
  }
  for (const char* where : {"28028", "localhost", "localhost:0", "localhost:70000", ":28028",
                            "localhost:28028x", "[::1]", "[::1]28028", "::1:28028"}) {
    bad("CCL_RAS_ADDR", where, "host:port");
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
  good("NCCL_NET", "AWS Libfabric");  // a network plug-in, which creation looks for
  good("NCCL_NET_PLUGIN", "none");
  good("NCCL_NET_PLUGIN", "first,libnccl-net-second.so");
  good("NCCL_DEBUG_SUBSYS", "ALL");
  good("NCCL_DEBUG_SUBSYS", "^init,NVLS,");
  good("NCCL_DEBUG_SUBSYS", "CALL,REG,PROFILE,RAS");
  good("NCCL_IB_ADDR_RANGE", "0.0.0.0/0");
  good("NCCL_IB_ADDR_RANGE", "fd00:1::/128");
  good("NCCL_NET_FORCE_MERGE", "mlx5_0,mlx5_1;mlx5_2:1,mlx5_3:1;");
  good("NCCL_NET_FORCE_MERGE", "eth0.100,roce-p0");
  good("NCCL_RAS_ADDR", "node1.example.com:65535");
  good("CCL_RAS_ADDR", "[fe80::1%eth0]:28028");
  good("CCL_P2P_EXCLUDE", "0-1, 0000:1b:00.0-0000:43:00.0,");
}

TEST_CASE("NCCL's own initial values are as if they were not set") {
  const Environment cumem{"NCCL_CUMEM_ENABLE", "-2"};
  CHECK(why(detail::check_settings()) == "");
  CHECK(detail::setting_flag("CUMEM_ENABLE") == true);
  CHECK_FALSE(detail::setting_given("CUMEM_ENABLE"));
}

TEST_CASE("only ccl's own name allows multicast") {
  for (const char* theirs : {"", "0", "1", "2", " 0x1 ", "on"}) {
    const Environment nccl{"NCCL_NVLS_ENABLE", theirs};
    INFO("NCCL_NVLS_ENABLE=" << theirs);
    {
      const Environment unset{"CCL_NVLS_ENABLE", ""};
      CHECK(why(detail::check_settings()) == "");
      CHECK(detail::setting_flag("NVLS_ENABLE") == false);
      CHECK_FALSE(detail::setting_given("NVLS_ENABLE"));
    }
    {
      const Environment off{"CCL_NVLS_ENABLE", "0"};
      CHECK(detail::setting_flag("NVLS_ENABLE") == false);
    }
    const Environment on{"CCL_NVLS_ENABLE", "1"};
    CHECK(detail::setting_flag("NVLS_ENABLE") == true);
  }
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

TEST_CASE("with CCL_STRICT, an unknown name is an error that lists all and names the nearest") {
  CHECK(detail::check_settings());
  const Environment strict{"CCL_STRICT", "1"};
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

TEST_CASE("without it, an unknown name is one warning of rank 0, with a name that is near") {
  const Environment near{"CCL_TIMEOUTT", "3"}, far{"CCL_WORKER_COUNT", "2"};
  CHECK(why(detail::check_settings()) == "");
  CHECK(log_of([] { detail::report_settings(1); }).find("CCL_TIMEOUTT") == std::string::npos);
  const std::string first = log_of([] { detail::report_settings(0); });
  CHECK(
      mentions(first, "CCL_TIMEOUTT is set (there is no such setting); did you mean CCL_TIMEOUT?"));
  CHECK(mentions(first, "CCL_WORKER_COUNT is set (there is no such setting)\n"));
  CHECK(log_of([] { detail::report_settings(0); }).find("CCL_") == std::string::npos);
}

TEST_CASE("NCCL's values are read as NCCL reads them") {
  const auto integer = [](const char* name, const char* value) {
    const Environment env{fmt::format("NCCL_{}", name).c_str(), value};
    CHECK(why(detail::check_settings()) == "");
    return detail::setting_integer(name).value();
  };
  CHECK(integer("IB_TC", "0x6a") == 106);
  CHECK(integer("IB_TC", " 106 ") == 106);
  CHECK(integer("IB_TIMEOUT", "022") == 18);
  CHECK(integer("IB_RETRY_CNT", "15") == 7);  // too large: the initial value
  CHECK(integer("IB_RETRY_CNT", "many") == 7);
  // Where NCCL has a larger range, the nearest number counts.
  CHECK(integer("MIN_CTAS", "100000") == 64);
  CHECK(integer("MAX_CTAS", "9999999999") == 4096);
  CHECK(integer("MIN_CTAS", "0") == 0);  // too small for NCCL, too
  CHECK(integer("NCHANNELS_PER_NET_PEER", "65") == 64);
  CHECK(integer("SOCKET_NTHREADS", "64") == 16);
  CHECK(integer("NSOCKS_PERTHREAD", "65") == 64);
  CHECK(integer("IB_QPS_PER_CONNECTION", "128") == 64);
  CHECK(integer("IB_ADAPTIVE_ROUTING", "2") == 1);
  CHECK(integer("IB_AR_THRESHOLD", "-1") == 0);
  CHECK(integer("IB_GID_INDEX", "-2") == -1);
  CHECK(integer("NET_GDR_READ", "-2") == -1);
  CHECK(integer("COLLNET_NODE_THRESHOLD", "0") == 1);
  const auto flag = [](const char* name, const char* value) {
    const Environment env{fmt::format("NCCL_{}", name).c_str(), value};
    CHECK(why(detail::check_settings()) == "");
    return detail::setting_flag(name).value();
  };
  CHECK(flag("SHM_DISABLE", "2"));
  CHECK(flag("SHM_DISABLE", "0x1"));
  CHECK_FALSE(flag("SHM_DISABLE", "yes"));
  CHECK_FALSE(flag("SHM_DISABLE", "0"));
  const Environment size{"NCCL_BUFFSIZE", "0x10000"}, net{"NCCL_NET", " AWS Libfabric "};
  CHECK(detail::setting_bytes("BUFFSIZE").value() == 65536);
  CHECK(detail::setting_text("NET").value() == "AWS Libfabric");
  const Environment small{"NCCL_LL_BUFFSIZE", "100"}, automatic{"NCCL_LL128_BUFFSIZE", "-2"};
  CHECK(detail::setting_bytes("LL_BUFFSIZE").value() == 4096);
  CHECK_FALSE(detail::setting_given("LL128_BUFFSIZE"));
  // ccl's own names stay strict.
  const Environment own{"CCL_IB_TC", "0x6a"};
  CHECK_FALSE(detail::check_settings());
}

TEST_CASE("each variable that counts, does not fit or is not read is named once") {
  const Environment set{{{"NCCL_IB_SL", "3"},
                         {"NCCL_IB_RETRY_CNT", "16"},
                         {"NCCL_MIN_CTAS", "5000"},
                         {"NCCL_NET_SHARED_BUFFERS", "1"},
                         {"NCCL_TIMEOUT", "5"},
                         {"CCL_SECRET", "0123456789abcdef"}}};
  const std::string first = log_of([] { detail::report_settings(1); });
  CHECK(mentions(first, "INFO ENV NCCL_IB_SL set by environment to 3\n"));
  CHECK(mentions(first, "WARN ENV NCCL_IB_RETRY_CNT=16 does not fit"));
  CHECK(mentions(first, "NCCL_MIN_CTAS set by environment to 64, the nearest to 5000\n"));
  CHECK(mentions(first, "INFO ENV NCCL_NET_SHARED_BUFFERS=1 is not read by ccl\n"));
  CHECK(mentions(first, "INFO ENV NCCL_TIMEOUT=5 is not read by ccl\n"));
  CHECK(mentions(first, "CCL_SECRET set by environment to a text that is not shown"));
  CHECK(first.find("0123456789abcdef") == first.npos);
  const std::string again = log_of([] { detail::report_settings(1); });
  CHECK(again.find("NCCL_") == again.npos);
}

TEST_CASE("texts name the variable that was given") {
  CHECK(detail::variable_of("SOCKET_IFNAME") == "CCL_SOCKET_IFNAME");
  const Environment nccl{"NCCL_SOCKET_IFNAME", "bond0"};
  CHECK(detail::variable_of("SOCKET_IFNAME") == "NCCL_SOCKET_IFNAME");
  const Environment ccl{"CCL_SOCKET_IFNAME", "bond0"};
  CHECK(detail::variable_of("SOCKET_IFNAME") == "CCL_SOCKET_IFNAME");
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
