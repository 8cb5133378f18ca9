#include "transport/proof.hpp"

#include <algorithm>

#include "net/crypto/sha256.hpp"

namespace ccl::detail {

Proof proof_of(const TransportContext& context, const Nonce& nonce, unsigned long long edge_id,
               unsigned index) {
  struct {
    Nonce nonce;
    unsigned long long edge_id;
    unsigned long long index;
  } const text{nonce, edge_id, index};
  const net::Digest digest = net::hmac_sha256(context.secret, std::as_bytes(std::span{&text, 1}));
  Proof proof;
  std::copy_n(digest.begin(), proof.size(), proof.begin());
  return proof;
}

}  // namespace ccl::detail
