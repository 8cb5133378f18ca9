#pragma once
namespace ccl::detail::net {
struct Member {
  int rank;
};
}  // namespace ccl::detail::net
