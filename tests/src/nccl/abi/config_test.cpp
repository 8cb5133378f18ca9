#include "nccl/abi/config.hpp"

#include <cstdlib>
#include <cstring>
#include <string>

#include "support/catch.hpp"
#include "support/environment.hpp"

using namespace ccl;
using namespace ccl::test;
using detail::nccl::MemberConfig;
using detail::nccl::read_config;

TEST_CASE("programs for NCCL get the order of calls, unless the setting says otherwise") {
  const auto order = [](const ncclConfig_t* given, const MemberConfig* parent = nullptr) {
    const auto config = read_config(given, parent);
    REQUIRE(config);
    return config->implicit_launch_order;
  };
  ncclConfig_t given = NCCL_CONFIG_INITIALIZER;
  CHECK(order(nullptr) == true);
  CHECK(order(&given) == true);
  MemberConfig parent;
  parent.implicit_launch_order = false;
  CHECK(order(nullptr, &parent) == false);
  CHECK(order(&given, &parent) == true);
  const Environment off{"CCL_LAUNCH_ORDER_IMPLICIT", "0"};
  CHECK(order(nullptr) == false);
  CHECK(order(&given) == false);
}

TEST_CASE("a configuration of NCCL limits the blocks of a launch") {
  ncclConfig_t given = NCCL_CONFIG_INITIALIZER;
  CHECK_FALSE(read_config(&given)->max_channels);
  given.minCTAs = 2;
  given.maxCTAs = 64;
  CHECK(read_config(&given)->min_channels == 2);
  CHECK(read_config(&given)->max_channels == 64);
  given.minCTAs = 100'000;  // cut, as NCCL does
  given.maxCTAs = INT_MAX;
  CHECK(read_config(&given)->min_channels == 64);
  CHECK(read_config(&given)->max_channels == 4096);
  given.magic = 1;
  CHECK(read_config(&given).error().code == Errc::invalid_argument);
}

TEST_CASE("NCCL's policy for few blocks limits them, where nothing else does") {
  ncclConfig_t given = NCCL_CONFIG_INITIALIZER;
  given.CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY;
  const auto few = read_config(&given)->max_channels;
  REQUIRE(few);
  given.CTAPolicy = NCCL_CTA_POLICY_DEFAULT;
  CHECK_FALSE(read_config(&given)->max_channels);
  given.CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO;
  CHECK(read_config(&given)->max_channels == few);
  CHECK(read_config(&given)->zero_blocks);
  given.CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY;
  CHECK_FALSE(read_config(&given)->zero_blocks);
  given.minCTAs = *few + 4;  // which counts before
  CHECK(read_config(&given)->max_channels == *few + 4);
  given.maxCTAs = *few + 8;
  CHECK(read_config(&given)->max_channels == *few + 8);
}

TEST_CASE("the policy of the environment counts before that of a configuration, and without one") {
  ncclConfig_t given = NCCL_CONFIG_INITIALIZER;
  given.CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY;
  const auto policy = [&](const ncclConfig_t* config, const char* variable, const char* value) {
    const Environment set{variable, value};
    const auto read = read_config(config);
    if (!read) return "error: " + read.error().what;
    return std::string{read->max_channels ? "few" : "any"} + (read->zero_blocks ? " zero" : "");
  };
  CHECK(policy(&given, "NCCL_CTA_POLICY", "") == "few");
  for (const bool has_config : {false, true}) {
    const ncclConfig_t* const config = has_config ? &given : nullptr;
    for (const char* const both : {"3", "EFFICIENCY|ZERO", "efficiency | zero", "1|2"}) {
      CHECK(policy(config, "NCCL_CTA_POLICY", both) == "few zero");
    }
    CHECK(policy(config, "NCCL_CTA_POLICY", "DEFAULT") == "any");
    CHECK(policy(config, "NCCL_CTA_POLICY", "ZERO") == "any zero");
    CHECK(policy(config, "CCL_CTA_POLICY", "2") == "any zero");
  }
  // A value that NCCL would not take is left out; one of ccl's own is an error.
  CHECK(policy(&given, "NCCL_CTA_POLICY", "SOME") == "few");
  const auto wrong = policy(&given, "CCL_CTA_POLICY", "ZERO|SOME");
  CHECK(wrong.find("CCL_CTA_POLICY is ZERO|SOME (\"some\" is no policy)") != wrong.npos);
  CHECK(policy(nullptr, "CCL_CTA_POLICY", "4").starts_with("error"));
}

TEST_CASE("the size of thread block clusters is that of the configuration") {
  ncclConfig_t given = NCCL_CONFIG_INITIALIZER;
  CHECK_FALSE(read_config(&given)->cluster_blocks);
  for (const int blocks : {0, 2, 8}) {
    given.cgaClusterSize = blocks;
    CHECK(read_config(&given)->cluster_blocks == blocks);
  }
  const Environment set{"NCCL_CGA_CLUSTER_SIZE", "4"};
  CHECK_FALSE(read_config(&given)->cluster_blocks);
}

TEST_CASE("the traffic class and the channels to another host are those of the communicator") {
  ncclConfig_t given = NCCL_CONFIG_INITIALIZER;
  CHECK_FALSE(read_config(&given)->traffic_class);
  CHECK_FALSE(read_config(&given)->net_channels);
  given.trafficClass = 106;
  given.nChannelsPerNetPeer = 3;
  CHECK(read_config(&given)->traffic_class == 106);
  CHECK(read_config(&given)->net_channels == 3);
  {
    const Environment set{{{"NCCL_IB_TC", "7"}, {"NCCL_NCHANNELS_PER_NET_PEER", "2"}}};
    CHECK_FALSE(read_config(&given)->traffic_class);
    CHECK_FALSE(read_config(&given)->net_channels);
  }
  for (const int of_none : {-1, 256}) {
    given.trafficClass = of_none;
    CHECK_FALSE(read_config(&given)->traffic_class);
  }
}

TEST_CASE("settings of signals count before those of the configuration") {
  ncclConfig_t given = NCCL_CONFIG_INITIALIZER;
  given.numRmaCtx = 2;
  given.numRmaSig = 3;
  given.rmaEagerInit = 0;
  CHECK(read_config(&given)->signal_contexts == 2);
  CHECK_FALSE(read_config(&given)->early_signals);
  const Environment contexts{"NCCL_NUM_RMA_CTX", "5"};
  const Environment early{"NCCL_RMA_EAGER_INIT", "1"};
  CHECK(read_config(&given)->signal_contexts == 5);
  CHECK(read_config(&given)->signals == 3);
  CHECK(read_config(&given)->early_signals);
  CHECK(read_config(nullptr)->signal_contexts == 5);
  CHECK(read_config(nullptr)->early_signals);
  const Environment late{"NCCL_RMA_EAGER_INIT", "0"};
  given.rmaEagerInit = 1;
  CHECK_FALSE(read_config(&given)->early_signals);
  const Environment many{"NCCL_NUM_RMA_CTX", "40000"};
  const auto refused = read_config(&given);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Errc::bad_setting);
  const char* const text = "NCCL_NUM_RMA_CTX is 40000 and config.numRmaSig 3";
  CHECK(refused.error().what.find(text) != std::string::npos);
}

TEST_CASE("a configuration may be shorter or longer than this library's") {
  ncclConfig_t given = NCCL_CONFIG_INITIALIZER;
  given.blocking = 0;
  given.maxCTAs = 9;
  given.numRmaSig = 4;
  struct Longer {
    ncclConfig_t known;
    int more[4];
  } longer{given, {1, 2, 3, 4}};
  longer.known.size = sizeof longer;
  longer.known.version = 24001;
  const auto of_later = read_config(&longer.known);
  REQUIRE(of_later);
  CHECK(of_later->signals == 4);
  CHECK_FALSE(of_later->blocking);
  // Bytes behind an older structure are not the configuration's.
  struct Size {
    std::size_t bytes;
    unsigned version;
  };
  for (const auto [bytes, version] :
       {Size{24, 21400}, Size{40, 21700}, Size{48, 21800}, Size{72, 22700}, Size{80, 22809},
        Size{88, 22907}, Size{96, 23004}, Size{96, 23007}}) {
    CAPTURE(version);
    ncclConfig_t older;
    std::memset(&older, 0x77, sizeof older);
    ncclConfig_t begun = NCCL_CONFIG_INITIALIZER;
    begun.size = bytes;
    begun.version = version;
    begun.blocking = 0;
    if (bytes > 24) begun.maxCTAs = 9;
    std::memcpy(&older, &begun, bytes);
    const auto config = read_config(&older);
    REQUIRE(config);
    CHECK_FALSE(config->blocking);
    CHECK(config->max_channels == (bytes > 24 ? std::optional{9} : std::nullopt));
    CHECK(config->signals == 1);
  }
  given.size = 15;
  CHECK(read_config(&given).error().code == Errc::invalid_argument);
}

TEST_CASE("a member in which the size ends is not read") {
  ncclConfig_t given = NCCL_CONFIG_INITIALIZER;
  given.commName = "a name";
  for (std::size_t cut = 1; cut < sizeof given.commName; ++cut) {
    given.size = offsetof(ncclConfig_t, commName) + cut;  // a part of the pointer
    const auto config = read_config(&given);
    REQUIRE(config);
    CHECK(config->name != "a name");
  }
  given.size += 1;
  CHECK(read_config(&given)->name == "a name");
}

TEST_CASE("padding of older structures is not read as a later member") {
  // 48 bytes, which end in trafficClass since 2.26 only; 96 bytes and graphStreamOrdering.
  ncclConfig_t given = NCCL_CONFIG_INITIALIZER;
  given.size = 96;
  given.graphStreamOrdering = 12345;
  given.version = 23004;
  CHECK(read_config(&given));
  given.version = 23007;
  REQUIRE_FALSE(read_config(&given));
  given.size = 24;
  given.cgaClusterSize = 12345;
  given.version = 21400;
  CHECK(read_config(&given));
  given.version = 21700;
  CHECK_FALSE(read_config(&given));
}

TEST_CASE("values that NCCL refuses name the member") {
  const auto refused = [](auto&& change, const char* words) {
    ncclConfig_t given = NCCL_CONFIG_INITIALIZER;
    change(given);
    const auto config = read_config(&given);
    REQUIRE_FALSE(config);
    CHECK(config.error().code == Errc::invalid_argument);
    INFO(config.error().what);
    CHECK(config.error().what.find(words) != std::string::npos);
  };
  refused([](auto& c) { c.blocking = 2; }, "config.blocking is 2; set 0 or 1");
  refused([](auto& c) { c.cgaClusterSize = 9; }, "config.cgaClusterSize is 9; set 0 to 8");
  refused([](auto& c) { c.minCTAs = 0; }, "config.minCTAs is 0; set 1 or more");
  refused([](auto& c) { c.minCTAs = 3, c.maxCTAs = 2; }, "minCTAs is 3 and config.maxCTAs 2");
  refused([](auto& c) { c.splitShare = -1; }, "config.splitShare is -1");
  refused([](auto& c) { c.collnetEnable = 2; }, "config.collnetEnable");
  refused([](auto& c) { c.CTAPolicy = 4; }, "config.CTAPolicy is 4; set 0 to 3");
  refused([](auto& c) { c.shrinkShare = 2; }, "config.shrinkShare");
  refused([](auto& c) { c.nvlsCTAs = 0; }, "config.nvlsCTAs");
  refused([](auto& c) { c.nChannelsPerNetPeer = 65; }, "config.nChannelsPerNetPeer");
  refused([](auto& c) { c.nvlinkCentricSched = 2; }, "config.nvlinkCentricSched");
  refused([](auto& c) { c.graphUsageMode = 3; }, "config.graphUsageMode");
  refused([](auto& c) { c.numRmaCtx = -1; }, "config.numRmaCtx");
  refused([](auto& c) { c.numRmaCtx = 1 << 9, c.numRmaSig = 1 << 9; }, "their product");
  refused([](auto& c) { c.maxP2pPeers = 0; }, "config.maxP2pPeers");
  refused([](auto& c) { c.graphStreamOrdering = 2; }, "config.graphStreamOrdering");
  refused([](auto& c) { c.graphStreamOrdering = 0; }, "needs config.graphUsageMode 0 or 1");
  refused([](auto& c) { c.launchOrderImplicit = 2; }, "config.launchOrderImplicit");
  refused([](auto& c) { c.rmaEagerInit = 2; }, "config.rmaEagerInit");
  refused([](auto& c) { c.hostCftMode = 4; }, "config.hostCftMode");
  refused([](auto& c) { c.nvlsHostMode = -1; }, "config.nvlsHostMode");
}

TEST_CASE("settings of the environment count before members of a configuration") {
  ncclConfig_t given = NCCL_CONFIG_INITIALIZER;
  given.maxCTAs = 64;
  given.launchOrderImplicit = 1;
  CHECK(read_config(&given)->max_channels == 64);
  const Environment set{{{"NCCL_MAX_CTAS", "8"}, {"NCCL_LAUNCH_ORDER_IMPLICIT", "0"}}};
  CHECK_FALSE(read_config(&given)->max_channels);
  CHECK(read_config(&given)->implicit_launch_order == false);
  given.blocking = 1;
  const Environment none{"NCCL_COMM_BLOCKING", "0"};
  CHECK_FALSE(read_config(&given)->blocking);
  CHECK_FALSE(read_config(nullptr)->blocking);
  const Environment open{"CCL_COMM_BLOCKING", "-1"};  // counts before NCCL's
  CHECK(read_config(&given)->blocking);
}
