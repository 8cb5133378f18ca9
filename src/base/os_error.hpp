#pragma once

#include <ccl/types/error.hpp>

#include <string>
#include <string_view>

namespace ccl::detail {

/// An error that carries the errno of the call that failed; says what helps where a limit on file
/// descriptors was met.
Error os_error(Errc code, std::string what, int os_code);

/// An error of a rank that has no communicator yet, which would name it.
Error of_rank(int rank, Error error);

/// What helps against `os_code`, to end an error's sentence: "; raise ulimit -n (...)" where file
/// descriptors ran out, else nothing. Remembers that they did.
std::string descriptor_hint(int os_code);

/// `descriptor_hint` for what gives no error because it tries again: tells it in the log, once.
void note_descriptors(std::string_view what, int os_code);

/// Says in an error of waiting in vain that descriptors ran out in this process, if they did.
Error with_shortage(Error error);

}  // namespace ccl::detail
