#include "net/rendezvous.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/host_id.hpp>

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "base/field_check.hpp"
#include "base/text.hpp"
#include "net/auth.hpp"
#include "net/message_rules.hpp"
#include <sys/socket.h>

namespace ccl::detail::net {

UniqueId pack(const IdContent& content) {
  UniqueId id;
  std::memcpy(id.bytes.data(), &content, sizeof content);
  return id;
}

Result<IdContent> unpack(const UniqueId& id) {
  IdContent content;
  std::memcpy(&content, id.bytes.data(), sizeof content);
  const IdContent good;
  if (std::memcmp(content.magic, good.magic, sizeof good.magic) != 0 ||
      content.version != good.version) {
    return fail(Errc::invalid_argument,
                "this is no unique id of this version of ccl (it was not filled in, or was cut); "
                "pass all 128 bytes of create_unique_id to every rank");
  }
  std::string wrong = FieldCheck{}
                          .part("address", wrong_address(content.root))
                          .in_range("rank of the root", content.root_rank, -1, max_ranks - 1)
                          .why();
  if (!wrong.empty()) {
    return fail(Errc::invalid_argument,
                fmt::format("this unique id is damaged ({}); pass all 128 bytes of "
                            "create_unique_id to every rank",
                            wrong));
  }
  return content;
}

RootNotice to_notice(const Error& error) {
  RootNotice n;
  n.code = int(error.code);
  n.peer = error.peer;
  n.os_code = error.os_code;
  const auto what = shortened(error.what, sizeof n.what - 1);
  std::memcpy(n.what, what.data(), what.size());
  return n;
}

Error to_error(const RootNotice& notice) {
  Error e;
  e.code = Errc(notice.code);
  e.what.assign(notice.what, strnlen(notice.what, sizeof notice.what));
  e.peer = notice.peer;
  e.os_code = notice.os_code;
  return e;
}

std::string describe(const Member& m) {
  return fmt::format("rank {} on {} (pid {})", m.rank,
                     on_one_line({m.host, strnlen(m.host, sizeof m.host)}), m.pid);
}

Error lost_error(const Member& member, int os_code) {
  Error e;
  e.code = Errc::peer_lost;
  e.peer = member.rank;
  e.os_code = os_code;
  if (os_code == ENOMEM) {
    e.code = Errc::out_of_memory;
    e.what = fmt::format("this process has no memory left for messages of {}", describe(member));
    return e;
  }
  if (os_code == ENOBUFS) {
    e.code = Errc::network;
    e.what = fmt::format(
        "{} does not read what it is sent ({} MiB wait for it: it is stopped, or "
        "far behind); see its own output",
        describe(member), Conn::max_unsent_bytes >> 20);
    return e;
  }
  if (const char* const why = broken_record(os_code)) {
    e.code = Errc::refused;
    e.what = fmt::format("the connection to {} is not what it was ({})", describe(member), why);
    return e;
  }
  const bool silent = os_code == ETIMEDOUT || os_code == EHOSTUNREACH || os_code == ENETUNREACH;
  e.what = fmt::format("{} is gone ({}); see its own output", describe(member),
                       silent ? "its host does not answer any more"
                              : "its connections closed without a goodbye: it was killed, "
                                "crashed, or exited without ending its communicator");
  return e;
}

Error departed_error(const Member& member) {
  Error e;
  e.code = Errc::peer_lost;
  e.peer = member.rank;
  e.what = fmt::format(
      "{} has ended (its process exited without ending its communicator) and is "
      "still needed; see its own output",
      describe(member));
  return e;
}

void refuse_hello(Accepted one, std::string_view receiver, const std::string& why) {
  const std::string sender = one.from.to_string();
  log_warn(LogPart::bootstrap, "refused a connection from {} to {} ({})", sender, receiver, why);
  if (!one.differs.empty()) return;
  RootNotice notice = to_notice(protocol_error(sender, -1, receiver, why));
  FrameHeader header{FrameKind::notice, -1, 0, sizeof notice};
  // The kernel delivers both. A caller that does not read them is closed in any case.
  const iovec frame[] = {{&header, sizeof header}, {&notice, sizeof notice}};
  (void)one.socket.send(frame);
}

Member this_member(int rank, const WireAddress& listen) {
  Member m;
  m.rank = rank;
  m.pid = ::getpid();
  m.host_hash = host_hash();
  m.listen = listen;
  std::strncpy(m.host, host_name().c_str(), sizeof m.host - 1);
  return m;
}

}  // namespace ccl::detail::net
