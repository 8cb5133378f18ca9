// NCCL's one-sided operations: writes into a peer's window, and signals.
#include <fmt/format.h>

#include <limits>
#include <utility>
#include <vector>

#include "nccl/api.hpp"
#include "nccl/device/devices.hpp"
#include "nccl/fallback/rank.hpp"
#include "nccl/functions/collectives.hpp"
#include "nccl/windows.hpp"

namespace ccl::detail::nccl {
namespace {

Result<void> check_flags(unsigned flags) {
  if (flags == 0) return {};
  return fail(Errc::invalid_argument, fmt::format("flags are {}; pass 0", flags));
}

/// Runs a step that returns before the GPU has done its work.
template <class Step>
Result<void> launch(std::shared_ptr<Member> member, Step step) {
  Member& whose = *member;
  return Group::of_this_thread().submit_launch(std::move(member), [&whose, step]() -> Result<void> {
    CCL_TRY(const auto signals, whose.signals());
    return step(*signals);
  });
}

struct Put {
  std::shared_ptr<RegisteredWindow> window;
  const void* send;
  std::byte* to;
  std::size_t bytes;
};

Result<Put> put_of(const void* send, std::size_t count, ncclDataType_t type, int peer,
                   ncclWindow_t window, std::size_t offset) {
  CCL_TRY(const DataType of, type_of(type));
  CCL_TRY(auto registered, window_of(window));
  const auto each = std::size_t(size_of(of));
  if (count > std::numeric_limits<std::size_t>::max() / each) {
    return fail(Errc::invalid_argument, fmt::format("{} elements are more than memory has", count));
  }
  const std::size_t bytes = count * each;
  if (bytes > 0) CCL_CHECK(check_input(send, "localbuff"));
  CCL_TRY(std::byte* const to, part_of(*registered, peer, offset, bytes));
  return Put{std::move(registered), send, to, bytes};
}

Result<std::vector<ncclWaitSignalDesc_t>> waits_of(const ncclWaitSignalDesc_t* given, int count) {
  if (given == nullptr || count <= 0) {
    return fail(Errc::invalid_argument,
                fmt::format("signalDescs are {}, and nDesc is {}; pass what to wait for, and how "
                            "many there are",
                            given == nullptr ? "null" : "given", count));
  }
  for (int i = 0; i < count; ++i) {
    if (given[i].opCnt > 0) continue;
    return fail(
        Errc::invalid_argument,
        fmt::format("signalDescs[{}].opCnt is {}; wait for 1 signal or more", i, given[i].opCnt));
  }
  return std::vector<ncclWaitSignalDesc_t>(given, given + count);
}

/// Checks at once what is known when the call is made; a communicator in creation has no signals.
Result<void> check_now(const Member& member, const SignalPlace& place) {
  CCL_TRY(const auto signals, member.signals());
  return signals->check(place);
}

}  // namespace
}  // namespace ccl::detail::nccl

using namespace ccl::detail::nccl;

ncclResult_t ncclPutSignal(const void* send, std::size_t count, ncclDataType_t type, int peer,
                           ncclWindow_t window, std::size_t offset, int signal, int context,
                           unsigned flags, ncclComm_t comm, cudaStream_t stream) {
  return answer_in_group([&]() -> ccl::Result<void> {
    CCL_TRY(auto member, member_of(comm));
    if (const auto real = member->real()) {
      Member& whose = *member;
      return Group::of_this_thread().submit(std::move(member), [=, &whose]() -> ccl::Result<void> {
        CCL_CHECK(whose.usable());
        return real->call(real->library().PutSignal, "ncclPutSignal", send, count, type, peer,
                          window, offset, signal, context, flags, real->comm(), stream);
      });
    }
    CCL_CHECK(check_flags(flags));
    const SignalPlace place{peer, signal, context};
    CCL_TRY(const auto put, put_of(send, count, type, peer, window, offset));
    if (!member->has_window(put.window.get())) {
      return ccl::fail(ccl::Errc::invalid_argument,
                       "the window belongs to another communicator; pass one that "
                       "ncclCommWindowRegister gave for this one");
    }
    CCL_CHECK(check_now(*member, place));
    return launch(std::move(member), [=](Signals& signals) {
      return signals.put(put.to, put.send, put.bytes, place, stream);
    });
  });
}

ncclResult_t ncclSignal(int peer, int signal, int context, unsigned flags, ncclComm_t comm,
                        cudaStream_t stream) {
  return answer_in_group([&]() -> ccl::Result<void> {
    CCL_TRY(auto member, member_of(comm));
    if (const auto real = member->real()) {
      Member& whose = *member;
      return Group::of_this_thread().submit(std::move(member), [=, &whose]() -> ccl::Result<void> {
        CCL_CHECK(whose.usable());
        return real->call(real->library().Signal, "ncclSignal", peer, signal, context, flags,
                          real->comm(), stream);
      });
    }
    CCL_CHECK(check_flags(flags));
    const SignalPlace place{peer, signal, context};
    CCL_CHECK(check_now(*member, place));
    return launch(std::move(member), [=](Signals& signals) { return signals.send(place, stream); });
  });
}

ncclResult_t ncclWaitSignal(int count, ncclWaitSignalDesc_t* given, ncclComm_t comm,
                            cudaStream_t stream) {
  return answer_in_group([&]() -> ccl::Result<void> {
    CCL_TRY(auto member, member_of(comm));
    CCL_TRY(auto waits, waits_of(given, count));
    if (const auto real = member->real()) {
      Member& whose = *member;
      return Group::of_this_thread().submit(
          std::move(member), [=, &whose]() mutable -> ccl::Result<void> {
            CCL_CHECK(whose.usable());
            return real->call(real->library().WaitSignal, "ncclWaitSignal", int(waits.size()),
                              waits.data(), real->comm(), stream);
          });
    }
    for (const auto& one : waits) {
      CCL_CHECK(check_now(*member, {one.peer, one.sigIdx, one.ctx}));
    }
    return launch(std::move(member), [=](Signals& signals) -> ccl::Result<void> {
      for (const auto& one : waits) {
        CCL_CHECK(signals.wait({one.peer, one.sigIdx, one.ctx}, std::uint64_t(one.opCnt), stream));
      }
      return {};
    });
  });
}

CCL_NCCL_ALSO_P(ncclPutSignal);
CCL_NCCL_ALSO_P(ncclSignal);
CCL_NCCL_ALSO_P(ncclWaitSignal);
