// Handshakes of the other end, to each transport that needs no device. All runs in a network
// namespace without interfaces, so that no address leads anywhere.
#include <ccl/transport/loopback.hpp>
#include <ccl/transport/shm.hpp>
#include <ccl/transport/socket.hpp>

#include "fuzz/fuzz.hpp"
#include "net/address.hpp"
#include "support/lent.hpp"
#include "transport/fd_server.hpp"
#include "transport/handshake_fields.hpp"
#include "transport/proof.hpp"
#include <sched.h>

namespace ccl::fuzz {

using namespace detail;

namespace {
constexpr WireShape shape{1, 2, 128};

Edge edge_to_receiver() {
  Edge edge;
  edge.self.rank = 0;
  edge.peer.rank = 1;
  edge.side = EdgeSide::sender;
  edge.shape = shape;
  edge.id = 1;
  return edge;
}
template <class Transport>
void connect(const Handshake& theirs) {
  test::Lent lent;
  lent.context.deadline_s = 0.001;
  auto end = Transport::setup(lent.context, edge_to_receiver());
  if (!end) return;
  (void)end->connect(theirs);
}
}  // namespace

void prepare() {
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0) return;
  std::fprintf(stderr, "SKIP: no network namespace of its own\n");
  std::exit(77);
}

void read(Input input) {
  Source source{input};
  const auto what = source.take<std::uint8_t>() % 3;
  Handshake theirs{};
  const Input bytes = source.take_bytes(theirs.size());
  std::copy(bytes.begin(), bytes.end(), theirs.begin());
  if (what == 0) connect<LoopbackTransport>(theirs);
  if (what == 1) connect<ShmTransport>(theirs);
  if (what == 2) connect<SocketTransport>(theirs);
}

std::vector<std::string> seeds() {
  const std::string loopback{'\0'}, shm{'\1'}, socket{'\2'};
  UnixName name;
  name.address.sun_family = AF_UNIX;
  std::memcpy(name.address.sun_path, "\0abcde", 6);
  name.bytes = sizeof(sa_family_t) + 6;
  const net::WireAddress at = net::Address::parse("127.0.0.1:9").value().wire();
  const std::array<std::byte, 16> token{};
  return {loopback + bytes_of(token, Word{0}), shm + bytes_of(Nonce{}, name),
          socket + bytes_of(Nonce{}, std::size_t{1}, at, int{1}, int{0}),
          socket + bytes_of(Nonce{}, std::size_t{2}, at, at, int{4}, int{1})};
}

}  // namespace ccl::fuzz
