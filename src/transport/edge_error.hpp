#pragma once

#include <ccl/transport/transport.hpp>
#include <ccl/types/error.hpp>
#include <ccl/types/wire.hpp>

#include <string>

namespace ccl::detail {

/// Error that names both ends of `edge`.
Error edge_error(const Edge& edge, const char* transport, Errc code, std::string what,
                 int os_code = 0);
/// Text of an error: the other end of `edge` was made with another shape.
std::string differing_shapes(const Edge& edge, const WireShape& theirs);

}  // namespace ccl::detail
