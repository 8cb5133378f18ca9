#include <ccl/detail/exchange/posted_buffers.hpp>
#include <ccl/detail/lanes/host_memory.hpp>

#include <vector>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

namespace {

constexpr int me = 0, peer = 1;
constexpr Word flag = Word{9} << 32;

/// Wait whose reference arrives when it is awaited.
struct Arrival {
  Word* posted;
  Word where;
  bool fails = false;

  void post() const {
    posted[0] = (where & 0xffff'ffffu) | flag;
    posted[1] = where >> 32 | flag;
  }
  bool credit_pair(const Word* at, Word want, int from, Word& joined) {
    CHECK(at == posted);
    CHECK(want == flag);
    CHECK(from == peer);
    if (fails) return false;
    post();
    joined = where;
    return true;
  }
};

struct World {
  std::vector<char> scratch = std::vector<char>(64 * sizeof(Packet) + 9 * sizeof(Mailbox) + 256);
  std::vector<Word> table = std::vector<Word>(2 * RemoteBuffer::slots);
  PeerExchangeWork work;
  PostedBuffers<HostMemory, max_unrolled_ranks> buffers{work};

  World() {
    const auto at = reinterpret_cast<Word>(scratch.data());
    work.peers.scratch[me] = reinterpret_cast<Packet*>((at + 255) / 256 * 256);
    work.peers.half_packets = 32;
    work.peers.rank = me;
    work.peers.ranks = 2;
    work.table = table.data();
  }
  Word* posted() { return const_cast<Word*>(buffers.posted(peer)); }
  void map(Word id, Word base) {
    const int slot = RemoteBuffer::slot(RemoteBuffer::where(id, 0));
    table[std::size_t(peer * RemoteBuffer::slots + slot)] = RemoteBuffer::entry(id, base);
  }
  /// Returns the place of a buffer whose reference arrives, or 1 if the wait failed.
  Word await(Word where, bool may_be_mapped = true, bool fails = false) {
    Arrival arrival{posted(), where, fails};
    char* to = nullptr;
    if (!buffers.await(arrival, peer, flag, may_be_mapped, to)) return 1;
    return reinterpret_cast<Word>(to);
  }
};

}  // namespace

TEST_CASE("a reference leads to where its memory is mapped, whatever came before it") {
  World world;
  world.map(5, 0x10000);
  world.map(6, 0x20000);
  const Word first = RemoteBuffer::where(5, 48), second = RemoteBuffer::where(6, 16);
  CHECK(world.await(first) == 0x10030);  // after none
  CHECK(world.await(first) == 0x10030);  // after one in the same memory
  CHECK(world.await(second) == 0x20010);
  CHECK(world.await(first) == 0x10030);
  CHECK(reinterpret_cast<Word>(world.buffers.mapped(peer)) == 0x10030);
}

TEST_CASE("memory that is not mapped, or no longer, has no place") {
  World world;
  CHECK(world.await(0) == 0);
  CHECK(world.await(RemoteBuffer::where(5, 48)) == 0);
  CHECK(world.buffers.mapped(peer) == nullptr);
  world.map(5, 0x10000);
  CHECK(world.await(RemoteBuffer::where(5, 48)) == 0x10030);
  // An id of the same slot.
  CHECK(world.await(RemoteBuffer::where(5 + RemoteBuffer::slots, 48)) == 0);
  CHECK(world.await(RemoteBuffer::where(5, 48), false) == 0);
}

TEST_CASE("a wait that fails has no place") {
  World world;
  world.map(5, 0x10000);
  CHECK(world.await(RemoteBuffer::where(5, 48), true, true) == 1);
}
