#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/io/fd.hpp"
#include "comm/state.hpp"
#include "gpu/shared_handle.hpp"
#include "transport/proof.hpp"

namespace ccl::detail {

/// Sockets over which the processes of a communicator give each other cuMem handles. Each rank has
/// one, to which its peers of other processes write. Nothing blocks. A message that does not fit is
/// lost, and `ask` or `reply` then returns false.
class HandleSockets {
 public:
  /// Maximum handles of a message. Their descriptors are open in two processes while it travels.
  static constexpr int max_handles = 16;

  /// Request of rank `reader` for handles of this rank's memory `id`, from the handle `first` on.
  struct Request {
    int reader = 0;
    Word id = 0;
    int first = 0;
    Nonce nonce{};  // which the reply repeats
  };
  /// Handles of memory `id` of rank `owner`. None: it cannot export them.
  struct Reply {
    int owner = 0;
    Word id = 0;
    int first = 0;
    std::vector<SharedHandle> handles{};
  };
  using Message = std::variant<Request, Reply>;

  /// Creates the sockets. Succeeds on all ranks or fails on all. Collective; the caller holds the
  /// bootstrap. The number and the name are those of a composition.
  static Result<HandleSockets> open(CommState& state, int composition, std::string_view name);
  /// Creates the sockets of one rank of `ranks`, whose peers write to the other end of `inbox`.
  static Result<HandleSockets> of(int rank, int ranks, Fd inbox);
  /// Sets the socket to which this rank writes for `peer`.
  void connect(int peer, Fd outbox) { outboxes_[std::size_t(peer)] = std::move(outbox); }

  /// Sends a request of this rank to the owner of a memory. Returns false if it is lost.
  bool ask(int owner, Word id, int first) const;
  /// Sends handles of this rank, at most `max_handles`. Returns false if they are lost.
  bool reply(const Request& request, const std::vector<SharedHandle>& handles) const;
  /// Returns the next message to this rank, if there is one. Drops what is not a message of a rank
  /// of another process, and a reply that does not repeat the nonce of this rank's requests to its
  /// sender.
  std::optional<Message> receive() const;

 private:
  struct Record;
  bool send(int rank, const Record& record, const std::vector<SharedHandle>& handles) const;
  std::optional<Message> read(const Record& record, std::vector<Fd> descriptors) const;

  int rank_ = 0;
  Fd inbox_;
  std::vector<Fd> outboxes_;  // by rank; empty for ranks of this process
  // By rank. All peers write to one socket, and a nonce is known to the rank that was asked alone.
  std::vector<Nonce> nonces_;
};

}  // namespace ccl::detail
