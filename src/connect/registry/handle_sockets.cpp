#include "connect/registry/handle_sockets.hpp"

#include <ccl/comm/log.hpp>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/io/os_error.hpp"
#include "base/io/received_descriptors.hpp"
#include "base/random.hpp"
#include "comm/edges/memory_exchange.hpp"
#include <sys/socket.h>

namespace ccl::detail {

/// Bytes of a message. Descriptors travel beside it, one for each handle that is not of the fabric.
struct HandleSockets::Record {
  struct Handle {
    Word bytes = 0;
    Word of_fabric = 0;
    std::array<std::byte, 64> fabric{};
  };
  std::int32_t is_reply = 0;
  std::int32_t from = 0;
  Word id = 0;
  std::int32_t first = 0;
  std::int32_t count = 0;
  Nonce nonce{};
  std::array<Handle, max_handles> handles{};
};

namespace {
constexpr std::size_t control_bytes = CMSG_SPACE(sizeof(int) * HandleSockets::max_handles);
}  // namespace

Result<HandleSockets> HandleSockets::open(CommState& state, int composition,
                                          std::string_view name) {
  HandleSockets sockets;
  const int rank = state.identity.rank();
  const auto& peers = state.identity.peers();
  Fd end;
  const auto prepare = [&]() -> Result<void> {
    int ends[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
      return fail(os_error(Errc::system, "cannot make sockets for handles of memory", errno));
    }
    end = Fd{ends[1]};
    CCL_TRY(sockets, of(rank, int(peers.size()), Fd{ends[0]}));
    return {};
  };
  const auto of_another_process = [&](int p) {
    return peers[std::size_t(p)].pid_hash != peers[std::size_t(rank)].pid_hash;
  };
  const auto take = [&](int p, Fd theirs) -> Result<void> {
    sockets.connect(p, std::move(theirs));
    return {};
  };
  CCL_CHECK(share_descriptor(state, {composition, name, "handles", of_another_process, take}, end,
                             prepare()));
  return sockets;
}

Result<HandleSockets> HandleSockets::of(int rank, int ranks, Fd inbox) {
  HandleSockets sockets;
  sockets.rank_ = rank;
  sockets.inbox_ = std::move(inbox);
  sockets.outboxes_.resize(std::size_t(ranks));
  sockets.nonces_.resize(std::size_t(ranks));
  for (Nonce& nonce : sockets.nonces_) CCL_CHECK(fill_random(nonce.data(), nonce.size()));
  return sockets;
}

bool HandleSockets::ask(int owner, Word id, int first) const {
  Record record;
  record.from = rank_;
  record.id = id;
  record.first = first;
  record.nonce = nonces_[std::size_t(owner)];
  return send(owner, record, {});
}

bool HandleSockets::reply(const Request& request, const std::vector<SharedHandle>& handles) const {
  Record record;
  record.is_reply = 1;
  record.from = rank_;
  record.id = request.id;
  record.first = request.first;
  record.nonce = request.nonce;
  record.count = std::int32_t(handles.size());
  for (std::size_t n = 0; n < handles.size(); ++n) {
    record.handles[n] = {handles[n].bytes, Word(handles[n].fd ? 0 : 1), handles[n].fabric};
  }
  return send(request.reader, record, handles);
}

bool HandleSockets::send(int rank, const Record& record,
                         const std::vector<SharedHandle>& handles) const {
  iovec data{const_cast<Record*>(&record), sizeof record};
  alignas(cmsghdr) std::array<char, control_bytes> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  std::array<int, max_handles> fds{};
  std::size_t count = 0;
  for (const SharedHandle& handle : handles) {
    if (handle.fd) fds[count++] = handle.fd.get();
  }
  if (count > 0) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int) * count);
    std::memcpy(CMSG_DATA(head), fds.data(), sizeof(int) * count);
  }
  return ::sendmsg(outboxes_[std::size_t(rank)].get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         ssize_t(sizeof record);
}

std::optional<HandleSockets::Message> HandleSockets::receive() const {
  while (true) {
    Record record;
    iovec data{&record, sizeof record};
    alignas(cmsghdr) std::array<char, control_bytes> control{};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t bytes = ::recvmsg(inbox_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (bytes < 0) return {};
    auto descriptors = received_descriptors(message);  // a message without a byte can carry some
    if (bytes == 0 && descriptors.empty()) return {};
    const bool whole = bytes == ssize_t(sizeof record) && (message.msg_flags & MSG_TRUNC) == 0;
    auto read = whole ? this->read(record, std::move(descriptors)) : std::nullopt;
    if (read) return read;
    log_info(LogPart::init, "a message about handles of memory is lost ({} bytes from rank {}, {})",
             bytes, record.from,
             (message.msg_flags & MSG_CTRUNC) != 0 ? "no descriptor is left" : "it is malformed");
  }
}

std::optional<HandleSockets::Message> HandleSockets::read(const Record& record,
                                                          std::vector<Fd> descriptors) const {
  const bool from_peer = record.from >= 0 && std::size_t(record.from) < outboxes_.size() &&
                         outboxes_[std::size_t(record.from)];
  if (!from_peer || record.first < 0 || record.count < 0 || record.count > max_handles) return {};
  if (record.is_reply == 0 && record.count == 0 && descriptors.empty()) {
    return Request{record.from, record.id, record.first, record.nonce};
  }
  if (record.is_reply != 1 || record.nonce != nonces_[std::size_t(record.from)]) return {};
  Reply reply{record.from, record.id, record.first};
  std::size_t taken = 0;
  for (int n = 0; n < record.count; ++n) {
    const Record::Handle& handle = record.handles[std::size_t(n)];
    SharedHandle& shared = reply.handles.emplace_back();
    shared.bytes = handle.bytes;
    shared.fabric = handle.fabric;
    if (handle.of_fabric == 1) continue;
    if (handle.of_fabric != 0 || taken == descriptors.size()) return {};
    shared.fd = std::move(descriptors[taken++]);
  }
  if (taken != descriptors.size()) return {};
  return reply;
}

}  // namespace ccl::detail
