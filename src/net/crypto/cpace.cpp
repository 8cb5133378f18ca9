#include "net/crypto/cpace.hpp"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "net/crypto/sodium.hpp"

namespace ccl::detail::net {
namespace {

constexpr std::string_view suite = "CPaceRistretto255";
constexpr std::string_view key_label = "CPaceRistretto255_ISK";
constexpr size_t hash_block_bytes = 128;  // of SHA-512

Bytes bytes_of_text(std::string_view text) {
  return std::as_bytes(std::span{text.data(), text.size()});
}
const unsigned char* raw(Bytes bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
template <size_t N>
unsigned char* raw(std::array<std::byte, N>& bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}

/// Number of bytes of a length in the code LEB128.
size_t code_bytes(size_t length) {
  size_t n = 1;
  while (length >= 128) {
    length >>= 7;
    ++n;
  }
  return n;
}

/// Concatenates the parts, each after its length in LEB128.
std::vector<std::byte> framed(std::initializer_list<Bytes> parts) {
  std::vector<std::byte> out;
  for (const Bytes part : parts) {
    size_t length = part.size();
    for (; length >= 128; length >>= 7) out.push_back(std::byte(length & 127) | std::byte{128});
    out.push_back(std::byte(length));
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

ExchangedKey sha512(Bytes text) {
  ExchangedKey out;
  sodium().sha512(raw(out), raw(text), text.size());
  return out;
}

}  // namespace

Share cpace_generator(Bytes password, Bytes channel, Bytes session) {
  const Bytes label = bytes_of_text(suite);
  // Zeros complete the first block of the hash, so that its time does not depend on the password.
  const size_t used =
      1 + code_bytes(label.size()) + label.size() + code_bytes(password.size()) + password.size();
  const std::vector<std::byte> zeros(used < hash_block_bytes ? hash_block_bytes - used : 0);
  const ExchangedKey digest = sha512(framed({label, password, zeros, channel, session}));
  Share out;
  sodium().point_from_hash(raw(out), raw(digest));
  return out;
}

CpaceShare CpaceShare::make(const Share& generator, const Share& scalar) {
  CpaceShare out{scalar, {}};
  // A scalar of zero gives the identity, which the other end refuses.
  if (sodium().multiply(raw(out.share), raw(Bytes{scalar}), raw(Bytes{generator})) != 0) {
    out.share = {};
  }
  return out;
}

CpaceShare CpaceShare::make(const Share& generator) {
  Share scalar;
  fill_random(scalar);
  scalar.back() &= std::byte{0x0f};  // below the order of the group, as the draft samples it
  return make(generator, scalar);
}

std::optional<ExchangedKey> cpace_key(const CpaceShare& mine, const Share& theirs, Bytes session,
                                      const CpaceMessage& initiator,
                                      const CpaceMessage& responder) {
  Share product{};
  if (sodium().point_is_valid(raw(Bytes{theirs})) != 1 ||
      sodium().multiply(raw(product), raw(Bytes{mine.scalar}), raw(Bytes{theirs})) != 0 ||
      product == Share{}) {
    return {};
  }
  std::vector<std::byte> text = framed({bytes_of_text(key_label), session, product});
  const auto transcript =
      framed({initiator.share, initiator.associated, responder.share, responder.associated});
  text.insert(text.end(), transcript.begin(), transcript.end());
  return sha512(text);
}

}  // namespace ccl::detail::net
