#pragma once

#include <ccl/types/result.hpp>

#include <string>
#include <string_view>

namespace ccl::detail {

/// Returns the content of a file. Fails with `Errc::system` and errno if it cannot be read. Fails
/// with `Errc::invalid_argument` above 64 MiB, because a device or a pipe may have no end. Fails
/// with `Errc::timed_out` if nothing comes through a pipe for 5 s.
Result<std::string> whole_file(const std::string& path);

/// Returns the first line of a file, as of /sys or /proc, without its end. Empty if it cannot be
/// read. Unlike a stream of the C++ library, a program that is executed meanwhile does not inherit
/// the descriptor.
std::string first_line(const std::string& path);

/// Replaces the content of a file. Fails with `Errc::system` and errno if it cannot be written,
/// such as EPIPE for a pipe whose reader has left, without a signal. Fails with `Errc::timed_out`
/// if nobody reads from a pipe for 5 s.
Result<void> write_whole_file(const std::string& path, std::string_view text);

/// Replaces a file at once: who reads it meanwhile gets the old or the new content. Several threads
/// and processes may do so. Fails as `write_whole_file` does, and leaves the old file.
Result<void> replace_whole_file(const std::string& path, std::string_view text);

}  // namespace ccl::detail
