#pragma once

#include <ccl/comm/unique_id.hpp>

#include <cstring>
#include <type_traits>

#include "net/address.hpp"
#include "net/auth.hpp"
#include "net/conn.hpp"
#include "net/crypto/secret.hpp"

namespace ccl::detail::net {

// Messages between ranks and roots. All are trivially copyable and travel as bytes, so all machines
// must have the same byte order.

/// Content of a `UniqueId`.
struct IdContent {
  char magic[4] = {'c', 'c', 'l', 'i'};
  std::uint32_t version = 2;
  WireAddress root;
  Secret secret{};
  std::int32_t root_rank = -1;  // rank of the root's process, if known
};
static_assert(sizeof(IdContent) <= sizeof(UniqueId));

UniqueId pack(const IdContent& content);
Result<IdContent> unpack(const UniqueId& id);

/// Description of a rank in its hello.
struct Member {
  std::int32_t rank = -1;
  std::int32_t pid = 0;
  std::uint64_t host_hash = 0;
  WireAddress listen;
  char host[40] = {};
};
static_assert(std::has_unique_object_representations_v<Member>);  // compared as bytes

/// Purpose of a connection. `stay` and `watch` come in a `ShrinkHello`.
enum class HelloKind : std::uint32_t {
  join = 1,  // to a root
  ring,      // to the next rank of the ring
  peer,      // for messages and statuses
  stay,      // to the next surviving rank in a shrink
  watch,     // to detect the end of a rank
  ask,       // requests one byte: 1 if that rank has this communicator
  decline    // to a root, by a rank that will not join: a notice follows
};

struct Hello {
  HelloKind kind = HelloKind::join;
  std::int32_t ranks = 0;
  std::int32_t roots = 0;  // join only
  std::int32_t root = 0;   // join only: index of this root
  Member me;
};

/// Hello of a rank that shrinks, to the next and the previous surviving rank.
struct ShrinkHello {
  Hello hello;
  Digest excluded{};             // digest of the excluded ranks
  char excluded_text[256] = {};  // the excluded ranks as text
  std::uint64_t number = 0;      // failed attempts so far
};

struct Progress {
  std::int32_t joined = 0;
  std::int32_t expected = 0;
  std::int32_t root_rank = -1;
  std::int32_t missing_count = 0;  // entries of `missing`
  std::int32_t missing[8] = {};
};

/// Error that ends the communicator.
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
  static_assert(std::has_unique_object_representations_v<T>, "padding would be sent");
  return std::as_bytes(std::span{&value, 1});
}
/// Returns false if the size of `bytes` is not that of T.
template <class T>
bool read_into(T& value, Bytes bytes) {
  if (bytes.size() != sizeof value) return false;
  std::memcpy(static_cast<void*>(&value), bytes.data(), sizeof value);
  return true;
}

/// Returns a text such as "rank 3 on node7 (pid 4711)".
std::string describe(const Member& member);
/// Returns the error for a lost `member`. `os_code` is the error of its connection. A broken record
/// gives `Errc::refused`.
Error lost_error(const Member& member, int os_code);
/// Error of a wait for a rank whose process has ended in order.
Error departed_error(const Member& member);
/// Closes a connection whose hello does not fit. It is no part of the job, so it fails nobody. Logs
/// both ends, and sends the caller the error.
void refuse_hello(Accepted one, std::string_view receiver, const std::string& why);
Member this_member(int rank, const WireAddress& listen);

}  // namespace ccl::detail::net
