#pragma once

#include <ccl/types/error.hpp>

#include <string>
#include <string_view>

#include "net/conn.hpp"
#include "net/rendezvous.hpp"

namespace ccl::detail::net {

// Rules of the messages between ranks and roots. A peer is authenticated and may still be of
// another version, damaged or hostile, so every field is checked before it is used. Each function
// returns what does not fit, or an empty text.

constexpr int max_ranks = 1 << 20;  // numbers of edges have 20 bits for a rank
constexpr std::uint64_t max_attempts = std::uint64_t{1} << 32;  // of a shrink

std::string_view name(FrameKind kind);
/// The header of a frame, before any of its payload is kept. A payload has at most the bytes that
/// its kind can need.
std::string wrong_header(const FrameHeader& header);
std::string wrong_address(const WireAddress& address);
/// The rank must be from `low` to `high`.
std::string wrong_member(const Member& member, int low, int high);
/// The hello of a rank to a root.
std::string wrong_join(const Hello& hello);
std::string wrong_shrink(const ShrinkHello& hello);
/// The report of a root of a job of `ranks` ranks.
std::string wrong_progress(const Progress& progress, int ranks);
std::string wrong_notice(const RootNotice& notice);
/// The frame of a rank to its root.
std::string wrong_to_root(int rank, const FrameHeader& header, Bytes payload);

/// Returns the error for a message that does not fit. It names both ends, and `peer` is `sender`.
Error protocol_error(std::string_view sender, int peer, std::string_view receiver,
                     std::string_view why);

}  // namespace ccl::detail::net
