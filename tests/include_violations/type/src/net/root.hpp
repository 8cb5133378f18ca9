#pragma once
namespace ccl::detail {
int rank_of(const net::Member& member);
}
