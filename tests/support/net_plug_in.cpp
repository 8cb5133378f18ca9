// A network plug-in over TCP on this host, of the version CCL_TEST_NET_VERSION of NCCL's interface.
// It is as strict as the strictest ones: it refuses memory that is not registered, two threads on
// one connection, and to close a connection with a request under way. Each function can be made to
// fail, or to come to no end. With CCL_TEST_NET_PLAIN none can, and no call is counted: it then
// costs what a plug-in over one TCP connection costs.
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "transport/plug_in/net_abi.hpp"
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

using namespace ccl::detail;
using namespace ccl::detail::net_abi;

namespace {

constexpr int devices_here = 2;
/// Results of a fault that are none of NCCL's: see `TestNet`.
constexpr int no_end = -1, held = -2, busy = -3, oversize = -4, one_held = -5;

// Never destroyed: calls that are held may outlive the test.
std::mutex mutex;
std::condition_variable& released = *new std::condition_variable;
struct Fault {
  int calls = 0;  // that go well before it
  int result = 0;
};
std::map<std::string, Fault>& faults = *new std::map<std::string, Fault>;
std::map<std::string, int>& calls = *new std::map<std::string, int>;
std::atomic<int> kinds{host_memory};            // of memory that the devices take
std::atomic<ProfilerCallback> report{nullptr};  // events of messages
std::atomic<int> objects{0};  // contexts, listeners, connections, registrations and requests

/// True once the process has destroyed the library's static objects.
std::atomic<bool> gone{false};
const struct Last {
  ~Last() { gone = true; }
} last;

/// Result of the function's fault, if it is due; else success.
int enter([[maybe_unused]] const char* function) {
#ifdef CCL_TEST_NET_PLAIN
  return success;
#else
  if (gone) ::_exit(99);
  std::unique_lock lock{mutex};
  const auto number = unsigned(calls[function]++);
  const auto fault = faults.find(function);
  if (fault == faults.end() || fault->second.calls-- > 0) return success;
  const int due = fault->second.result;
  if (due == busy) return (number * 2654435761u >> 16) % 2 == 0 ? no_end : success;
  if (due == one_held) {
    if (fault->second.calls < -1) return success;  // a later call
  } else if (due != held) {
    return due;
  }
  released.wait(lock, [&] { return faults.count(function) == 0; });
  return success;
#endif
}

struct Counted {
  Counted() { ++objects; }
  ~Counted() { --objects; }
};
struct Registered : Counted {
  char* at;
  std::size_t bytes;
  bool of_gpu = false;  // received data is there only after a flush
  bool holds(const void* from, std::size_t size) const {
    const char* const begin = static_cast<const char*>(from);
    return begin >= at && size <= bytes && begin <= at + (bytes - size);
  }
};
struct Head {
  std::uint64_t bytes;
  std::uint64_t tag;
};
struct Comm;
/// What a pointer to a request points to.
struct Base {
  bool is_flush = false;
};
struct Flush : Base {
  Flush() : Base{true} {}
  int tests = 0;
};
struct Request : Base, Counted {
  Comm* comm;
  char* at;
  std::size_t bytes;  // of the buffer, then of the message
  int tag;
  char* to = nullptr;  // where a flush copies the message, or null
  std::unique_ptr<char[]> apart{};
  std::size_t moved = 0;  // with the head
  Head head{};
  bool done = false;
  void* event = nullptr;  // from the message's begin to its end
};
struct Comm : Counted {
  int fd = -1;
  bool sends = false;
  std::deque<std::unique_ptr<Request>> queue;  // not yet tested to the end
  std::size_t undone = 0;                      // index of the first that is not done
  std::deque<std::unique_ptr<Request>> late;   // received into GPU memory, and not flushed
  Flush flush;                                 // there is one at a time
  Head ahead{};  // of the next message, received with the end of this one
  std::size_t ahead_bytes = 0;
  int ends = 0;  // events that have ended
  std::atomic<bool> busy{false};
  ~Comm() { ::close(fd); }
};
struct Listener : Counted {
  int fd = -1;
  ~Listener() { ::close(fd); }
};
/// Begins a handle. `connecting` is this end's, between two calls of `connect`.
struct Handle {
  sockaddr_in address;
  Comm* connecting;
};
static_assert(sizeof(Handle) <= handle_bytes);

/// Refuses a second thread on a connection.
class CallTicket {
 public:
  explicit CallTicket(Comm& comm) : comm_{comm}, taken_{!comm.busy.exchange(true)} {}
  ~CallTicket() {
    if (taken_) comm_.busy = false;
  }
  bool taken() const { return taken_; }

 private:
  Comm& comm_;
  const bool taken_;
};

bool later() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == EINPROGRESS;
}
void tune(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
#ifdef CCL_TEST_NET_PLAIN
  const int off = 0;
  ::setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &off, sizeof off);
#endif
}

/// Moves what the socket takes or has of one request. Returns false if it is not done.
bool move(Comm& comm, Request& request, Result& result) {
  if (!comm.sends && request.moved == 0) {
    request.head = comm.ahead;
    request.moved = std::exchange(comm.ahead_bytes, 0);
  }
  for (;;) {
    if (!comm.sends && request.moved >= sizeof(Head) &&
        (request.head.bytes > request.bytes || int(request.head.tag) != request.tag)) {
      result = internal_error;  // the message is longer than the buffer, or another one
      return false;
    }
    iovec parts[3];
    int count = 0;
    const std::size_t head = sizeof(Head);
    if (request.moved < head) {
      parts[count++] = {reinterpret_cast<char*>(&request.head) + request.moved,
                        head - request.moved};
    }
    const bool data = comm.sends || request.moved >= head;
    const std::size_t from = request.moved > head ? request.moved - head : 0;
    const std::size_t bytes = comm.sends ? request.bytes : std::size_t(request.head.bytes);
    if (data && bytes > from) parts[count++] = {request.at + from, bytes - from};
    if (count == 0) return true;
    if (!comm.sends && data) parts[count++] = {&comm.ahead, head};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = std::size_t(count);
    const ssize_t got =
        comm.sends ? ::sendmsg(comm.fd, &message, MSG_NOSIGNAL) : ::recvmsg(comm.fd, &message, 0);
    if (got <= 0) {
      if (got < 0 && later()) return false;
      result = remote_error;
      return false;
    }
    request.moved += std::size_t(got);
    if (!comm.sends && data && request.moved > head + bytes) {
      comm.ahead_bytes = request.moved - (head + bytes);
      request.moved = head + bytes;
    }
  }
}
Result move_all(Comm& comm) {
  Result result = success;
  while (comm.undone < comm.queue.size()) {
    Request& request = *comm.queue[comm.undone];
    if (!move(comm, request, result)) break;
    request.done = true;
    ++comm.undone;
  }
  return result;
}
/// Kind of the events, and what they say: messages that move, and those that have moved.
constexpr std::int64_t event_kind = 7 << 16 | 1;
int moves = 1, has_moved = 2;
enum EventCall : int { event_start, event_stop, event_update, event_update_and_stop };

Result begin(Comm& comm, void* at, std::size_t bytes, int tag, void* memory, void* parent,
             void** request) {
  *request = nullptr;
  const CallTicket turn{comm};
  if (!turn.taken()) return invalid_usage;
  if (memory == nullptr || !static_cast<Registered*>(memory)->holds(at, bytes)) {
    return invalid_argument;
  }
  if (comm.queue.size() == max_requests) return invalid_usage;
  auto made = std::make_unique<Request>();
  made->comm = &comm;
  made->at = static_cast<char*>(at);
  made->bytes = bytes;
  made->tag = tag;
  if (static_cast<Registered*>(memory)->of_gpu && !comm.sends) {
    made->to = made->at;
    made->apart = std::make_unique<char[]>(bytes);
    made->at = made->apart.get();
  }
  made->head = {comm.sends ? bytes : 0, std::uint64_t(comm.sends ? tag : 0)};
  *request = static_cast<Base*>(made.get());
  if (const auto call = report.load(); call != nullptr) {
    if (call(&made->event, event_start, parent, event_kind, &moves) != success)
      return internal_error;
  }
  comm.queue.push_back(std::move(made));
  return comm.sends ? move_all(comm) : success;
}

// Functions of the interface.

[[maybe_unused]] void take_reports([[maybe_unused]] ProfilerCallback by) {
#ifndef CCL_TEST_NET_PLAIN
  report = by;
#endif
}
Result init_any(void** context, PlugInLogger log) {
  if (const int due = enter("init")) return Result(due);
  log(plug_in_info, 1, "net.cc", 1, "version %d", CCL_TEST_NET_VERSION);
  if (context != nullptr) *context = new Counted;
  return success;
}
Result count_devices(int* count) {
  *count = devices_here;
  return Result(enter("devices"));
}
template <class Properties>
Result properties(int device, Properties* out) {
  if (const int due = enter("getProperties")) return Result(due);
  static char names[devices_here][8] = {"test0", "test1"};
  *out = {};
  out->name = names[device];
  out->memory = kinds;
  out->mbps = 10'000;
  out->max_connections = 1024;
  out->max_grouped_receives = 1;
  out->parts.count = 1;
  out->parts.devices[0] = device;
  out->max_bytes = std::size_t{1} << 30;
  return success;
}
Result listen_at(int, void* handle, void** listener) {
  if (const int due = enter("listen")) return Result(due);
  auto made = std::make_unique<Listener>();
  made->fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  Handle mine{};
  mine.address.sin_family = AF_INET;
  mine.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const address = reinterpret_cast<sockaddr*>(&mine.address);
  socklen_t size = sizeof mine.address;
  if (::bind(made->fd, address, size) != 0 || ::listen(made->fd, 1) != 0 ||
      ::getsockname(made->fd, address, &size) != 0) {
    return system_error;
  }
  std::memcpy(handle, &mine, sizeof mine);
  *listener = made.release();
  return success;
}
/// Connections that have begun. A handle names one of them, unless it came so from a peer.
std::mutex connecting_mutex;
std::set<Comm*> connecting;

Result connect_to(int, void* handle, void** comm) {
  const int due = enter("connect");
  if (due == no_end) return success;
  if (due != success) return Result(due);
  Handle theirs;
  std::memcpy(&theirs, handle, sizeof theirs);
  std::unique_ptr<Comm> made;
  {
    const std::lock_guard lock{connecting_mutex};
    if (connecting.erase(theirs.connecting) != 0) made.reset(theirs.connecting);
  }
  if (made == nullptr) {
    made = std::make_unique<Comm>();
    made->sends = true;
    made->fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    tune(made->fd);
  }
  const auto* const address = reinterpret_cast<const sockaddr*>(&theirs.address);
  if (::connect(made->fd, address, sizeof theirs.address) != 0 && errno != EISCONN) {
    if (!later() && errno != EALREADY) return remote_error;
    theirs.connecting = made.release();
    const std::lock_guard lock{connecting_mutex};
    connecting.insert(theirs.connecting);
  } else {
    theirs.connecting = nullptr;
    *comm = made.release();
  }
  std::memcpy(handle, &theirs, sizeof theirs);
  return success;
}
Result accept_at(void* listener, void** comm, void**) {
  const int due = enter("accept");
  if (due == no_end) return success;
  if (due != success) return Result(due);
  const int fd = ::accept4(static_cast<Listener*>(listener)->fd, nullptr, nullptr,
                           SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return later() ? success : system_error;
  tune(fd);
  auto* const made = new Comm;
  made->fd = fd;
  *comm = made;
  return success;
}
Result reg_any(void* at, std::size_t bytes, int kind, void** handle) {
  if ((kind & kinds) == 0) return invalid_argument;
  auto* const made = new Registered;
  made->at = static_cast<char*>(at);
  made->bytes = bytes;
  made->of_gpu = kind == gpu_memory;
  *handle = made;
  return success;
}
Result reg(void*, void* at, std::size_t bytes, int kind, void** handle) {
  if (const int due = enter("regMr")) return Result(due);
  return reg_any(at, bytes, kind, handle);
}
Result reg_dma_buf(void*, void* at, std::size_t bytes, int kind, std::uint64_t offset, int fd,
                   void** handle) {
  if (const int due = enter("regMrDmaBuf")) return Result(due);
  if ((kinds & dma_buf) == 0 || offset != 0 || ::fcntl(fd, F_GETFD) < 0) return invalid_argument;
  return reg_any(at, bytes, kind, handle);
}
Result dereg(void*, void* handle) {
  if (const int due = enter("deregMr")) return Result(due);
  delete static_cast<Registered*>(handle);
  return success;
}
Result send_any(void* comm, void* at, std::size_t bytes, int tag, void* memory, void* parent,
                void** request) {
  const int due = enter("isend");
  if (due == no_end) return success;
  if (due != success) return Result(due);
  return begin(*static_cast<Comm*>(comm), at, bytes, tag, memory, parent, request);
}
Result recv_any(void* comm, int count, void** at, std::size_t* bytes, int* tags, void** memory,
                void** parents, void** request) {
  const int due = enter("irecv");
  if (due == no_end) return success;
  if (due != success) return Result(due);
  if (count != 1) return invalid_argument;
  return begin(*static_cast<Comm*>(comm), at[0], bytes[0], tags[0], memory[0], parents[0], request);
}
/// Begins a request that is done at the second test, after the message is where it belongs.
Result flush(void* comm, int count, void** at, int* bytes, void** memory, void** request) {
  *request = nullptr;
  if (const int due = enter("iflush")) return Result(due);
  auto& of = *static_cast<Comm*>(comm);
  const CallTicket turn{of};
  if (!turn.taken()) return invalid_usage;
  if (count != 1 || !static_cast<Registered*>(memory[0])->holds(at[0], std::size_t(bytes[0]))) {
    return invalid_argument;
  }
  for (const auto& late : of.late) std::memcpy(late->to, late->at, late->moved - sizeof(Head));
  of.late.clear();
  *request = static_cast<Base*>(&of.flush);
  of.flush.tests = 0;
  return success;
}
Result test(void* request, int* done, int* bytes) {
  *done = 0;
  const int due = enter("test");
  if (due == no_end) return success;
  if (due != success && due != oversize) return Result(due);
  if (static_cast<Base*>(request)->is_flush) {
    *done = ++static_cast<Flush*>(static_cast<Base*>(request))->tests > 1;
    return success;
  }
  auto& of = *static_cast<Request*>(static_cast<Base*>(request));
  Comm& comm = *of.comm;
  const CallTicket turn{comm};
  if (!turn.taken()) return invalid_usage;
  if (const Result moved = move_all(comm); moved != success) return moved;
  if (!of.done) return success;
  if (comm.queue.front().get() != &of) return invalid_usage;
  *done = 1;
  if (of.event != nullptr) {  // in one call, or in two
    const auto call = report.load();
    const int last = ++comm.ends % 2 == 0 ? event_update_and_stop : event_update;
    (void)call(&of.event, last, nullptr, event_kind, &has_moved);
    if (last == event_update) (void)call(&of.event, event_stop, nullptr, 0, nullptr);
  }
  if (bytes != nullptr) *bytes = due == oversize ? 1 << 30 : int(of.moved - sizeof(Head));
  if (of.to != nullptr) comm.late.push_back(std::move(comm.queue.front()));
  comm.queue.pop_front();
  --comm.undone;
  return success;
}
Result close_comm(const char* function, void* comm) {
  if (const int due = enter(function)) return Result(due);
  auto* const of = static_cast<Comm*>(comm);
  if (!of->queue.empty()) return invalid_usage;
  delete of;
  return success;
}
Result close_send(void* comm) {
  return close_comm("closeSend", comm);
}
Result close_recv(void* comm) {
  return close_comm("closeRecv", comm);
}
Result close_listen(void* listener) {
  if (const int due = enter("closeListen")) return Result(due);
  delete static_cast<Listener*>(listener);
  return success;
}

constexpr Registration registration{reg, reg_dma_buf, dereg};
constexpr Completion completion{flush, test, close_send, close_recv, close_listen};

#if CCL_TEST_NET_VERSION >= 10
constexpr Transfer transfer{send_any, recv_any};
#else
Result isend(void* comm, void* at, std::size_t bytes, int tag, void* memory, void** request) {
  return send_any(comm, at, bytes, tag, memory, nullptr, request);
}
Result irecv(void* comm, int count, void** at, std::size_t* bytes, int* tags, void** memory,
             void** request) {
  void* none = nullptr;
  return recv_any(comm, count, at, bytes, tags, memory, &none, request);
}
#endif
#if CCL_TEST_NET_VERSION >= 11
Result init(void** context, std::uint64_t, CommConfig* config, PlugInLogger log,
            ProfilerCallback events) {
  if (config->traffic_class != -1 || events == nullptr) return invalid_argument;
  take_reports(events);
  return init_any(context, log);
}
Result listen(void* context, int device, void* handle, void** listener) {
  return context == nullptr ? invalid_argument : listen_at(device, handle, listener);
}
Result connect(void* context, int device, void* handle, void** comm, void**) {
  return context == nullptr ? invalid_argument : connect_to(device, handle, comm);
}
Result finalize(void* context) {
  if (const int due = enter("finalize")) return Result(due);
  delete static_cast<Counted*>(context);
  return success;
}
#else
Result listen(int device, void* handle, void** listener) {
  return listen_at(device, handle, listener);
}
#endif

}  // namespace

extern "C" {
#if CCL_TEST_NET_VERSION >= 11
#  define CCL_TEST_NET_INTERFACE                                                             \
    {                                                                                        \
      "Test", init, {count_devices}, {properties}, listen, connect, accept_at, registration, \
          transfer, completion, {}, finalize, nullptr                                        \
    }
#  if CCL_TEST_NET_VERSION == 12
__attribute__((visibility("default"))) InterfaceV11<PropertiesV12> ncclNetPlugin_v12
    CCL_TEST_NET_INTERFACE;
#  else
__attribute__((visibility("default"))) InterfaceV11<PropertiesV11> ncclNetPlugin_v11
    CCL_TEST_NET_INTERFACE;
#  endif
#elif CCL_TEST_NET_VERSION == 10
__attribute__((visibility("default"))) InterfaceV10 ncclNetPlugin_v10{
    "Test",
    [](PlugInLogger log, ProfilerCallback events) {
      take_reports(events);
      return init_any(nullptr, log);
    },
    {count_devices},
    {properties},
    listen,
    [](int device, CommConfig* config, void* handle, void** comm, void**) {
      return config->traffic_class != -1 ? invalid_argument : connect_to(device, handle, comm);
    },
    accept_at,
    registration,
    transfer,
    completion,
    {}};
#else
__attribute__((visibility("default"))) InterfaceV9 ncclNetPlugin_v9{
    "Test",
    [](PlugInLogger log) { return init_any(nullptr, log); },
    {count_devices},
    {properties},
    listen,
    [](int device, void* handle, void** comm, void**) { return connect_to(device, handle, comm); },
    accept_at,
    registration,
    {isend, irecv},
    completion,
    {}};
#endif
/// Lets a function give a result after some calls; see `TestNet`.
__attribute__((visibility("default"))) void ccl_test_net_fault(const char* function, int after,
                                                               int result) {
  const std::lock_guard lock{mutex};
  if (result == success) {
    faults.erase(function);
    released.notify_all();
  } else {
    faults[function] = {after, result};
  }
}
/// Sets the kinds of memory that the devices take.
__attribute__((visibility("default"))) void ccl_test_net_memory(int of) {
  kinds = of;
}
__attribute__((visibility("default"))) int ccl_test_net_calls(const char* function) {
  const std::lock_guard lock{mutex};
  return calls[function];
}
__attribute__((visibility("default"))) int ccl_test_net_objects() {
  return objects;
}
}
