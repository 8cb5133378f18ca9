#include <ccl/transport/p2p.hpp>

#include <cstdlib>

#include "transport/driver.hpp"

using namespace ccl;
using namespace ccl::test;

// What needs GPUs is in tests/gpu/communicator_test.cu.
namespace {
PeerInfo gpu_rank(int rank, cuda::std::int64_t bus_id) {
  PeerInfo info = info_of(rank);
  info.device = rank;
  info.bus_id = bus_id;
  return info;
}
std::string refusal(const PeerInfo& a, const PeerInfo& b) {
  const auto answer = P2pTransport::can_connect(a, b);
  REQUIRE(!answer);
  CHECK(answer.error().code == Errc::no_transport);
  return answer.error().what;
}
bool says(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}
}  // namespace

TEST_CASE("CPU ranks are refused, and told what would work") {
  CHECK(says(refusal(info_of(0), info_of(1)), "shm or socket would"));
  CHECK(says(refusal(gpu_rank(0, 0x1b000), info_of(1)), "shm or socket would"));
}

TEST_CASE("GPUs of different hosts are refused") {
  const PeerInfo a = gpu_rank(0, 0x1b000);
  PeerInfo b = gpu_rank(1, 0x1b000);
  b.host_hash = a.host_hash + 1;
  CHECK(says(refusal(a, b), "different hosts"));
}

TEST_CASE("CCL_P2P_DISABLE refuses every pair; two ranks of one GPU connect without it") {
  const PeerInfo a = gpu_rank(0, 0x1b000), b = gpu_rank(1, 0x1b000);
  CHECK(P2pTransport::can_connect(a, b));
  ::setenv("CCL_P2P_DISABLE", "1", 1);
  CHECK(says(refusal(a, b), "CCL_P2P_DISABLE"));
  ::unsetenv("CCL_P2P_DISABLE");
}

TEST_CASE("set-up without a GPU is an error that names both ranks") {
  TransportContext context;
  const PeerInfo a = info_of(0), b = info_of(1);
  const auto end = P2pTransport::setup(context, edge_of(a, b, Side::receiver, {1, 8, 1024}, 1));
  REQUIRE(!end);
  CHECK(end.error().code == Errc::invalid_usage);
  CHECK(end.error().rank == 1);
  CHECK(end.error().peer == 0);
}
