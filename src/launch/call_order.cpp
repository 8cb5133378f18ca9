#include <ccl/detail/launch/call_order.hpp>

#include <fmt/format.h>

#include <utility>

#include "comm/peer_waits.hpp"
#include "comm/state.hpp"
#include "gpu/order/order.hpp"
#include "launch/failed_launch.hpp"

namespace ccl::detail {

namespace {
/// True for errors that all ranks return alike, before any launch that others wait for.
bool is_of_all_ranks(Errc code) {
  return code == Errc::invalid_argument || code == Errc::not_supported ||
         code == Errc::no_device_code || code == Errc::over_budget;
}
}  // namespace

CallOrder::CallOrder(const Communicator& comm) : comm_{comm} {}

CallOrder::~CallOrder() {
  if (comm_.device() >= 0 && scratch_)
    Access::state(comm_)->device.order->retire(std::move(scratch_));
}

Result<void> CallOrder::take_scratch(Index bytes) {
  CCL_TRY(scratch_, scratch_of(comm_, bytes));
  scratch_bytes_ = bytes;
  return {};
}

Result<void> CallOrder::begin(Stream stream, const std::shared_ptr<void>& keep) {
  CCL_CHECK(check_may_wait());  // as a later launch of the call might
  if (auto done = Access::state(comm_)->device.order->before(stream.cuda(), keep); !done) {
    return fail(fail_peers(*Access::state(comm_), stream.cuda(), std::move(done).error()));
  }
  return {};
}

Result<void> CallOrder::end(Stream stream, Result<void> launched) {
  CommState& state = *Access::state(comm_);
  Result<void> ended = state.device.order->after(stream.cuda());
  if (!launched && is_of_all_ranks(launched.error().code)) return launched;
  if (launched && ended) return {};
  Error error = launched ? std::move(ended).error() : std::move(launched).error();
  return fail(fail_peers(state, stream.cuda(), std::move(error)));
}

Result<void> check_stream(const Communicator& comm, const std::string& name, Stream stream) {
  const CommState& state = *Access::state(comm);
  if (stream.recorder() != nullptr) {
    return fail(state.annotate(
        {Errc::not_supported, fmt::format("{} is several launches and no part of a group; call it "
                                          "by itself",
                                          name)}));
  }
  if (state.device.gpu && stream.host() != nullptr) {
    return fail(state.annotate(
        {Errc::invalid_argument, fmt::format("{} was given a HostStream (the communicator is on "
                                             "CUDA device {}); give it a cudaStream_t",
                                             name, state.identity.config().device)}));
  }
  if (!state.device.gpu && stream.cuda() != nullptr) {
    return fail(state.annotate(
        {Errc::invalid_argument, fmt::format("{} was given a CUDA stream (the communicator is on "
                                             "CPUs); give it a HostStream or none, or set "
                                             "Config::device",
                                             name)}));
  }
  return {};
}

}  // namespace ccl::detail
