#pragma once

#include <ccl/comm/unique_id.hpp>

#include <cstring>

#include "net/address.hpp"
#include "net/conn.hpp"
#include "net/sha256.hpp"

namespace ccl::detail::net {

// What ranks and roots tell each other. All trivially copyable: they travel as bytes, between
// machines of one byte order.

/// What a `UniqueId` holds.
struct IdContent {
  char magic[4] = {'c', 'c', 'l', 'i'};
  std::uint32_t version = 1;
  WireAddress root;
  Secret secret{};
  std::int32_t root_rank = -1;  // of the process with the root, if known
};
static_assert(sizeof(IdContent) <= sizeof(UniqueId));

UniqueId pack(const IdContent& content);
Result<IdContent> unpack(const UniqueId& id);

/// A rank, as it introduces itself.
struct Member {
  std::int32_t rank = -1;
  std::int32_t pid = 0;
  std::uint64_t host_hash = 0;
  WireAddress listen;
  char host[40] = {};
};

enum class HelloKind : std::uint32_t {
  join = 1,
  ring,
  peer,
  stay,   // with these in a `ShrinkHello`: to form a ring of those who stay
  watch,  // only to see it end
  ask     // whether that rank has this communicator: one byte says
};

struct Hello {
  HelloKind kind = HelloKind::join;
  std::int32_t ranks = 0;
  std::int32_t roots = 0;  // join only
  std::int32_t root = 0;   // join only: the index of the root that is meant
  Member me;
};

/// Of a rank that shrinks, to the next one that stays and to the one before.
struct ShrinkHello {
  Hello hello;
  Digest excluded{};         // of all ranks that go
  char said[256] = {};       // the same, in words
  std::uint64_t number = 0;  // of its tries: grows with each that fails
};

struct Progress {
  std::int32_t joined = 0;
  std::int32_t expected = 0;
  std::int32_t root_rank = -1;
  std::int32_t missing_count = 0;  // of the entries below
  std::int32_t missing[8] = {};
};

/// Why the communicator is over.
struct RootNotice {
  std::int32_t code = 0;  // Errc
  std::int32_t peer = -1;
  std::int32_t os_code = 0;
  char what[500] = {};
};

RootNotice to_notice(const Error& error);
Error to_error(const RootNotice& notice);

template <class T>
Bytes bytes_of(const T& value) {
  return std::as_bytes(std::span{&value, 1});
}
/// False if `bytes` is no T.
template <class T>
bool read_into(T& value, Bytes bytes) {
  if (bytes.size() != sizeof value) return false;
  std::memcpy(static_cast<void*>(&value), bytes.data(), sizeof value);
  return true;
}

/// "rank 3 on node7 (pid 4711)".
std::string describe(const Member& member);
/// That `member` is gone; `os_code` as its connection ended.
Error lost_error(const Member& member, int os_code);
Member this_member(int rank, const WireAddress& listen);

/// Serves one id in the engine's thread until its ranks have formed their ring or have failed.
Result<Address> open_root(const Address& where, const Secret& secret, int root_rank);

/// Tells the guests of this process's root with this secret, if there is one. With the engine's
/// mutex.
void fail_local_root(const Secret& secret, const Error& error);
/// Whether such a root still waits for ranks who have not heard. With the engine's mutex.
bool local_root_waits(const Secret& secret);

}  // namespace ccl::detail::net
