#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "transport/collnet/abi.hpp"
#include <netinet/in.h>

namespace software_collnet {

/// Codes of NCCL's plug-ins.
enum Code : int {
  success = 0,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6
};

/// Socket that closes itself.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_{fd} {}
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

/// Place where a rank listens, and a secret that its callers show. Travels as bytes.
struct Handle {
  std::uint64_t magic = 0;
  std::array<std::byte, 16> secret{};
  union {
    sockaddr_in v4;
    sockaddr_in6 v6;
    sa_family_t family;
  } at{};
};
static_assert(sizeof(Handle) <= ccl::detail::collnet::handle_bytes);

struct Listener {
  Socket socket;
  Handle handle;
  /// Listens on an interface, or on the first that is up if `interface` is null.
  static Code make(const char* interface, std::unique_ptr<Listener>& made);
};

class Group;

enum class Operation : std::int32_t { all_reduce, all_gather, reduce_scatter };

/// Bytes of a window, from its begin.
struct Range {
  std::size_t begin = 0, bytes = 0;
};

/// Operation under way on a window of the data: of all the data of an all-reduce; else of `each`
/// bytes of each rank, one rank after the other, from `offset` on. An all-gather takes of each rank
/// its own part of the window, and a reduce-scatter gives it that.
struct Request {
  Operation operation = Operation::all_reduce;
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
  std::size_t bytes = 0;  // of the window
  std::size_t each = 0, offset = 0;
  int type = 0, op = 0;
  Group* of = nullptr;
  /// What a rank sends of the window, and what it gets.
  Range sends(int rank) const {
    return operation == Operation::all_gather ? own(rank) : Range{0, bytes};
  }
  Range gets(int rank) const {
    return operation == Operation::reduce_scatter ? own(rank) : Range{0, bytes};
  }
  bool done = false, taken = false;  // `taken`: `test` has said that it is done
  // On rank 0:
  std::vector<std::vector<std::byte>> parts;  // of the others, by rank - 1
  std::vector<std::byte> sum;                 // of a reduce-scatter
  std::byte* result = nullptr;                // the whole window
  int arrived = 0, answered = 0;
  bool complete = false;  // `result` is

 private:
  Range own(int rank) const;
};

/// Communicator of ranks of several hosts. Rank 0 adds up the pieces of all, in the order of ranks,
/// or joins them, and sends each rank what it gets. Nothing blocks but `connect`; any call moves
/// what can be moved.
class Group {
 public:
  static constexpr int max_requests = 32;

  /// Waits for the other ranks, at most a minute.
  static Code connect(const std::vector<Handle>& handles, int rank, Listener& listener,
                      std::unique_ptr<Group>& made);
  /// Begins an operation; all ranks begin the same ones in one order. `request` is null if too many
  /// are under way.
  Code start(const Request& what, Request*& request);
  /// Sets `done` if the request is complete, which ends it.
  Code test(Request* request, bool& done);

 private:
  /// Stream to another rank. Requests go through it in order.
  struct Peer {
    Socket socket;
    std::uint64_t sending = 0, receiving = 0;  // number of the request
    std::size_t sent = 0, received = 0;        // bytes of it
    struct Head {
      std::uint64_t bytes = 0, each = 0, offset = 0;
      std::int32_t type = 0, op = 0, operation = 0, unused = 0;
      explicit Head(const Request& of);
      Head() = default;
      friend bool operator==(const Head&, const Head&) = default;
    } head;  // of a piece to rank 0, before its data
  };
  Group(int rank, std::vector<Peer> peers) : rank_{rank}, peers_{std::move(peers)} {}
  Code progress();
  Code send_piece(Peer& peer);
  Code send_result(Peer& peer, int to);
  Code receive_piece(Peer& peer, std::size_t index);
  Code receive_result(Peer& peer);
  /// Completes a request of rank 0, to which all have sent their pieces.
  void finish(Request& request);
  Request* at(std::uint64_t number);

  int rank_;
  std::vector<Peer> peers_;  // rank 0: all others; else: rank 0
  std::deque<std::unique_ptr<Request>> requests_;
  std::uint64_t first_ = 0;  // number of the first of `requests_`
};

}  // namespace software_collnet
