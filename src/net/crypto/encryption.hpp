#pragma once

#include <ccl/types/result.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "net/crypto/sha256.hpp"

namespace ccl::detail::net {

/// Protection of what a connection carries after its handshake (CCL_ENCRYPTION).
enum class Encryption : std::uint8_t {
  off,
  integrity,  // authenticated, readable
  full        // authenticated and encrypted
};
/// Returns the value of CCL_ENCRYPTION that selects it.
std::string_view name(Encryption encryption);
/// Reads CCL_ENCRYPTION; `full` if the process has a key. Fails with `Errc::not_supported` if it is
/// on and libsodium is missing.
Result<Encryption> wanted_encryption();
/// Sets a key that both ends of all later connections must have, beside the communicator's secret.
/// An empty key ends this. Fails with `Errc::not_supported` if libsodium is missing, since a key is
/// given to encrypt.
Result<void> use_key(Bytes key);
/// Digest of that key, or nothing.
std::optional<Digest> key_in_use();
/// True if this CPU computes AES-256-GCM by instructions of its own and libsodium uses them.
bool has_aes();

/// Protection and keys of one connection.
struct SessionKeys {
  Encryption encryption = Encryption::off;
  bool aes = false;    // AES-256-GCM, which both ends must have; else ChaCha20-Poly1305
  Digest out{}, in{};  // one key for each direction
};

// A record: bytes of the body as 4 bytes, the body, and a tag of 16 bytes. The tag also covers the
// length. The number of the record in its direction is the nonce, so that a record which is
// altered, repeated, left out or moved does not open. With `integrity`, the body is authenticated
// as it is.
constexpr size_t record_head_bytes = 4;
constexpr size_t record_tag_bytes = 16;
constexpr size_t max_record_bytes = size_t{64} << 10;  // of the body

/// Seals or opens the records of one direction.
class RecordCipher {
 public:
  RecordCipher(Encryption encryption, bool aes, const Digest& key);
  ~RecordCipher();
  RecordCipher(RecordCipher&&) noexcept;
  RecordCipher& operator=(RecordCipher&&) noexcept;

  /// Writes the record of `body` to `out`, which has room for head, body and tag. `body` may be
  /// where the record's body goes. It has at most `max_record_bytes`.
  void seal(Bytes body, std::byte* out);
  /// Writes the body of a whole record to `body`, which may be where the body is in the record.
  /// Returns false, and writes nothing, if the record is not the next one of this direction.
  bool open(Bytes record, std::byte* body);
  /// Returns the bytes of the body by the head of a record. More than `max_record_bytes` is
  /// invalid.
  static size_t body_bytes(const std::byte* head);

 private:
  struct Keys;
  std::unique_ptr<Keys> keys_;
  Encryption encryption_;
  std::uint64_t number_ = 0;  // of the next record
};

}  // namespace ccl::detail::net
