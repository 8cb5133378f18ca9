#include <ccl/detail/runtime/guarded.hpp>

#include <utility>

#include "base/exceptions.hpp"
#include "comm/observe/failure_dump.hpp"
#include "comm/state.hpp"

namespace ccl::detail {

Result<void> guarded_call(const Communicator& comm, Result<void> (*run)(void* call), void* call) {
  auto result =
      without_exceptions([&] { return run(call); },
                         [&comm](Error error) { return fail_thrown(comm, std::move(error)); });
  if (!result) after_failed_call(comm);
  return result;
}
Error fail_thrown(const Communicator& comm, Error error) noexcept {
  CommState& state = *Access::state(comm);
  const Errc code = error.code;
  auto annotated =
      without_exceptions([&]() -> Result<Error> { return state.annotate(std::move(error)); },
                         [&](Error) { return brief_error(code); });
  Error own = annotated ? *std::move(annotated) : std::move(annotated).error();
  if (!completes([&] { state.rendezvous.fail_all(own); })) {
    state.rendezvous.fail_all(brief_error(code));
  }
  return own;
}

void after_failed_call(const Communicator& comm) noexcept {
  CommState& state = *Access::state(comm);
  if (Errc(state.status.word().load()) == Errc::out_of_memory) {
    state.rendezvous.fail_all(brief_error(Errc::out_of_memory));
  }
  dump_failure(state);
}

}  // namespace ccl::detail
