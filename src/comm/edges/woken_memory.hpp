#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpu/memory.hpp"
#include "transport/fd_server.hpp"
#include "transport/proof.hpp"

namespace ccl::detail {

/// Memory as its owner describes it to a rank that has mapped it, when it has pages again. Without
/// a name the owner does not have it.
struct WokenMemory {
  GpuMemoryName name;
  Nonce nonce{};
  UnixName at;  // where its descriptor is; empty for another host
};

/// Returns what does not fit in the description of memory that is there, or an empty text.
std::string wrong_woken_memory(const WokenMemory& said);

/// Reads a message that is an array of `T`. Returns nothing, and sets `why`, if it is none.
template <class T>
std::optional<std::vector<T>> read_array(std::span<const std::byte> message, std::string& why) {
  if (message.size() % sizeof(T) != 0) {
    why = fmt::format("length of a description of memory is {}, no multiple of {}", message.size(),
                      sizeof(T));
    return {};
  }
  std::vector<T> all(message.size() / sizeof(T));
  if (!all.empty()) std::memcpy(static_cast<void*>(all.data()), message.data(), message.size());
  return all;
}

}  // namespace ccl::detail
