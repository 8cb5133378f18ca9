#pragma once

#include <string_view>

#include "net/crypto/sha256.hpp"

namespace ccl::detail::net {

// A secret has 127 bits. The highest bit of its last byte is set if the others come from public
// words, so that a stranger can guess them. The handshake then resists guesses: see handshake.hpp.
// The bit belongs to the secret, so it reaches every place that the secret reaches.

/// True if the secret comes from public words.
bool is_guessable(const Secret& secret);
Secret random_secret();
/// Secret of a text that only the job's user knows.
Secret secret_of_text(Bytes text);
/// Guessable secret of public words.
Secret secret_of_words(std::string_view words);
/// Secret that depends on `parent` and on `text`. It is guessable if `parent` is.
Secret derived_secret(const Secret& parent, Bytes text);

}  // namespace ccl::detail::net
