#pragma once

#include <ccl/transport/proxy_task.hpp>
#include <ccl/types/connection.hpp>
#include <ccl/types/error.hpp>
#include <ccl/types/wire.hpp>

#include <cstdint>
#include <memory>
#include <utility>

#include "base/io/fd.hpp"
#include "base/io/mapping.hpp"
#include "net/socket.hpp"
#include "support/catch.hpp"
#include "support/lent.hpp"
#include "transport/proxied/control_socket.hpp"
#include "transport/wire_layout.hpp"
#include <sys/socket.h>

namespace ccl::test {

/// One end of a connection whose peer is the test. `Say`: types of the control messages.
template <class Link, class Say, auto make_receiver, auto make_sender>
struct LoneEnd {
  LoneEnd(EdgeSide side, const WireShape& shape) {
    link->edge.side = side;
    link->edge.shape = shape;
    link->edge.self.rank = side == EdgeSide::receiver ? 1 : 0;
    link->edge.peer.rank = 1 - link->edge.self.rank;
    link->context = lent.context;
    link->deadline = detail::net::Deadline::after(20).at();
    REQUIRE(link->prepare().has_value());
    const auto layout = detail::WireLayout::of(shape).value();
    link->memory = detail::Mapping::anonymous(layout.bytes()).value();
    link->wires = layout.wires(link->memory.base(), side, true);
    link->arriving.resize(1);
    int both[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) == 0);
    far = detail::Fd{both[1]};
    detail::net::SecureSocket near{detail::Fd{both[0]}};
    if (side == EdgeSide::receiver) {
      REQUIRE(link->arriving.put(0, near));
      task = make_receiver(link);
    } else {
      task = make_sender(link, std::move(near));
    }
  }
  ~LoneEnd() {
    link->closing = true;
    for (int turn = 0; turn < 1000 && task->progress(counters) != ProxyTask::Progress::ended;
         ++turn) {
    }
  }
  /// Sends a control message of the peer.
  void send(Say say, const detail::ControlWriter& message) const {
    const struct {
      Say say;
      std::uint32_t bytes;
    } head{say, std::uint32_t(message.body.size())};
    REQUIRE(::send(far.get(), &head, sizeof head, 0) == ssize_t(sizeof head));
    REQUIRE(::send(far.get(), message.body.data(), message.body.size(), 0) ==
            ssize_t(message.body.size()));
  }
  /// Returns the error of the link after this message.
  Error after(Say say, const detail::ControlWriter& message) {
    send(say, message);
    for (int turn = 0; turn < 300 && link->state() != Link::State::failed; ++turn) {
      (void)task->progress(counters);
    }
    return link->error();
  }
  Lent lent;
  std::shared_ptr<Link> link = std::make_shared<Link>();
  std::shared_ptr<ProxyTask> task;
  ProxyCounters counters;
  detail::Fd far;
};

}  // namespace ccl::test
