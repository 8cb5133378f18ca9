#include "net/crypto/sha256.hpp"

#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <sys/random.h>

namespace ccl::detail::net {
namespace {

// Fractional parts of the cube roots of the first 64 primes.
constexpr std::uint32_t k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void compress(std::uint32_t (&h)[8], const unsigned char* block) {
  std::uint32_t w[64];
  for (int i = 0; i < 16; ++i) {
    w[i] = std::uint32_t{block[4 * i]} << 24 | std::uint32_t{block[4 * i + 1]} << 16 |
           std::uint32_t{block[4 * i + 2]} << 8 | std::uint32_t{block[4 * i + 3]};
  }
  for (int i = 16; i < 64; ++i) {
    const auto a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) + w[i - 7] +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
  }
  std::uint32_t s[8];
  std::memcpy(s, h, sizeof s);
  for (int i = 0; i < 64; ++i) {
    const auto e = s[4], a = s[0];
    const auto t1 = s[7] + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                    ((e & s[5]) ^ (~e & s[6])) + k[i] + w[i];
    const auto t2 = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) +
                    ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
    for (int j = 7; j > 0; --j) s[j] = s[j - 1];
    s[4] += t1;
    s[0] = t1 + t2;
  }
  for (int i = 0; i < 8; ++i) h[i] += s[i];
}

}  // namespace

Digest sha256(Bytes data) {
  std::uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const auto* at = reinterpret_cast<const unsigned char*>(data.data());
  size_t left = data.size();
  for (; left >= 64; left -= 64, at += 64) compress(h, at);
  unsigned char tail[128] = {};
  if (left != 0) std::memcpy(tail, at, left);
  tail[left] = 0x80;
  const size_t tail_bytes = left < 56 ? 64 : 128;
  const std::uint64_t bits = std::uint64_t{data.size()} * 8;
  for (size_t i = 0; i < 8; ++i) {
    tail[tail_bytes - 1 - i] = static_cast<unsigned char>(bits >> (8 * i));
  }
  for (size_t i = 0; i < tail_bytes; i += 64) compress(h, tail + i);
  Digest out;
  for (size_t i = 0; i < 32; ++i) out[i] = std::byte(h[i / 4] >> (24 - 8 * (i % 4)));
  return out;
}

Digest hmac_sha256(Bytes key, Bytes data) {
  Digest hashed;
  if (key.size() > 64) key = hashed = sha256(key);
  std::vector<std::byte> inner(64 + data.size(), std::byte{0x36});
  std::vector<std::byte> outer(64 + 32, std::byte{0x5c});
  for (size_t i = 0; i < key.size(); ++i) {
    inner[i] ^= key[i];
    outer[i] ^= key[i];
  }
  if (!data.empty()) std::memcpy(inner.data() + 64, data.data(), data.size());
  const Digest first = sha256(inner);
  std::memcpy(outer.data() + 64, first.data(), first.size());
  return sha256(outer);
}

bool same_digest(const Digest& a, const Digest& b) {
  std::byte difference{0};
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

void fill_random(std::span<std::byte> out) {
  while (!out.empty()) {
    const auto n = ::getrandom(out.data(), out.size(), 0);
    if (n < 0 && errno != EINTR) std::abort();  // the secret would be predictable
    if (n > 0) out = out.subspan(size_t(n));
  }
}

}  // namespace ccl::detail::net
