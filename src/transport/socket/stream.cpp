#include "transport/socket/stream.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "transport/edge_error.hpp"
#include "transport/proxied/cause.hpp"
#include "transport/socket/task.hpp"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace ccl::detail {

void tune_for_steps(int socket) {
  const int on = 1, never = 0;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &never, sizeof never);
}

std::string SocketLink::interface_of(int socket) const {
  const auto bound = net::bound_address(socket);
  if (!bound) return {};
  const net::WireAddress mine = bound->wire();
  for (const net::Interface& one : net::list_interfaces()) {
    const net::WireAddress its = one.address.wire();
    if (its.family == mine.family && std::ranges::equal(its.ip, mine.ip)) return one.name;
  }
  return bound->to_string();
}

void SocketLink::publish(int channel, int stream, Word steps) {
  const Wire& wire = wires[std::size_t(channel)];
  Word* const reported = edge.side == EdgeSide::sender ? wire.drained : wire.posted;
  if (streams == 1) return HostMemory::store_release(reported, steps);
  std::atomic<Word>* const all = done.get() + std::size_t(channel) * std::size_t(streams);
  all[stream].store(steps);
  Word least = steps;
  for (int s = 0; s < streams; ++s) least = std::min(least, all[s].load());
  // Streams of other threads call this, too; the count never decreases.
  const std::atomic_ref<Word> count{*reported};
  Word seen = count.load();
  while (seen < least && !count.compare_exchange_weak(seen, least)) {
  }
}

bool SocketLink::leaving() const {
  if (closing.load()) return true;
  if (!both_ways.load()) return false;
  const auto back = mate();
  return back == nullptr || back->closing.load();
}

void SocketLink::lose(const char* what, int os_code) {
  if (const char* const broken = net::broken_record(os_code)) {
    return fail_with(Errc::refused,
                     fmt::format("the connection to rank {} on {} is not what it was ({})",
                                 edge.peer.rank, edge.peer.host, broken),
                     os_code);
  }
  if (!await_cause(context.status, edge.peer.rank, [this] { return leaving(); })) return;
  fail_with(Errc::peer_lost,
            os_code == 0
                ? fmt::format("lost rank {} on {} ({})", edge.peer.rank, edge.peer.host, what)
                : fmt::format("lost rank {} on {} ({}: {})", edge.peer.rank, edge.peer.host, what,
                              std::strerror(os_code)),
            os_code);
}

void SocketLink::fail_to_open(Error error) {
  if (!await_cause(context.status, edge.peer.rank, [this] { return leaving(); })) return;
  fail_with(error.code,
            fmt::format("the connection to rank {} on {}, which a step needs, cannot be opened "
                        "({})",
                        edge.peer.rank, edge.peer.host, error.what),
            error.os_code);
}

void SocketLink::fail_with(Errc code, std::string what, int os_code) {
  if (context.status == nullptr || leaving()) return;
  context.status->set(edge_error(edge, name, code, std::move(what), os_code));
}

}  // namespace ccl::detail
