#include "bootstrap/launch/pmix_abi.hpp"

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "support/catch.hpp"
#include "support/skip.hpp"

#if __has_include(<pmix.h>)
#  include <pmix.h>

TEST_CASE("our part of the PMIx interface is that of pmix.h") {
  namespace ours = ccl::detail::net::pmix;
  static_assert(sizeof(ours::Proc) == sizeof(pmix_proc_t));
  static_assert(offsetof(ours::Proc, rank) == offsetof(pmix_proc_t, rank));
  static_assert(offsetof(ours::Value, text) == offsetof(pmix_value_t, data));
  static_assert(sizeof(ours::Value) >= sizeof(pmix_value_t));
  static_assert(std::is_same_v<decltype(pmix_value_t::type), decltype(ours::Value::type)>);
  static_assert(std::is_same_v<pmix_scope_t, std::uint8_t> &&
                std::is_same_v<pmix_rank_t, std::uint32_t>);
  CHECK(ours::success == PMIX_SUCCESS);
  CHECK(ours::type_string == PMIX_STRING);
  CHECK(ours::type_uint32 == PMIX_UINT32);
  CHECK(ours::scope_global == PMIX_GLOBAL);
  CHECK(ours::rank_wildcard == PMIX_RANK_WILDCARD);
  CHECK(std::string_view{ours::job_size} == PMIX_JOB_SIZE);
  using namespace std;
  CHECK(is_same_v<decltype(&PMIx_Commit), ours::Commit>);
  CHECK(is_invocable_r_v<int, decltype(&PMIx_Fence), const pmix_proc_t*, size_t, const pmix_info_t*,
                         size_t>);
  CHECK(is_invocable_r_v<int, decltype(&PMIx_Put), uint8_t, const char*, pmix_value_t*>);
  CHECK(is_invocable_r_v<int, decltype(&PMIx_Get), const pmix_proc_t*, const char*,
                         const pmix_info_t*, size_t, pmix_value_t**>);
  CHECK(is_invocable_r_v<int, decltype(&PMIx_Init), pmix_proc_t*, pmix_info_t*, size_t>);
  CHECK(is_invocable_r_v<int, decltype(&PMIx_Finalize), const pmix_info_t*, size_t>);
}
#else
TEST_CASE("our part of the PMIx interface is that of pmix.h") {
  ccl::test::skip("there is no pmix.h");
}
#endif
