#pragma once

#include <ccl/transport/transport.hpp>
#include <ccl/types/error.hpp>
#include <ccl/types/wire.hpp>

#include <string>
#include <string_view>

namespace ccl::detail {

/// Error that names both ends of `edge`.
Error edge_error(const Edge& edge, const char* transport, Errc code, std::string what,
                 int os_code = 0);
/// Text of an error: the other end of `edge` was made with another shape.
/// Text for a message of the peer that does not fit. It names both ends and the reason.
std::string broken_protocol(const Edge& edge, std::string_view why);
std::string differing_shapes(const Edge& edge, const WireShape& theirs);

}  // namespace ccl::detail
