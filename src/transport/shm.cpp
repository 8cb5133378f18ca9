#include <ccl/settings.hpp>
#include <ccl/status.hpp>
#include <ccl/transport/shm.hpp>

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "fd.hpp"
#include "os_error.hpp"
#include "transport/proof.hpp"
#include "transport/wire_memory.hpp"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

namespace ccl {
namespace detail {
namespace {

using Clock = std::chrono::steady_clock;

/// What a sender says to the receiver's process, and what comes back along with the memory.
struct Request {
  Proof proof;
};
struct Reply {
  int found;  // 0: no receiver waits for this proof
  WireShape shape;
};

/// A Unix socket's address: abstract, chosen by the kernel, and gone with the socket.
struct UnixName {
  sockaddr_un address{};
  socklen_t bytes = 0;
};

/// Same user at the other end of a Unix socket?
bool same_user(int fd) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == ::geteuid();
}

bool send_reply(int socket, const Reply& reply, int fd) {
  iovec data{const_cast<Reply*>(&reply), sizeof reply};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(head), &fd, sizeof fd);
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == ssize_t(sizeof reply);
}

/// Bytes received; `fd` gets the descriptor that came along, if one did.
ssize_t receive_reply(int socket, Reply& reply, Fd& fd) {
  iovec data{&reply, sizeof reply};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t bytes = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); bytes >= 0 && head != nullptr;
       head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    int got = -1;
    std::memcpy(&got, CMSG_DATA(head), sizeof got);
    fd = Fd{got};
  }
  return bytes;
}

/// Hands this process's memory to the senders that ask for it. Its thread and its socket exist
/// while a receiver waits for its sender, so that ends may connect in any order.
class ShmServer {
 public:
  /// Of this process: a child starts with none.
  static ShmServer& instance() {
    static const int registered = ::pthread_atfork(nullptr, nullptr, &forget);
    (void)registered;
    ShmServer* server = current_.load();
    while (server == nullptr) {
      auto fresh = std::make_unique<ShmServer>();
      if (current_.compare_exchange_strong(server, fresh.get())) server = fresh.release();
    }
    return *server;  // outlives the last connection at exit
  }

  /// Keeps `memory` until a sender has proved that it is meant for it, or until `withdraw`.
  Result<UnixName> offer(const Proof& proof, const WireShape& shape, Fd memory) {
    const std::lock_guard lock{mutex_};
    if (!running_) {
      CCL_CHECK(listen());
      try {
        std::thread{[this] { serve(); }}.detach();  // ends by itself, and this object never does
      } catch (const std::system_error& problem) {
        listener_.reset();
        return fail(os_error(Errc::system,
                             fmt::format("cannot start a thread ({})", problem.what()),
                             problem.code().value()));
      }
      running_ = true;
    }
    offers_[proof] = Offer{shape, std::move(memory)};  // before the thread gets the mutex
    return name_;
  }
  void withdraw(const Proof& proof) {
    const std::lock_guard lock{mutex_};
    if (offers_.erase(proof) != 0 && running_) ::eventfd_write(bell_.get(), 1);
  }

 private:
  struct Offer {
    WireShape shape;
    Fd memory;
  };

  static void forget() {
    if (ShmServer* const server = current_.exchange(nullptr)) {
      ::close(server->listener_.get());  // or the parent's name would outlive the parent
    }
  }

  Result<void> listen() {
    listener_ = Fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    bell_ = Fd{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    name_ = {};
    name_.address.sun_family = AF_UNIX;
    name_.bytes = sizeof name_.address;
    sockaddr* const address = reinterpret_cast<sockaddr*>(&name_.address);
    if (!listener_ || !bell_ || ::bind(listener_.get(), address, sizeof(sa_family_t)) != 0 ||
        ::listen(listener_.get(), 1024) != 0 ||
        ::getsockname(listener_.get(), address, &name_.bytes) != 0) {
      const int os_code = errno;
      return fail(os_error(Errc::system,
                           fmt::format("cannot listen on a Unix socket for shared memory ({})",
                                       std::strerror(os_code)),
                           os_code));
    }
    return {};
  }

  void serve() {
    std::vector<Fd> callers;
    std::vector<pollfd> watched;
    for (;;) {
      {
        const std::lock_guard lock{mutex_};
        if (offers_.empty()) {
          listener_.reset();
          bell_.reset();
          running_ = false;
          return;
        }
      }
      watched.assign({{listener_.get(), POLLIN, 0}, {bell_.get(), POLLIN, 0}});
      for (const Fd& caller : callers) watched.push_back({caller.get(), POLLIN, 0});
      if (::poll(watched.data(), nfds_t(watched.size()), -1) < 0) continue;
      eventfd_t rings = 0;
      if (watched[1].revents != 0) ::eventfd_read(bell_.get(), &rings);
      for (std::size_t c = callers.size(); c-- > 0;) {
        if (watched[c + 2].revents == 0) continue;
        answer(callers[c].get());
        callers.erase(callers.begin() + std::ptrdiff_t(c));
      }
      if (watched[0].revents != 0) {
        Fd caller{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
        if (!caller || !same_user(caller.get())) continue;
        if (callers.size() == 1024) callers.erase(callers.begin());  // the oldest silent one
        callers.push_back(std::move(caller));
      }
    }
  }

  void answer(int caller) {
    Request request{};
    if (::recv(caller, &request, sizeof request, 0) != ssize_t(sizeof request)) return;
    const std::lock_guard lock{mutex_};
    const auto found = offers_.find(request.proof);
    if (found == offers_.end()) {
      send_reply(caller, Reply{}, -1);
    } else if (send_reply(caller, Reply{1, found->second.shape}, found->second.memory.get())) {
      offers_.erase(found);
    }
  }

  static inline std::atomic<ShmServer*> current_{nullptr};
  std::mutex mutex_;
  std::map<Proof, Offer> offers_;  // by what the sender must say
  bool running_ = false;           // the thread looks at `offers_` again before it ends
  Fd listener_, bell_;
  UnixName name_;
};

}  // namespace

struct ShmEnd {
  TransportContext context;
  Edge edge;
  WireLayout layout;
  Nonce nonce{};  // the receiver's: the sender proves that it was told
  UnixName name;  // where the receiver's process listens
  Mapping mapping;
  bool offered = false;

  ~ShmEnd() {
    if (offered) ShmServer::instance().withdraw(proof_of(context, nonce, edge.id, 0));
  }

  auto refuse(Errc code, std::string what, int os_code = 0) const {
    return fail(edge_error(edge, ShmTransport::name, code, std::move(what), os_code));
  }
  auto refuse_errno(Errc code, const char* what, int os_code) const {
    return refuse(code, fmt::format("{} ({})", what, std::strerror(os_code)), os_code);
  }

  /// Receiver: makes the memory and offers it to the sender.
  Result<void> offer() {
    Fd memory{::memfd_create("ccl", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    if (!memory) return refuse_errno(Errc::system, "cannot make shared memory", errno);
    if (::ftruncate(memory.get(), off_t(layout.bytes())) != 0 ||
        ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
      return refuse_errno(Errc::out_of_memory, "cannot size shared memory", errno);
    }
    CCL_TRY(mapping, Mapping::of(memory, layout.bytes()));
    CCL_CHECK(fill_random(&nonce, sizeof nonce));
    const Proof proof = proof_of(context, nonce, edge.id, 0);
    CCL_TRY(name, ShmServer::instance().offer(proof, edge.shape, std::move(memory)));
    offered = true;
    return {};
  }

  /// Sender: asks the receiver's process for the memory.
  Result<void> fetch(const Handshake& theirs) {
    HandshakeCursor cursor;
    const auto nonce_of_peer = cursor.get<Nonce>(theirs);
    const auto to = cursor.get<UnixName>(theirs);
    if (to.bytes <= sizeof(sa_family_t) || to.bytes > sizeof to.address) {
      return refuse(Errc::mismatch, "the receiver's handshake is not one of the shm transport");
    }
    const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(context.deadline_s));
    const Fd socket{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    if (!socket) return refuse_errno(Errc::system, "cannot make a Unix socket", errno);
    while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to.address), to.bytes) != 0) {
      if (errno == ECONNREFUSED) {
        return refuse_errno(Errc::peer_lost, "the receiver listens no more", errno);
      }
      if (errno != EAGAIN && errno != EINTR) {
        return refuse_errno(Errc::network, "cannot reach the receiver's Unix socket", errno);
      }
      CCL_CHECK(may_wait(end));  // the queue is full
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    if (!same_user(socket.get())) {
      return refuse(Errc::refused, "the receiver's Unix socket belongs to another user");
    }
    const Request request{proof_of(context, nonce_of_peer, edge.id, 0)};
    if (::send(socket.get(), &request, sizeof request, MSG_NOSIGNAL) != ssize_t(sizeof request)) {
      return refuse_errno(Errc::peer_lost, "the receiver hung up", errno);
    }
    pollfd answer{socket.get(), POLLIN, 0};
    while (::poll(&answer, 1, 20) <= 0) CCL_CHECK(may_wait(end));
    Reply reply{};
    Fd memory;
    if (receive_reply(socket.get(), reply, memory) != ssize_t(sizeof reply)) {
      return refuse(Errc::peer_lost, "the receiver hung up before it gave its memory away");
    }
    if (reply.found == 0) {
      return refuse(Errc::refused,
                    "the receiver does not know this sender (another secret, another edge, or its "
                    "end was destroyed)");
    }
    struct stat file {};
    const int seals = ::fcntl(memory.get(), F_GET_SEALS);
    if (reply.shape != edge.shape || ::fstat(memory.get(), &file) != 0 ||
        std::size_t(file.st_size) != layout.bytes() || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
      return refuse(Errc::mismatch,
                    fmt::format("the ends of edge {} do not match (the receiver made {} channels "
                                "of {} slots of {} bytes)",
                                edge.id, reply.shape.channels, reply.shape.slot_count,
                                reply.shape.slot_bytes));
    }
    CCL_TRY(mapping, Mapping::of(memory, layout.bytes()));
    return {};
  }

  /// Ends at the deadline, or when the communicator was told to stop.
  Result<void> may_wait(Clock::time_point end) const {
    if (context.status != nullptr) CCL_CHECK(context.status->result());
    if (Clock::now() < end) return {};
    return refuse(Errc::timed_out,
                  fmt::format("no shared memory from rank {} on {} within {} s (its process is "
                              "stopped or overloaded); raise the deadline",
                              edge.peer.rank, edge.peer.host, context.deadline_s));
  }
};

}  // namespace detail

Result<void> ShmTransport::can_connect(const PeerInfo& from, const PeerInfo& to) {
  const auto refuse = [&](const char* why) {
    return fail(Errc::no_transport, fmt::format("shm does not connect rank {} to rank {} ({})",
                                                from.rank, to.rank, why));
  };
  CCL_TRY(const bool disabled, setting_flag("SHM_DISABLE"));
  if (disabled) return refuse("CCL_SHM_DISABLE is 1");
  if (from.host_hash != to.host_hash) return refuse("they are on different hosts; socket would");
  return {};
}

Result<ShmTransport::End> ShmTransport::setup(TransportContext& context, const Edge& edge) {
  End end;
  end.end_ = std::make_shared<detail::ShmEnd>();
  end.end_->context = context;
  end.end_->edge = edge;
  CCL_TRY(end.end_->layout, detail::WireLayout::of(edge.shape));
  if (edge.side == Side::receiver) CCL_CHECK(end.end_->offer());
  return end;
}

Handshake ShmTransport::End::handshake() const {
  Handshake mine{};
  detail::HandshakeCursor cursor;
  cursor.put(mine, end_->nonce);
  cursor.put(mine, end_->name);
  return mine;
}

Result<Connection> ShmTransport::End::connect(const Handshake& theirs) {
  if (end_->mapping.base() == nullptr) CCL_CHECK(end_->fetch(theirs));
  Connection connection;
  connection.wires = end_->layout.wires(end_->mapping.base(), end_->edge.side, false);
  connection.owner = end_;
  connection.transport = name;
  return connection;
}

}  // namespace ccl
