#pragma once

#include <string>

#include "bootstrap/members/membership.hpp"
#include "bootstrap/members/peer_sockets.hpp"
#include "net/conn.hpp"
#include "net/rendezvous.hpp"

namespace ccl::detail {

/// Returns why a connection with this hello is none of another rank of the job, or an empty text.
/// Once this rank knows all members, a hello must be that of the member whose rank it claims.
std::string wrong_hello(const Membership& members, const net::Hello& hello);

/// Returns why a rank that has `open` connections to this one gets no further one, or an empty
/// text.
std::string too_many_connections(const net::Member& rank, std::size_t open);

/// Bytes that a connection or a rank may send before this rank has a use for them. One frame may be
/// larger.
constexpr std::size_t max_early_bytes = std::size_t{1} << 28;

/// Returns why the frame does not fit the rank at the other end of its connection, or an empty
/// text. A frame that fits may be handled without further checks, except those of the state of a
/// call.
std::string wrong_frame(const Membership& members, PeerRole role, int sender,
                        const net::FrameHeader& header, net::Bytes payload);

}  // namespace ccl::detail
