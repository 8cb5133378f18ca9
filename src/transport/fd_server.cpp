#include "transport/fd_server.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/base/status.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/exceptions.hpp"
#include "base/io/os_error.hpp"
#include "base/io/received_descriptors.hpp"
#include "base/thread.hpp"
#include "settings/report.hpp"
#include "transport/edge_error.hpp"
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

namespace ccl::detail {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds retry_pause{10};

/// Request to the offering process, and its reply beside the fd.
struct Request {
  Proof proof;
};
struct Reply {
  int found;  // 0: no offer has this proof
  WireShape shape;
};

/// True if a process of the same user is at the other end of a Unix socket.
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

/// Returns the bytes received; `fds` gets the descriptors that the message carries. Returns -1 with
/// EMFILE if this process is out of descriptors.
ssize_t receive_reply(int socket, Reply& reply, std::vector<Fd>& fds) {
  iovec data{&reply, sizeof reply};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t bytes = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (bytes >= 0) fds = received_descriptors(message);
  if (bytes >= 0 && fds.empty() && (message.msg_flags & MSG_CTRUNC) != 0) {
    errno = EMFILE;
    return -1;
  }
  return bytes;
}

/// Server of this process's fds.
class FdServer {
 public:
  /// Returns the server of this process; a child starts without one.
  static FdServer& instance() {
    FdServer* server = current.load();
    while (server == nullptr) {
      auto fresh = std::make_unique<FdServer>();
      if (current.compare_exchange_strong(server, fresh.get())) server = fresh.release();
    }
    return *server;  // outlives the last connection at exit
  }

  Result<UnixName> offer(const Proof& proof, const WireShape& shape, Fd fd) {
    const std::lock_guard lock{mutex_};
    if (!running_) {
      CCL_CHECK(listen());
      auto thread = own_thread("shared memory", [this] { serve(); });
      if (!thread) {
        listener_.reset();
        doorbell_.reset();
        return fail(std::move(thread).error());
      }
      thread->detach();  // ends by itself, and this object is never destroyed
      running_ = true;
    }
    offers_[proof] = Offer{shape, std::move(fd)};  // before the thread gets the mutex
    return name_;
  }
  void withdraw(const Proof& proof) {
    const std::lock_guard lock{mutex_};
    if (offers_.erase(proof) != 0 && running_) ::eventfd_write(doorbell_.get(), 1);
  }

 private:
  struct Offer {
    WireShape shape;
    Fd fd;
  };

  static const int registered_;
  static void forget() {
    if (FdServer* const server = current.exchange(nullptr)) {
      ::close(server->listener_.get());  // else the parent's name would outlive the parent
    }
  }

  Result<void> listen() {
    listener_ = Fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    doorbell_ = Fd{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    name_ = {};
    name_.address.sun_family = AF_UNIX;
    name_.bytes = sizeof name_.address;
    sockaddr* const address = reinterpret_cast<sockaddr*>(&name_.address);
    if (!listener_ || !doorbell_ || ::bind(listener_.get(), address, sizeof(sa_family_t)) != 0 ||
        ::listen(listener_.get(), 1024) != 0 ||
        ::getsockname(listener_.get(), address, &name_.bytes) != 0) {
      const int os_code = errno;
      listener_.reset();
      doorbell_.reset();
      return fail(
          os_error(Errc::system,
                   fmt::format("cannot listen on a Unix socket for those who share memory ({})",
                               std::strerror(os_code)),
                   os_code));
    }
    return {};
  }

  struct Callers {
    std::vector<Fd> waiting;
    std::vector<pollfd> watched;
  };

  /// Body of the thread. Without memory it turns its callers away, whose ranks fail.
  void serve() noexcept {
    Callers callers;
    while (!ended()) {
      if (completes([&] { serve_ready(callers); })) continue;
      callers.waiting.clear();
      lose_log_line();
    }
  }

  /// True if there is no offer. The server has then ended.
  bool ended() {
    const std::lock_guard lock{mutex_};
    if (!offers_.empty()) return false;
    listener_.reset();
    doorbell_.reset();
    running_ = false;
    return true;
  }

  void serve_ready(Callers& callers) {
    auto& [waiting, watched] = callers;
    watched.assign({{listener_.get(), POLLIN, 0}, {doorbell_.get(), POLLIN, 0}});
    for (const Fd& caller : waiting) watched.push_back({caller.get(), POLLIN, 0});
    if (::poll(watched.data(), nfds_t(watched.size()), -1) < 0) {
      std::this_thread::sleep_for(retry_pause);  // more callers than descriptors, say
      return;
    }
    eventfd_t rings = 0;
    if (watched[1].revents != 0) ::eventfd_read(doorbell_.get(), &rings);
    for (std::size_t c = waiting.size(); c-- > 0;) {
      if (watched[c + 2].revents == 0) continue;
      answer(waiting[c].get());
      waiting.erase(waiting.begin() + std::ptrdiff_t(c));
    }
    if (watched[0].revents != 0) {
      Fd caller{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
      if (!caller) {  // without a descriptor, the caller stays in the queue, and wakes each poll
        note_descriptors("cannot accept one who shares memory", errno);
        std::this_thread::sleep_for(retry_pause);
      }
      if (!caller || !same_user(caller.get())) return;
      if (waiting.size() == 1024) waiting.erase(waiting.begin());  // the oldest silent one
      waiting.push_back(std::move(caller));
    }
  }

  void answer(int caller) {
    Request request{};
    if (::recv(caller, &request, sizeof request, 0) != ssize_t(sizeof request)) return;
    const std::lock_guard lock{mutex_};
    const auto found = offers_.find(request.proof);
    if (found == offers_.end()) {
      send_reply(caller, Reply{}, -1);
    } else if (send_reply(caller, Reply{1, found->second.shape}, found->second.fd.get())) {
      offers_.erase(found);
    }
  }

  static inline std::atomic<FdServer*> current{nullptr};
  std::mutex mutex_;
  std::map<Proof, Offer> offers_;  // by proof
  bool running_ = false;           // the thread checks `offers_` again before it ends
  Fd listener_, doorbell_;
  UnixName name_;
};
// Initialized when the library is loaded: see `forks_before`.
const int FdServer::registered_ = ::pthread_atfork(nullptr, nullptr, &FdServer::forget);

}  // namespace

std::string no_common_memory(const PeerInfo& a, const PeerInfo& b) {
  if (a.memory_domain == b.memory_domain) return {};
  return fmt::format(
      "they give each other no memory, since their network namespaces or machines differ and {} "
      "makes them one host; socket would, or other values of {}",
      variable_of("HOSTID"), variable_of("HOSTID"));
}

Result<FdOffer> FdOffer::make(const Proof& proof, const WireShape& shape, Fd fd) {
  FdOffer offer;
  CCL_TRY(offer.name_, FdServer::instance().offer(proof, shape, std::move(fd)));
  offer.proof_ = proof;
  offer.open_ = true;
  return offer;
}
FdOffer::~FdOffer() {
  if (open_) FdServer::instance().withdraw(proof_);
}

Result<Fd> fetch_fd(const TransportContext& context, const Edge& edge, const char* transport,
                    const UnixName& from, const Proof& proof) {
  const auto refuse = [&](Errc code, std::string what, int os_code = 0) {
    return fail(edge_error(edge, transport, code, std::move(what), os_code));
  };
  const auto refuse_errno = [&](Errc code, const char* what, int os_code) {
    return refuse(code, fmt::format("{} ({})", what, std::strerror(os_code)), os_code);
  };
  // The name is an abstract one, which the kernel has chosen: a path could be anybody's socket.
  if (from.bytes <= sizeof(sa_family_t) || from.bytes > sizeof from.address ||
      from.address.sun_family != AF_UNIX || from.address.sun_path[0] != 0) {
    return refuse(
        Errc::mismatch,
        fmt::format("the other end's handshake is not one of the {} transport", transport));
  }
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(context.deadline_s));
  const auto may_wait = [&]() -> Result<void> {
    if (context.status != nullptr) CCL_CHECK(context.status->result());
    if (Clock::now() < end) return {};
    return refuse(Errc::timed_out,
                  fmt::format("no memory from rank {} on {} within {} s (its process is stopped or "
                              "overloaded); raise CCL_INIT_TIMEOUT",
                              edge.peer.rank, edge.peer.host, context.deadline_s));
  };
  const Fd socket{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!socket) return refuse_errno(Errc::system, "cannot make a Unix socket", errno);
  while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&from.address), from.bytes) !=
         0) {
    if (errno == ECONNREFUSED) {
      return refuse_errno(Errc::peer_lost, "the other end listens no more", errno);
    }
    if (errno != EAGAIN && errno != EINTR) {
      return refuse_errno(Errc::network, "cannot reach the other end's Unix socket", errno);
    }
    CCL_CHECK(may_wait());  // the queue is full
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  if (!same_user(socket.get())) {
    return refuse(Errc::refused,
                  "the other end's Unix socket belongs to another user (ranks share memory with "
                  "those of their own user only); run them as one, or set CCL_SHM_DISABLE=1");
  }
  const Request request{proof};
  if (::send(socket.get(), &request, sizeof request, MSG_NOSIGNAL) != ssize_t(sizeof request)) {
    return refuse_errno(Errc::peer_lost, "the other end hung up", errno);
  }
  pollfd answer{socket.get(), POLLIN, 0};
  while (::poll(&answer, 1, 20) <= 0) CCL_CHECK(may_wait());
  Reply reply{};
  std::vector<Fd> fds;
  errno = 0;
  if (receive_reply(socket.get(), reply, fds) != ssize_t(sizeof reply)) {
    if (errno == EMFILE) {
      return refuse_errno(Errc::system, "cannot take the memory of the other end", errno);
    }
    return refuse(Errc::peer_lost, "the other end hung up before it gave its memory away");
  }
  if (fds.size() > 1) {
    return refuse(Errc::refused, "the other end gave more than one descriptor");
  }
  if (reply.found == 0 || fds.empty()) {
    return refuse(Errc::refused,
                  "the other end does not know this one (another secret, another edge, or it was "
                  "destroyed)");
  }
  if (reply.shape != edge.shape) {
    return refuse(Errc::mismatch, differing_shapes(edge, reply.shape));
  }
  return std::move(fds[0]);
}

}  // namespace ccl::detail
