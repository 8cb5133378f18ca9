#include <ccl/comm/window.hpp>

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <utility>

#include "base/exceptions.hpp"
#include "comm/edges/window_state.hpp"
#include "comm/state.hpp"
#include "transport/fd_server.hpp"

namespace ccl {

Result<SharedMemory> SharedMemory::allocate(const Communicator& comm, Index bytes) {
  return detail::without_exceptions([&]() -> Result<SharedMemory> {
    detail::CommState& state = *detail::Access::state(comm);
    CCL_CHECK(state.ready());
    if (bytes <= 0) {
      return fail(state.annotate(Error{Errc::invalid_argument,
                                       fmt::format("shared memory of {} bytes cannot be", bytes)}));
    }
    auto block = std::make_shared<detail::SharedBlock>();
    block->bytes = bytes;
    if (state.device.gpu) {
      auto memory = detail::GpuMemory::allocate(state.device.gpu, std::size_t(bytes));
      if (!memory) return fail(state.annotate(std::move(memory).error()));
      block->gpu.memory = *std::move(memory);
      return SharedMemory{std::move(block)};
    }
    auto file = detail::shareable_memory("ccl-shared", std::size_t(bytes));
    if (!file) return fail(state.annotate(std::move(file).error()));
    block->file = *std::move(file);
    auto host = detail::Mapping::of(block->file, std::size_t(bytes));
    if (!host) {
      Error error = std::move(host).error();
      error.what = fmt::format("cannot map {} bytes of shared memory ({}); allocate less", bytes,
                               std::strerror(error.os_code));
      return fail(state.annotate(std::move(error)));
    }
    block->host = *std::move(host);
    return SharedMemory{std::move(block)};
  });
}

std::byte* SharedMemory::data() const {
  return block_ ? block_->data() : nullptr;  // null if moved from
}
Index SharedMemory::bytes() const {
  return block_ ? block_->bytes : 0;
}

}  // namespace ccl
