#include "launch/failed_launch.hpp"

#include <utility>

namespace ccl::detail {

Error fail_peers(CommState& state, CUstream stream, Error error) {
  error = state.annotate(std::move(error));
  if (error.code == Errc::invalid_argument || !state.status.ok() ||
      state.device.order->captures(stream)) {
    return error;
  }
  error.what +=
      "; other ranks may wait for it, so the communicator has failed on all: make a new one";
  state.rendezvous.fail_all(error);
  return error;
}

}  // namespace ccl::detail
