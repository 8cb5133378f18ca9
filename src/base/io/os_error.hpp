#pragma once

#include <ccl/types/error.hpp>

#include <string>
#include <string_view>

namespace ccl::detail {

/// Error that carries the errno of the failed call, with advice if file descriptors ran out.
Error os_error(Errc code, std::string what, int os_code);

/// Error of a rank that has no communicator yet to name it.
Error of_rank(int rank, Error error);

/// Advice on `os_code`, for the end of an error's sentence: "; raise ulimit -n (...)" if file
/// descriptors ran out, else empty. Remembers that they did.
std::string descriptor_hint(int os_code);

/// Logs `descriptor_hint` once, for operations that are retried without an error.
void note_descriptors(std::string_view what, int os_code);

/// Adds to a timeout error that descriptors ran out in this process, if they did.
Error with_shortage(Error error);

}  // namespace ccl::detail
