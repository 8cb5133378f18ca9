#include "transport/proxied/connecting_link.hpp"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/field_check.hpp"
#include "net/message_rules.hpp"

namespace ccl::detail {

Error ConnectingLink::annotated(Error error) const {
  error.rank = edge.self.rank;
  if (error.peer < 0) error.peer = edge.peer.rank;  // else a third rank, which the peer names
  error.host = edge.self.host;
  error.transport = transport_;
  return error;
}

void ConnectingLink::fail_with(Error error, bool tell_all) {
  error = annotated(std::move(error));
  {
    const std::lock_guard lock{mutex_};
    if (state_.load() == State::failed) return;
    error_ = error;
    state_.store(State::failed, std::memory_order_release);
  }
  if (tell_all && !closing.load() && context.status != nullptr)
    context.status->set(std::move(error));
}

Error ConnectingLink::error() const {
  const std::lock_guard lock{mutex_};
  return error_;
}

Result<void> ConnectingLink::wait_connected(const net::Deadline& deadline) {
  while (state() == State::connecting) {
    if (context.status != nullptr) CCL_CHECK(context.status->result());
    if (deadline.passed()) {
      return fail(Errc::timed_out,
                  fmt::format("rank {} on {} does not answer (its process is stopped?); start all "
                              "ranks, or raise CCL_INIT_TIMEOUT",
                              edge.peer.rank, edge.peer.host));
    }
    if (!context.proxy->help()) std::this_thread::sleep_for(std::chrono::microseconds{100});
  }
  if (state() == State::failed) return fail(error());
  return {};
}

std::vector<std::byte> refusal(const Error& error) {
  ControlWriter body;
  body.put(std::int32_t(error.code));
  body.put(std::int32_t(error.peer));
  body.put_all(std::vector<char>(error.what.begin(), error.what.end()));
  return std::move(body.body);
}

Result<Error> read_refusal(const Edge& edge, std::span<const std::byte> body) {
  ControlReader reader{body};
  const auto code = reader.get<std::int32_t>();
  const auto at_fault = reader.get<std::int32_t>();
  const auto text = reader.get_all<char>();
  FieldCheck check;
  check.in_range("rank at fault", at_fault, -1, net::max_ranks - 1);
  check.require(reader.good(), "its end is missing");
  if (!check.good()) return fail(Errc::mismatch, check.why());
  const bool known = code > int(Errc::ok) && name(Errc(code)) != "unknown";
  Error error{known ? Errc(code) : Errc::network,
              fmt::format("rank {} on {} gave up: {}", edge.peer.rank, edge.peer.host,
                          std::string(text.begin(), text.end()))};
  if (at_fault != edge.self.rank) error.peer = at_fault;
  return error;
}

}  // namespace ccl::detail
