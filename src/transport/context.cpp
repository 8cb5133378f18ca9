#include <ccl/detail/base/status.hpp>
#include <ccl/detail/runtime/proxy_engine.hpp>
#include <ccl/transport/transport.hpp>

#include <utility>

namespace ccl {

Result<void> TransportContext::add(std::shared_ptr<ProxyTask> task) {
  if (proxy == nullptr) {
    return ccl::fail(Errc::internal, "this communicator has no proxy for the task of a transport");
  }
  return proxy->add(std::move(task));
}
void TransportContext::wake() const {
  if (proxy != nullptr) proxy->wake();
}
bool TransportContext::failed() const {
  return status != nullptr && !status->ok();
}
void TransportContext::fail_communicator(Error error) const {
  if (status != nullptr) status->set(std::move(error));
}

}  // namespace ccl
