#include "net/crypto/sha256.hpp"

#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/hex.hpp"

using namespace ccl::detail::net;
using namespace ccl::test;

namespace {

std::string sha(std::string_view text) {
  return to_hex(sha256(text_bytes(text)));
}
std::string repeated(std::size_t count, char c) {
  return to_hex(sha256(text_bytes(std::string(count, c))));
}
std::string hmac(std::string_view key, std::string_view text) {
  return to_hex(hmac_sha256(text_bytes(key), text_bytes(text)));
}
/// Bytes whose values differ between positions and lengths.
std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = std::byte((7 * i + bytes) & 255);
  return out;
}

}  // namespace

TEST_CASE("SHA-256 gives the published digests") {
  // FIPS 180-4
  CHECK(sha("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(
      sha("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqr"
          "lmnopqrsmnopqrstnopqrstu") ==
      "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  CHECK(repeated(1'000'000, 'a') ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  // NIST CAVP, SHA256ShortMsg
  CHECK(sha("\xd3") == "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1");
  CHECK(sha("\x11\xaf") == "5ca7133fa735326081558ac312c620eeca9970d1e70a4b95533d956f072d1f98");
  CHECK(sha("\xb4\x19\x0e") == "dff2e73091f6c05e528896c4c831b9448653dc2ff043528f6769437bc7b975c2");
}

TEST_CASE("SHA-256 gives NIST's digests around the edges of a block") {
  // NIST, SHA-256 test data: zeros, of which 55 is the most that fits one block with its length
  CHECK(repeated(55, '\0') == "02779466cdec163811d078815c633f21901413081449002f24aa3e80f0b88ef7");
  CHECK(repeated(56, '\0') == "d4817aa5497628e7c77e6b606107042bbba3130888c5f47a375e6179be789fbb");
  CHECK(repeated(57, '\0') == "65a16cb7861335d5ace3c60718b5052e44660726da4cd13bb745381b235a1785");
  CHECK(repeated(64, '\0') == "f5a5fd42d16a20302798ef6ed309979b43003d2320d9f0e8ea9831a92759fb4b");
  CHECK(repeated(1000, '\0') == "541b3e9daa09b20bf85fa273e5cbd3e80185aa4ec298e765db87742b70138a53");
  CHECK(repeated(1000, 'A') == "c2e686823489ced2017f6059b8b239318b6364f6dcd835d0a519105a1eadd6e4");
  CHECK(repeated(1005, 'U') == "f4d62ddec0f3dd90ea1380fa16a5ff8dc4c54b21740650f24afc4120903552b0");
  CHECK(repeated(1'000'000, '\0') ==
        "d29751f2649b32ff572b5e0a9f541ea660a50f94ff0beedfb0b692b924cc8025");
}

TEST_CASE("SHA-256 and HMAC agree with OpenSSL at every length") {
  // Digest of the digests of patterns of 0 to 300 bytes. OpenSSL gave the value, through Python:
  // sha256(b''.join(sha256(bytes((7*i+n)&255 for i in range(n))).digest() for n in range(301)))
  std::vector<std::byte> digests;
  for (std::size_t n = 0; n <= 300; ++n) {
    const Digest one = sha256(pattern(n));
    digests.insert(digests.end(), one.begin(), one.end());
  }
  CHECK(to_hex(sha256(digests)) ==
        "60d63ff40b5558727a9b786ac0be9300f7ca58fd9ddd3b2f3681b369018a87dc");
  // The same for HMAC, with keys (k+i)&255 of k bytes and texts of 0 to 139 bytes.
  digests.clear();
  for (const std::size_t k : {0, 1, 32, 63, 64, 65, 127, 128, 129}) {
    std::vector<std::byte> key(k);
    for (std::size_t i = 0; i < k; ++i) key[i] = std::byte((k + i) & 255);
    for (std::size_t n = 0; n < 140; ++n) {
      const Digest one = hmac_sha256(key, pattern(n));
      digests.insert(digests.end(), one.begin(), one.end());
    }
  }
  CHECK(to_hex(sha256(digests)) ==
        "5b2ac79b57b33b697673fac19ea6d7ec47ec375d533acb56bc3c7c52e5a7651a");
}

TEST_CASE("HMAC gives the answers of RFC 4231") {
  std::string counting;
  for (char c = 1; c <= 25; ++c) counting += c;
  const std::string large(131, '\xaa');
  CHECK(hmac(std::string(20, '\x0b'), "Hi There") ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hmac("Jefe", "what do ya want for nothing?") ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hmac(std::string(20, '\xaa'), std::string(50, '\xdd')) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  CHECK(hmac(counting, std::string(50, '\xcd')) ==
        "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  // Case 5 publishes the first 128 bits.
  CHECK(hmac(std::string(20, '\x0c'), "Test With Truncation").substr(0, 32) ==
        "a3b6167473100ee06e0c796c2955552b");
  CHECK(hmac(large, "Test Using Larger Than Block-Size Key - Hash Key First") ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  CHECK(hmac(large,
             "This is a test using a larger than block-size key and a larger than block-size data. "
             "The key needs to be hashed before being used by the HMAC algorithm.") ==
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}
