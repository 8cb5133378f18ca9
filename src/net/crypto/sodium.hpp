#pragma once

#include <cstddef>

namespace ccl::detail::net {

// Functions of libsodium that ccl uses: member, function, parameters. libsodium is opened at run
// time, so a program runs with and without it.
#define CCL_SODIUM_CALLS(X)                                                                 \
  X(point_from_hash, crypto_core_ristretto255_from_hash,                                    \
    (unsigned char* point, const unsigned char* hash64))                                    \
  X(point_is_valid, crypto_core_ristretto255_is_valid_point, (const unsigned char* point))  \
  X(multiply, crypto_scalarmult_ristretto255,                                               \
    (unsigned char* product, const unsigned char* scalar, const unsigned char* point))      \
  X(sha512, crypto_hash_sha512,                                                             \
    (unsigned char* digest, const unsigned char* in, unsigned long long bytes))             \
  X(has_aes, crypto_aead_aes256gcm_is_available, ())                                        \
  X(aes_prepare, crypto_aead_aes256gcm_beforenm, (void* state, const unsigned char* key))   \
  X(aes_seal, crypto_aead_aes256gcm_encrypt_afternm,                                        \
    (unsigned char* out, unsigned long long* out_bytes, const unsigned char* in,            \
     unsigned long long in_bytes, const unsigned char* also, unsigned long long also_bytes, \
     const unsigned char* none, const unsigned char* nonce, const void* state))             \
  X(aes_open, crypto_aead_aes256gcm_decrypt_afternm,                                        \
    (unsigned char* out, unsigned long long* out_bytes, unsigned char* none,                \
     const unsigned char* in, unsigned long long in_bytes, const unsigned char* also,       \
     unsigned long long also_bytes, const unsigned char* nonce, const void* state))         \
  X(chacha_seal, crypto_aead_chacha20poly1305_ietf_encrypt,                                 \
    (unsigned char* out, unsigned long long* out_bytes, const unsigned char* in,            \
     unsigned long long in_bytes, const unsigned char* also, unsigned long long also_bytes, \
     const unsigned char* none, const unsigned char* nonce, const unsigned char* key))      \
  X(chacha_open, crypto_aead_chacha20poly1305_ietf_decrypt,                                 \
    (unsigned char* out, unsigned long long* out_bytes, unsigned char* none,                \
     const unsigned char* in, unsigned long long in_bytes, const unsigned char* also,       \
     unsigned long long also_bytes, const unsigned char* nonce, const unsigned char* key))

/// Table of the functions above. All return 0 on success, and the predicates 1 for yes.
struct Sodium {
#define CCL_SODIUM_MEMBER(member, function, parameters) int(*member) parameters = nullptr;
  CCL_SODIUM_CALLS(CCL_SODIUM_MEMBER)
#undef CCL_SODIUM_MEMBER
};

/// True if there is a libsodium 1.0.18 or later on this machine.
bool has_sodium();
/// Returns the table. Its functions may be called only after `has_sodium()` has been true.
const Sodium& sodium();
/// Reason why `has_sodium()` is false.
const char* sodium_problem();
/// Makes `has_sodium()` false while `hidden` is true. For tests of machines without libsodium.
void hide_sodium(bool hidden);

}  // namespace ccl::detail::net
