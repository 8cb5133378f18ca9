#include <ccl/comm/registered_buffer.hpp>
#include <ccl/detail/runtime/guarded.hpp>

#include <fmt/format.h>

#include "base/forks.hpp"
#include "transport/registered_memory.hpp"

namespace ccl {
namespace detail {

/// Entry of a buffer in the table of the process.
struct BufferEntry {
  explicit BufferEntry(std::shared_ptr<RegisteredMemory> registered)
      : memory{std::move(registered)} {
    add_registered(memory);
  }
  ~BufferEntry() { remove_registered(*memory); }
  BufferEntry(const BufferEntry&) = delete;
  BufferEntry& operator=(const BufferEntry&) = delete;
  const std::shared_ptr<RegisteredMemory> memory;
};

Result<RegisteredBuffer> register_buffer(int rank, void* data, Index bytes) {
  if (data == nullptr || bytes <= 0) {
    return fail(Errc::invalid_argument,
                fmt::format("rank {} registers {} bytes at {}; pass memory of its own and its size",
                            rank, bytes, data));
  }
  auto memory = std::make_shared<RegisteredMemory>(static_cast<std::byte*>(data), bytes);
  // A NIC's registration is shared with forked children, which must not end it.
  return RegisteredBuffer{left_alone_by_forks(new BufferEntry{std::move(memory)})};
}

}  // namespace detail

Result<RegisteredBuffer> RegisteredBuffer::create(const Communicator& comm, void* data,
                                                  Index bytes) {
  return detail::guarded(comm, [&]() -> Result<RegisteredBuffer> {
    CCL_CHECK(comm.status());
    return detail::register_buffer(comm.rank(), data, bytes);
  });
}

std::byte* RegisteredBuffer::data() const {
  return entry_ ? entry_->memory->base() : nullptr;
}
Index RegisteredBuffer::bytes() const {
  return entry_ ? entry_->memory->bytes() : 0;
}

}  // namespace ccl
