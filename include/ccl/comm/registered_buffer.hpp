#pragma once

#include <ccl/comm/communicator.hpp>

#include <cstddef>
#include <memory>
#include <utility>

namespace ccl {
class RegisteredBuffer;
namespace detail {
struct BufferEntry;
/// Registers memory of a rank whose communicator may have failed.
[[nodiscard]] Result<RegisteredBuffer> register_buffer(int rank, void* data, Index bytes);
}  // namespace detail

/// Registration of this rank's memory with the NICs that carry it, made once and used by all later
/// calls. CPU ranks then send large parts from this memory over RDMA and network plug-ins, and
/// receive sends, receives and all-to-all messages into it, without a copy through slots. It has no
/// effect on other transports, on GPU ranks and on protocols with flags.
///
/// A NIC registers the memory at the first step that it moves. If it cannot, the log names the
/// reason, and the memory goes through slots as without registration.
///
/// It is a handle: copies share the registration, which ends with the last one. The registration
/// does not own the memory, counts for all communicators of the process, and must end before the
/// memory is freed. It may end during a call: steps in flight keep it, and later ones use slots.
class RegisteredBuffer {
 public:
  /// Registers `bytes` bytes from `data` on. Not collective; peers need not register theirs. Fails
  /// with `Errc::invalid_argument` if `data` is null or `bytes` is not positive, and with the error
  /// of a communicator that has failed.
  [[nodiscard]] static Result<RegisteredBuffer> create(const Communicator& comm, void* data,
                                                       Index bytes);

  /// Returns the address of the memory, or null in a moved-from object.
  std::byte* data() const;
  /// Returns the bytes of the memory, or 0 in a moved-from object.
  Index bytes() const;

 private:
  friend Result<RegisteredBuffer> detail::register_buffer(int rank, void* data, Index bytes);
  explicit RegisteredBuffer(std::shared_ptr<detail::BufferEntry> entry)
      : entry_{std::move(entry)} {}
  std::shared_ptr<detail::BufferEntry> entry_;
};

}  // namespace ccl
