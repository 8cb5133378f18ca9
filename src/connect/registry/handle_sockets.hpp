#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "base/io/fd.hpp"
#include "comm/state.hpp"
#include "gpu/shared_handle.hpp"

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

  /// Sends a request of this rank to the owner of a memory. Returns false if it is lost.
  bool ask(int owner, Word id, int first) const;
  /// Sends handles of this rank, at most `max_handles`. Returns false if they are lost.
  bool reply(int reader, Word id, int first, const std::vector<SharedHandle>& handles) const;
  /// Returns the next message to this rank, if there is one. Drops what is not a message of a rank
  /// of another process.
  std::optional<Message> receive() const;

 private:
  struct Record;
  bool send(int rank, const Record& record, const std::vector<SharedHandle>& handles) const;
  std::optional<Message> read(const Record& record, std::vector<Fd> descriptors) const;

  int rank_ = 0;
  Fd inbox_;
  std::vector<Fd> outboxes_;  // by rank; empty for ranks of this process
};

}  // namespace ccl::detail
