#pragma once

#include <ccl/types/result.hpp>

#include <atomic>
#include <cstdint>
#include <string>
#include <type_traits>

#include "bootstrap/launch/pmix_abi.hpp"
#include <sys/types.h>

namespace ccl::detail {

// Values that a server of PMIx gives, checked before they are used. Both functions free `value`,
// which may be null.

/// Returns the number of ranks of the job. `code` is that of PMIx_Get.
Result<int> job_size_of(int code, net::pmix::Value* value);
/// Returns the text that rank 0 put.
Result<std::string> text_of(int code, net::pmix::Value* value);

/// Client of the PMIx library.
///
/// The library waits for a server, which may never answer. Each of its functions therefore runs on
/// a thread of its own, for at most CCL_INIT_TIMEOUT. Once a function has not returned in time, the
/// client calls none, because the library may hold locks: every call fails with `Errc::timed_out`
/// and the name of that function.
class Pmix {
 public:
  /// Returns the client of this process. PMIx cannot reliably start again after its end.
  static Result<Pmix*> instance();
  Pmix();
  Pmix(const Pmix&) = delete;
  Pmix& operator=(const Pmix&) = delete;
  ~Pmix();

  int rank() const { return int(me_.rank); }
  Result<int> ranks();
  /// Returns the text of rank 0. Collective.
  Result<std::string> from_first(const std::string& key, const std::string& text);

 private:
  struct Functions {
    net::pmix::Init init = nullptr;
    net::pmix::Finalize finalize = nullptr;
    net::pmix::Put put = nullptr;
    net::pmix::Commit commit = nullptr;
    net::pmix::Fence fence = nullptr;
    net::pmix::Get get = nullptr;
  };
  struct Answer {
    int code = 0;
    net::pmix::Value* value = nullptr;
  };

  Result<void> open();
  Result<void> find_functions();
  /// Returns what `call` returns, which must own all that it uses. `function` names it.
  template <class F>
  Result<std::invoke_result_t<F>> within_limit(const char* function, F call);
  Result<Answer> get(std::uint32_t rank, const std::string& key);
  Result<void> put(const std::string& key, const std::string& text);
  Result<void> fence();

  const pid_t process_;
  Functions functions_;
  net::pmix::Proc me_{};
  bool begun_ = false;                       // PMIx_Init has succeeded
  std::atomic<const char*> stuck_{nullptr};  // the function that has not returned in time
};

}  // namespace ccl::detail
