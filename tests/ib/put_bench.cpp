// Settings BYTES, STEPS, PINGS, SLOTS: the wires of IbTransport alone, between rank 0 and rank 1,
// to compare with perftest (tests/ib/vm_bench.sh). Prints one line: the bandwidth with all slots of
// one wire in flight (as ib_write_bw -t 8). With PINGS it adds half of a round trip of one step (as
// ib_write_lat).
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/runtime/proxy_engine.hpp>
#include <ccl/transport/ib.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "support/driver.hpp"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

using namespace ccl;
using namespace ccl::test;

namespace {

/// A TCP connection between the two ranks, for handshakes.
int meet(int rank) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(4799);
  ::inet_pton(AF_INET, "10.0.0.1", &at.sin_addr);
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (rank == 0) {
    if (::bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 || ::listen(fd, 1) != 0)
      return -1;
    return ::accept(fd, nullptr, nullptr);
  }
  for (int n = 0; n < 600; ++n) {
    if (::connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0) return fd;
    ::usleep(50'000);
  }
  return -1;
}

/// Sends a step of `bytes` bytes, whose content is ignored.
void put(const Wire& wire, Word bytes) {
  const Word step = *wire.sent;
  while (step >= detail::HostMemory::load_credit(wire.drained) + Word(wire.slot_count))
    detail::HostMemory::pause();
  wire.sizes[step % Word(wire.slot_count)] = bytes;
  *wire.sent = step + 1;
  detail::HostMemory::store_release(wire.posted, step + 1);
}
void take(const Wire& wire) {
  const Word step = *wire.received;
  while (detail::HostMemory::load_acquire(wire.posted) <= step) detail::HostMemory::pause();
  *wire.received = step + 1;
  detail::HostMemory::store_credit(wire.drained, step + 1);
}

}  // namespace

TEST_CASE("put") {
  const auto number = [](const char* name, long otherwise) {
    const char* const text = std::getenv(name);
    return text != nullptr ? std::atol(text) : otherwise;
  };
  const int rank = int(number("RANK", 0));
  const Index bytes = number("BYTES", 1 << 20);
  const int steps = int(number("STEPS", 100)), pings = int(number("PINGS", 0));
  detail::Status status;
  detail::ProxyEngine proxy;
  TransportContext context;
  context.status = &status;
  context.proxy = &proxy;
  const int fd = meet(rank);
  const WireShape shape{1, int(number("SLOTS", 8)), div_up(bytes, Index(128)) * 128};
  auto duplex = connect_pair<IbTransport>(context, rank, shape, fd);
  INFO((duplex ? std::string{} : duplex.error().message()));
  REQUIRE(duplex.has_value());
  const Wire& out = duplex->out.wires[0];
  const Wire& in = duplex->in.wires[0];
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto us = [](auto span) { return std::chrono::duration<double, std::micro>(span).count(); };
  Help helper;
  help(helper, &proxy);
  constexpr int warm = 16;
  double bandwidth = 0;
  std::chrono::steady_clock::time_point start;
  for (int n = 0; n < warm + steps; ++n) {
    if (n == warm) {
      // Starts with nothing in flight, like perftest.
      while (rank == 0 && detail::HostMemory::load_credit(out.drained) < Word(warm))
        detail::HostMemory::pause();
      start = now();
    }
    rank == 0 ? put(out, Word(bytes)) : take(in);
  }
  if (rank == 0) {
    take(in);  // the other end has all of it
    bandwidth = double(bytes) * steps / us(now() - start);
  } else {
    put(out, 8);
  }
  std::vector<double> trips;
  for (int n = 0; n < pings; ++n) {
    const auto then = now();
    if (rank == 0) {
      put(out, Word(bytes));
      take(in);
    } else {
      take(in);
      put(out, Word(bytes));
    }
    trips.push_back(us(now() - then) / 2);
  }
  std::sort(trips.begin(), trips.end());
  if (rank == 0) {
    fmt::print("ccl {} bytes: {:.1f} MB/s", bytes, bandwidth);
    if (pings > 0)
      fmt::print(", median of {} half round trips {:.1f} us", pings, trips[trips.size() / 2]);
    fmt::print("\n");
  }
  helper.reset();  // without help from now on: the engine sends the remaining steps
  char mine = 1, theirs = 0;
  (void)swap_bytes(fd, &mine, &theirs, 1);
  CHECK(status.ok());
}
