#include "transport/edge_error.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/io/os_error.hpp"
#include "net/message_rules.hpp"

namespace ccl::detail {

Error edge_error(const Edge& edge, const char* transport, Errc code, std::string what,
                 int os_code) {
  Error error = os_error(code, std::move(what), os_code);
  error.rank = edge.self.rank;
  error.peer = edge.peer.rank;
  error.host = edge.self.host;
  error.transport = transport;
  return error;
}

std::string broken_protocol(const Edge& edge, std::string_view why) {
  return net::protocol_error(fmt::format("rank {} on {}", edge.peer.rank, edge.peer.host),
                             edge.peer.rank,
                             fmt::format("rank {} on {}", edge.self.rank, edge.self.host), why)
      .what;
}

std::string differing_shapes(const Edge& edge, const WireShape& theirs) {
  const auto said = [](const WireShape& shape) {
    return fmt::format("{} channels of {} slots of {} bytes", shape.channels, shape.slot_count,
                       shape.slot_bytes);
  };
  return fmt::format(
      "rank {} made a wire of {} where rank {} made {}; give the same plan and settings on all "
      "ranks",
      edge.peer.rank, said(theirs), edge.self.rank, said(edge.shape));
}

}  // namespace ccl::detail
