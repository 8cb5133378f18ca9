#pragma once

#include <ccl/types/word.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace ccl::detail {

/// Tag of peer messages about idle connections. No edge and no call has it.
constexpr std::uint64_t idle_tag = std::uint64_t{3} << 61;

/// Message of two ranks about their connections of one composition. The lower rank requests the
/// close, and the higher rank answers.
struct IdleMessage {
  enum class Kind : int { request, closed, refused };
  Kind kind = Kind::request;
  int composition = 0;
  std::uint64_t number = 0;  // of the request, among those for this composition and pair
  Word edges = 0;            // `up` and `down`: connections that the request is for
  // Steps of all channels of a request: those that the lower rank has sent, and received.
  Word sent = 0, received = 0;

  static constexpr Word up = 1;    // from the lower rank to the higher
  static constexpr Word down = 2;  // from the higher rank to the lower
};

/// Reads a message of rank `sender` for rank `self`. Returns nothing, and what does not fit in
/// `why`, if it cannot be one.
std::optional<IdleMessage> read_idle_message(std::span<const std::byte> text, int sender, int self,
                                             std::string& why);

}  // namespace ccl::detail
