#include "transport/proof.hpp"

namespace ccl::detail {

// The nonce is a one-time pad: it is random, used for one edge, and travels between the two ends
// over the communicator's own connections only.
Proof proof_of(const TransportContext& context, const Nonce& nonce, unsigned long long edge_id,
               unsigned index) {
  Proof proof;
  for (std::size_t n = 0; n < proof.size(); ++n) proof[n] = nonce[n] ^ context.secret[n];
  proof[0] ^= std::byte(index);
  proof[1] ^= std::byte(edge_id & 255);
  return proof;
}

}  // namespace ccl::detail
