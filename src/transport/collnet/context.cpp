#include "transport/collnet/context.hpp"

#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/detached_call.hpp"
#include "base/exceptions.hpp"

namespace ccl::detail::collnet {
namespace {
constexpr int max_devices = 64;
}  // namespace

Error Context::failed(const char* function, int code) const {
  return {Errc::network,
          fmt::format("the CollNet plug-in {} failed in {} with {}; see its lines in "
                      "the log, or unset CCL_COLLNET_ENABLE",
                      plug_in_.text(), function, code_text(code))};
}

Result<void> Context::within(double limit_s, std::function<Result<void>(Calls&)> body) {
  if (is_stuck()) {
    return fail(Errc::network, fmt::format("the CollNet plug-in {} has not returned from a call "
                                           "(it is not called again); unset CCL_COLLNET_ENABLE",
                                           plug_in_.text()));
  }
  const auto calls = std::make_shared<Calls>(shared_from_this());
  // The thread drops what the body owns before the caller goes on.
  const auto run = [calls, body = std::move(body)]() mutable {
    Result<void> result;
    const auto thrown = completion_of([&] { result = std::exchange(body, nullptr)(*calls); });
    return thrown ? result : thrown;
  };
  CCL_TRY(const auto result, start_detached("a CollNet plug-in", run));
  if (returns_within(result, limit_s)) return result.get();
  stuck_.store(true);
  return fail(
      Errc::timed_out,
      fmt::format("the CollNet plug-in {} has not returned from {} for {} s (other ranks may "
                  "have failed); look there, or raise CCL_INIT_TIMEOUT",
                  plug_in_.text(), calls->running(), limit_s));
}

Result<std::shared_ptr<Context>> Context::open(std::uint64_t communicator, double limit_s) {
  CCL_TRY(PlugIn plug_in, PlugIn::find());
  const std::shared_ptr<Context> made{new Context{std::move(plug_in)}};
  CCL_CHECK(made->within(
      limit_s, [made, communicator](Calls& calls) { return made->begin(calls, communicator); }));
  if (made->devices_.empty()) {
    return fail(Errc::no_transport, fmt::format("the CollNet plug-in {} has no device on this host",
                                                made->plug_in_.text()));
  }
  return made;
}

Result<void> Context::begin(Calls& calls, std::uint64_t communicator) {
  CCL_CHECK(calls.run("init", [&] { return plug_in_.init(&handle_, communicator); }));
  begun_ = true;
  int count = 0;
  CCL_CHECK(calls.run("devices", [&] { return plug_in_.devices(&count); }));
  for (int n = 0; n < std::min(count, max_devices); ++n) {
    PropertiesV10 of{};
    CCL_CHECK(calls.run("getProperties", [&] { return plug_in_.properties(n, &of); }));
    const auto text = [](const char* given) { return std::string{given == nullptr ? "" : given}; };
    if (of.max_reduced_bytes == 0 || of.max_reduced_bytes > max_bytes) {
      return fail(
          Errc::network,
          fmt::format("the CollNet plug-in {} reduces at most {} bytes at once on its device "
                      "{} (1 to {} are possible); use another version of it",
                      plug_in_.text(), of.max_reduced_bytes, n, max_bytes));
    }
    if ((of.memory_kinds & host_memory) == 0) {
      return fail(Errc::no_transport,
                  fmt::format("the CollNet plug-in {} does not access host memory on its device {} "
                              "(ccl's wires to a network lie there); use another plug-in",
                              plug_in_.text(), n));
    }
    devices_.push_back(
        {text(of.name), text(of.pci_path), of.max_reduced_bytes, of.max_groups, of.port});
  }
  if (devices_.empty()) return {};
  for (int op = 0; op < network_op_count; ++op) {
    for (int type = 0; type < network_type_count; ++type) {
      int yes = 0;
      CCL_CHECK(
          calls.run("reduceSupport", [&] { return plug_in_.group().supports(type, op, &yes); }));
      if (yes != 0) support_[std::size_t(op)] |= 1u << type;
    }
  }
  return {};
}

Context::~Context() {
  if (!begun_ || is_stuck()) return;
  // The thread has its own copy of the table, because this object ends.
  const auto result = start_detached("a CollNet plug-in", [plug_in = plug_in_, handle = handle_] {
    return plug_in.finalize(handle);
  });
  if (!result) return;
  if (!returns_within(*result, close_limit_s)) {
    log_warn(LogPart::net, "the CollNet plug-in {} has not returned from finalize for {} s",
             plug_in_.text(), close_limit_s);
  } else if (const int code = result->get(); code != 0) {
    log_warn(LogPart::net, "the CollNet plug-in {} failed in finalize with {}", plug_in_.text(),
             code_text(code));
  }
}

}  // namespace ccl::detail::collnet
