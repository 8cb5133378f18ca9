#include "net/crypto/encryption.hpp"

#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <mutex>

#include "base/fork_mutex.hpp"
#include "net/crypto/sodium.hpp"
#include <strings.h>

namespace ccl::detail::net {

std::string_view name(Encryption encryption) {
  switch (encryption) {
    case Encryption::off:
      return "off";
    case Encryption::integrity:
      return "integrity";
    case Encryption::full:
      return "full";
  }
  return "unknown";
}

namespace {
/// Key of the process.
struct Key {
  std::optional<Digest> digest;
  ForkMutex mutex{[] {}};  // 32 bytes are copied at once
};
Key& key() {
  static Key* const one = new Key;  // until the process ends
  return *one;
}
}  // namespace

Result<void> use_key(Bytes text) {
  if (!text.empty() && !has_sodium()) {
    return fail(Errc::not_supported,
                fmt::format("connections cannot be encrypted ({}), or leave the key out",
                            sodium_problem()));
  }
  std::optional<Digest> digest;
  if (!text.empty()) digest = sha256(text);
  const std::lock_guard lock{key().mutex};
  key().digest = digest;
  return {};
}

std::optional<Digest> key_in_use() {
  const std::lock_guard lock{key().mutex};
  return key().digest;
}

Result<Encryption> wanted_encryption() {
  if (key_in_use()) return Encryption::full;
  CCL_TRY(const std::string word, setting_text("ENCRYPTION"));
  if (word == "OFF") return Encryption::off;
  if (!has_sodium()) {
    return fail(Errc::not_supported,
                fmt::format("CCL_ENCRYPTION is {} and cannot be had ({}), or unset CCL_ENCRYPTION "
                            "on all ranks",
                            word, sodium_problem()));
  }
  return word == "FULL" ? Encryption::full : Encryption::integrity;
}

bool has_aes() {
  return has_sodium() && sodium().has_aes() == 1;
}

// The library wants the expanded key of AES at a multiple of 16 bytes.
struct RecordCipher::Keys {
  alignas(16) std::array<unsigned char, 512> aes{};
  std::array<unsigned char, 32> chacha{};
  bool use_aes = false;
  const Sodium* library = &sodium();
  ~Keys() {
    ::explicit_bzero(aes.data(), aes.size());
    ::explicit_bzero(chacha.data(), chacha.size());
  }
};

RecordCipher::RecordCipher(Encryption encryption, bool aes, const Digest& key)
    : keys_(std::make_unique<Keys>()), encryption_(encryption) {
  std::memcpy(keys_->chacha.data(), key.data(), key.size());
  keys_->use_aes = aes;
  if (aes) keys_->library->aes_prepare(keys_->aes.data(), keys_->chacha.data());
}
RecordCipher::~RecordCipher() = default;
RecordCipher::RecordCipher(RecordCipher&&) noexcept = default;
RecordCipher& RecordCipher::operator=(RecordCipher&&) noexcept = default;

size_t RecordCipher::body_bytes(const std::byte* head) {
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, head, sizeof bytes);
  return bytes;
}

namespace {

using RecordNonce = std::array<unsigned char, 12>;
RecordNonce nonce_of(std::uint64_t number) {
  RecordNonce nonce{};
  std::memcpy(nonce.data() + 4, &number, sizeof number);
  return nonce;
}
unsigned char* raw_of(std::byte* at) {
  return reinterpret_cast<unsigned char*>(at);
}
const unsigned char* raw_of(const std::byte* at) {
  return reinterpret_cast<const unsigned char*>(at);
}

}  // namespace

void RecordCipher::seal(Bytes body, std::byte* out) {
  const auto bytes = std::uint32_t(body.size());
  std::memcpy(out, &bytes, record_head_bytes);
  std::byte* const to = out + record_head_bytes;
  const bool hides = encryption_ == Encryption::full;
  if (!hides && to != body.data() && bytes > 0) std::memcpy(to, body.data(), bytes);
  // With `integrity`, the message is empty, and head and body are what is only authenticated.
  const unsigned char* const in = raw_of(hides ? body.data() : nullptr);
  const size_t in_bytes = hides ? body.size() : 0;
  const size_t also_bytes = record_head_bytes + (hides ? 0 : body.size());
  unsigned char* const result = raw_of(hides ? to : to + bytes);
  const RecordNonce nonce = nonce_of(number_++);
  unsigned long long written = 0;
  if (keys_->use_aes) {
    keys_->library->aes_seal(result, &written, in, in_bytes, raw_of(out), also_bytes, nullptr,
                             nonce.data(), keys_->aes.data());
  } else {
    keys_->library->chacha_seal(result, &written, in, in_bytes, raw_of(out), also_bytes, nullptr,
                                nonce.data(), keys_->chacha.data());
  }
}

bool RecordCipher::open(Bytes record, std::byte* body) {
  const size_t bytes = record.size() - record_head_bytes - record_tag_bytes;
  const bool hides = encryption_ == Encryption::full;
  const std::byte* const from = record.data() + record_head_bytes;
  const unsigned char* const in = raw_of(hides ? from : from + bytes);
  const size_t in_bytes = record_tag_bytes + (hides ? bytes : 0);
  const size_t also_bytes = record_head_bytes + (hides ? 0 : bytes);
  const RecordNonce nonce = nonce_of(number_);
  // Also an empty message needs a place for its result.
  unsigned char nothing = 0;
  unsigned char* const to = hides ? raw_of(body) : &nothing;
  unsigned long long written = 0;
  const int result =
      keys_->use_aes
          ? keys_->library->aes_open(to, &written, nullptr, in, in_bytes, raw_of(record.data()),
                                     also_bytes, nonce.data(), keys_->aes.data())
          : keys_->library->chacha_open(to, &written, nullptr, in, in_bytes, raw_of(record.data()),
                                        also_bytes, nonce.data(), keys_->chacha.data());
  if (result != 0) return false;
  ++number_;
  if (!hides && body != from && bytes > 0) std::memcpy(body, from, bytes);
  return true;
}

}  // namespace ccl::detail::net
