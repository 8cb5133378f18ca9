// CCL_ENCRYPTION protects what goes over TCP. A process warns once if data goes another way.
#include "transport/unprotected.hpp"

#include <ccl/algo/collnet_chain.hpp>
#include <ccl/collective.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/collnet.hpp>
#include <ccl/transport/ib.hpp>
#include <ccl/transport/plugin.hpp>
#include <ccl/transport/socket.hpp>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/collnet_job.hpp"
#include "support/driver.hpp"
#include "support/environment.hpp"
#include "support/error_matchers.hpp"
#include "support/lent.hpp"
#include "support/log_of.hpp"
#include "support/net_plug_in.hpp"
#include "support/processes.hpp"
#include "transport/plug_in/presence.hpp"
#if __has_include(<infiniband/verbs.h>)
#  include "support/fake_verbs.hpp"
#endif

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr const char* warns = "CCL_ENCRYPTION is";

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++found;
  return found;
}

/// Log of a process of its own with that encryption. "": the process failed.
std::string log_with(const char* encryption, const std::function<bool()>& body) {
  struct Text {
    char of[1 << 15] = {};
  };
  Shared<Text> text;
  const pid_t pid = start_process([&]() -> int {
    ::setenv("CCL_ENCRYPTION", encryption, 1);
    bool good = false;
    const std::string all = log_of([&] { good = body(); });
    all.copy(text->of, sizeof text->of - 1);
    return good ? 0 : 1;
  });
  return reap({pid}, 60) ? text->of + std::string{" end"} : "";
}

/// Sets up both ends of two edges.
template <class Transport>
bool sets_up() {
  Lent lent;
  const PeerInfo a = info_of(0), b = info_of(1);
  for (const unsigned long long id : {1, 2}) {
    for (const EdgeSide side : {EdgeSide::receiver, EdgeSide::sender}) {
      if (!Transport::setup(lent.context, edge_of(a, b, side, {1, 4, 1024}, id))) return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("the warning comes once, and only with encryption") {
  const auto twice = [] {
    detail::warn_if_unprotected("a network");
    detail::warn_if_unprotected("another one");
    return true;
  };
  CHECK(count(log_with("off", twice), warns) == 0);
  for (const char* encryption : {"integrity", "full"}) {
    const std::string log = log_with(encryption, twice);
    INFO(log);
    CHECK(count(log, warns) == 1);
    CHECK(count(log, std::string{"WARN"}) == 1);
    CHECK(mentions(log, (std::string{"CCL_ENCRYPTION is "} + encryption).c_str()));
    CHECK(mentions(log, "data goes over a network, where it is neither"));
  }
}

#if __has_include(<infiniband/verbs.h>)
TEST_CASE("RDMA warns") {
  const auto over_ib = [] {
    const FakeVerbs fabric{1};
    return sets_up<IbTransport>();
  };
  const std::string ib = log_with("full", over_ib);
  INFO(ib);
  CHECK(count(ib, warns) == 1);
  CHECK(mentions(ib, "data goes over RDMA, where"));
  const std::string plain = log_with("off", over_ib);
  CHECK((mentions(plain, " end") && count(plain, warns) == 0));
}
#endif

TEST_CASE("network plug-ins warn, and TCP does not") {
  const std::string plug_in = log_with("integrity", [] {
    const TestNet net{12};
    const Environment by{"CCL_NET_PLUGIN", net.path()};
    return detail::net_plug_in_presence() && sets_up<PluginTransport>();
  });
  INFO(plug_in);
  CHECK(count(plug_in, warns) == 1);
  CHECK(mentions(plug_in, "data goes over the network plug-in Test"));
  const std::string tcp = log_with("full", [] { return sets_up<SocketTransport>(); });
  CHECK((mentions(tcp, " end") && count(tcp, warns) == 0));
}

TEST_CASE("heads of CollNet warn") {
  const Environment on{"CCL_ENCRYPTION", "full"};  // also for the root, in this process
  const CollNetJob job{{1, 1}};
  const auto logs = job.run([](const Communicator& comm) -> Result<std::string> {
    Result<void> made;
    const std::string log = log_of([&] {
      auto sum = Collective<AllReduce, CollNetChain, Simple, CollNetTransport>::create(comm);
      if (!sum) made = fail(sum.error());
    });
    CCL_CHECK(made);
    const bool good =
        count(log, warns) == 1 && mentions(log, "data goes over the CollNet plug-in ");
    return good ? std::string{} : "the log is: " + log;
  });
  for (const std::string& wrong : logs) CHECK(wrong == "");
}
