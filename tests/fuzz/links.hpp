#pragma once

// Ends of connections over networks, and control messages of the other end.
#include <ccl/transport/transport.hpp>

#include <cstdint>
#include <memory>
#include <string>

#include "base/io/mapping.hpp"
#include "fuzz/fuzz.hpp"
#include "net/socket.hpp"
#include "transport/wire_layout.hpp"

namespace ccl::fuzz {

constexpr WireShape link_shape{2, 4, 4096};

/// An end with its memory, between rank 0, which sends, and rank 1.
template <class Link>
std::shared_ptr<Link> make_link(const TransportContext& context, EdgeSide side) {
  auto link = std::make_shared<Link>();
  link->edge.side = side;
  link->edge.shape = link_shape;
  link->edge.self.rank = side == EdgeSide::receiver ? 1 : 0;
  link->edge.peer.rank = 1 - link->edge.self.rank;
  link->context = context;
  link->context.status = nullptr;  // an end that loses the other one waits for no cause
  link->deadline = detail::net::Deadline::after(20).at();
  demand(link->prepare().has_value(), "prepare");
  const auto layout = detail::WireLayout::of(link_shape).value();
  link->memory = detail::Mapping::anonymous(layout.bytes()).value();
  link->wires = layout.wires(link->memory.base(), side, true);
  link->arriving.resize(1);
  return link;
}

/// A control message of type `say` with these values.
template <class Say, class... T>
std::string message(Say say, const T&... values) {
  const std::string body = bytes_of(values...);
  const struct {
    std::uint32_t say, bytes;
  } head{std::uint32_t(say), std::uint32_t(body.size())};
  return bytes_of(head) + body;
}

}  // namespace ccl::fuzz
