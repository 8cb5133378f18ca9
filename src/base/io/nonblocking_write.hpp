#pragma once

#include <string_view>

#include <sys/types.h>

namespace ccl::detail {

/// Writes as many bytes of `text` as `fd` accepts at once. It blocks for no reader of a pipe,
/// terminal or socket, whatever flags the file has, and changes none of its flags, because other
/// processes share them. Returns the number of bytes, or -1 with errno: EAGAIN if nothing fits,
/// EPIPE if a pipe has no reader, without a signal.
ssize_t write_without_blocking(int fd, std::string_view text);

}  // namespace ccl::detail
