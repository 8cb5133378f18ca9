#include "bootstrap/launch/pmix.hpp"

#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/detached_call.hpp"
#include "base/field_check.hpp"
#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"
#include "net/message_rules.hpp"
#include "settings/init_limit.hpp"
#include <dlfcn.h>
#include <unistd.h>

namespace ccl::detail {

namespace pmix = net::pmix;

namespace {

constexpr double goodbye_s = 5;  // limit of PMIx_Finalize, at the end of the process

/// Hint on what makes a function of PMIx wait.
std::string_view cause_of(std::string_view function) {
  return function == "PMIx_Fence" ? "a rank has ended, or is late; see their output"
                                  : "its server is stopped or overloaded; look at the launcher";
}

Result<void> check(int code, const char* call) {
  if (code == pmix::success) return {};
  return fail(Errc::network, fmt::format("{} failed with {}", call, code));
}

struct ValueEnd {
  void operator()(pmix::Value* value) const {
    if (value->type == pmix::type_string) std::free(value->text);
    std::free(value);
  }
};
using OwnedValue = std::unique_ptr<pmix::Value, ValueEnd>;

}  // namespace

Result<int> job_size_of(int code, pmix::Value* value) {
  const OwnedValue size{value};
  if (code != pmix::success || !size || size->type != pmix::type_uint32) {
    return fail(Errc::not_supported, fmt::format("PMIx does not give the job's size ({})", code));
  }
  FieldCheck check;
  check.in_range("the job's size of PMIx", size->number, 1, net::max_ranks);
  if (!check.good()) return fail(Errc::bad_setting, check.why());
  return int(size->number);
}

Result<std::string> text_of(int code, pmix::Value* value) {
  const OwnedValue text{value};
  CCL_CHECK(check(code, "PMIx_Get"));
  if (!text || text->type != pmix::type_string || text->text == nullptr) {
    return fail(Errc::network, "PMIx_Get gave something else than rank 0 put");
  }
  return std::string{text->text};
}

Pmix::Pmix() : process_{::getpid()} {}

namespace {
std::optional<Pmix> client;  // ends with the process
struct ClientMutex {
  ForkMutex mutex{[] { ::new (static_cast<void*>(&client)) std::optional<Pmix>; }};
};
}  // namespace

Result<Pmix*> Pmix::instance() {
  static constinit MadeOnce<ClientMutex> one;
  const std::lock_guard lock{one.get().mutex};
  if (!client) client.emplace();
  if (!client->begun_) CCL_CHECK(client->open());
  return &*client;
}

Pmix::~Pmix() {
  // The session belongs to the process that opened it. A forked child must not end it.
  if (!begun_ || stuck_ != nullptr || ::getpid() != process_) return;
  const double limit_s = std::min(goodbye_s, init_limit_s().value_or(goodbye_s));
  const auto ended =
      start_detached("the end of PMIx", [end = functions_.finalize] { return end(nullptr, 0); });
  if (ended && returns_within(*ended, limit_s)) return;
  log_warn(LogPart::init, "{}; the process ends without it",
           ended ? fmt::format("PMIx_Finalize has not returned within {:.3g} s", limit_s)
                 : ended.error().what);
}

template <class F>
Result<std::invoke_result_t<F>> Pmix::within_limit(const char* function, F call) {
  const auto late = [](const char* name, std::string_view since) {
    return fail(Errc::timed_out, fmt::format("{} has not returned{} ({}); or raise "
                                             "CCL_INIT_TIMEOUT",
                                             name, since, cause_of(name)));
  };
  if (const char* const stuck = stuck_.load()) return late(stuck, " since an earlier call");
  CCL_TRY(const double limit_s, init_limit_s());
  CCL_TRY(const auto result, start_detached(function, std::move(call)));
  if (returns_within(result, limit_s)) return result.get();
  stuck_ = function;
  return late(function, fmt::format(" within {:.3g} s", limit_s));
}

Result<void> Pmix::find_functions() {
  // It is never closed, because it has threads of its own.
  void* const library = ::dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return fail(Errc::not_supported, ::dlerror());
  const auto find = [&](auto& function, const char* name) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    return function != nullptr;
  };
  Functions& f = functions_;
  if (find(f.init, "PMIx_Init") && find(f.finalize, "PMIx_Finalize") && find(f.put, "PMIx_Put") &&
      find(f.commit, "PMIx_Commit") && find(f.fence, "PMIx_Fence") && find(f.get, "PMIx_Get")) {
    return {};
  }
  return fail(Errc::not_supported, "libpmix.so.2 lacks functions of the PMIx standard");
}

Result<void> Pmix::open() {
  CCL_CHECK(find_functions());
  struct Begun {
    int code;
    pmix::Proc me;
  };
  CCL_TRY(const Begun begun, within_limit("PMIx_Init", [init = functions_.init] {
            Begun made{};
            made.code = init(&made.me, nullptr, 0);
            return made;
          }));
  if (begun.code != pmix::success) {
    return fail(Errc::not_supported, fmt::format("PMIx_Init gave {}", begun.code));
  }
  me_ = begun.me;
  begun_ = true;
  return {};
}

Result<Pmix::Answer> Pmix::get(std::uint32_t rank, const std::string& key) {
  pmix::Proc of = me_;
  of.rank = rank;
  return within_limit("PMIx_Get", [of, key, get = functions_.get] {
    Answer answer;
    answer.code = get(&of, key.c_str(), nullptr, 0, &answer.value);
    return answer;
  });
}

Result<int> Pmix::ranks() {
  CCL_TRY(const Answer size, get(pmix::rank_wildcard, pmix::job_size));
  return job_size_of(size.code, size.value);
}

Result<void> Pmix::put(const std::string& key, const std::string& text) {
  CCL_TRY(const int code, within_limit("PMIx_Put", [key, text, put = functions_.put] {
            pmix::Value value{};
            value.type = pmix::type_string;
            value.text = const_cast<char*>(text.c_str());  // PMIx_Put copies it
            return put(pmix::scope_global, key.c_str(), &value);
          }));
  CCL_CHECK(check(code, "PMIx_Put"));
  CCL_TRY(const int committed, within_limit("PMIx_Commit", functions_.commit));
  return check(committed, "PMIx_Commit");
}

Result<void> Pmix::fence() {
  CCL_TRY(const int joined, within_limit("PMIx_Fence", [fence = functions_.fence] {
            return fence(nullptr, 0, nullptr, 0);
          }));
  // PMIx can count a rank of an earlier PMIx session as ended, and then returns partial success.
  // PMIx_Get fails if the text of rank 0 is missing.
  return joined == pmix::partial_success ? Result<void>{} : check(joined, "PMIx_Fence");
}

Result<std::string> Pmix::from_first(const std::string& key, const std::string& text) {
  if (me_.rank == 0) CCL_CHECK(put(key, text));
  CCL_CHECK(fence());
  if (me_.rank == 0) return text;
  CCL_TRY(const Answer got, get(0, key));
  return text_of(got.code, got.value);
}

}  // namespace ccl::detail
