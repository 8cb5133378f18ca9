#pragma once

// Faults of networks: a socket at which nothing arrives, and a proxy that does not run.
#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "comm/state.hpp"
#include "support/fault_calls.hpp"
#include <linux/filter.h>
#include <sys/socket.h>

namespace ccl::test::faults {

/// Descriptors of this process's TCP connections, and what they name.
inline std::map<int, std::string> tcp_sockets() {
  std::map<int, std::string> found;
  for (const std::string& text : list_dir("/proc/self/fd")) {
    const int fd = std::atoi(text.c_str());
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
        (peer.ss_family == AF_INET || peer.ss_family == AF_INET6)) {
      char path[128] = {};
      (void)!::readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), path, sizeof path - 1);
      found[fd] = path;
    }
  }
  return found;
}

/// Lets the network stack drop all that arrives at a socket. The other end gets no answer.
inline bool silence(int fd) {
  sock_filter drop{BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog program{1, &drop};
  return ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0;
}

/// Task of a proxy that never returns, as if its thread had no CPU.
struct Holds final : ProxyTask {
  explicit Holds(Board& of) : board{of} {}
  Progress progress(ProxyCounters&) override {
    if (!begun) fires(board);
    begun = true;
    wait_for_the_end(board);
    return Progress::none;
  }
  ProxyInterest interest() const override { return {.pending = true}; }
  bool ending() const override { return false; }
  Board& board;
  bool begun = false;
};

/// Ranks that send to the victim in rings, as bits.
inline unsigned senders_to_victim(const Communicator& comm) {
  const auto& arrangement = detail::Access::state(comm)->identity.arrangement();
  unsigned senders = 0;
  for (int c = 0; c < arrangement.ring_count(); ++c) {
    const std::vector<int>& ring = arrangement.ring(c);
    for (std::size_t n = 0; n < ring.size(); ++n) {
      if (ring[(n + 1) % ring.size()] == victim) senders |= 1U << ring[n];
    }
  }
  return senders;
}

template <class C>
void faults_of_links() {
  play<C>("a link delivers nothing", {Cause::silent_link, -1, "has sent to rank 2"},
          [](C& calls) -> Result<void> {
            CCL_CHECK(calls.comm.barrier());
            if (calls.is_victim()) {
              // The data sockets of its neighbors in the ring, which ranks that share GPUs order.
              const auto before = tcp_sockets();
              CCL_TRY(const auto late, C::Sums::create(calls.comm));
              int silenced = 0;
              for (const auto& [fd, text] : tcp_sockets()) {
                const auto old = before.find(fd);
                if (old != before.end() && old->second == text) continue;
                silenced += silence(fd);
              }
              calls.board.may_be_behind = senders_to_victim(calls.comm);
              if (silenced > 0) fires(calls.board);
              return calls.ended(late(calls.x.data(), calls.y.data(), count));
            }
            CCL_TRY(const auto late, C::Sums::create(calls.comm));
            return calls.ended(late(calls.x.data(), calls.y.data(), count));
          });
}

template <class C>
void faults_of_proxies() {
  play<C>("a proxy does not run", {Cause::stuck_proxy, victim, "has not run for"},
          [](C& calls) -> Result<void> {
            if (calls.is_victim()) {
              auto& proxy = detail::Access::state(calls.comm)->proxy;
              CCL_CHECK(proxy.add(std::make_shared<Holds>(calls.board)));
              (void)wait_until([&] { return calls.board.fired > 0; }, give_up_s);
            }
            return calls.sum();
          });
}

template <class C>
void faults_of_networks() {
  faults_of_links<C>();
  faults_of_proxies<C>();
}

}  // namespace ccl::test::faults
