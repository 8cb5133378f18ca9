#include "nccl/log/lines.hpp"

#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/log_style.hpp"
#include "base/text.hpp"
#include "nccl/abi/types.hpp"
#include "nccl/device/devices.hpp"

namespace ccl::detail::nccl {
namespace {

/// The library's lines begin as NCCL's from its load on: see `use_nccl_log_style`.
[[maybe_unused]] const bool styled = [] {
  use_nccl_log_style([] { return current_device(); });
  return true;
}();

const char* function_of(Kind kind) {
  constexpr std::array<const char*, int(Kind::recv) + 1> names{
      "AllReduce", "ReduceScatter", "Reduce",  "AllGather", "Broadcast",
      "AlltoAll",  "Gather",        "Scatter", "Send",      "Recv"};
  return names[std::size_t(kind)];
}

class Chosen final : public Operations {
 public:
  explicit Chosen(std::unique_ptr<Operations> inner) : inner_{std::move(inner)} {}
  Result<void> run(const Call& call) override {
    if (!call.is_message() && log_enabled(LogLevel::info, LogPart::tuning)) {
      CCL_TRY(const Choice choice, inner_->choice(call));
      const std::string_view all = choice.composition;
      const auto slash = std::min(all.find('/'), all.size());
      log_as_nccl(LogLevel::info, LogPart::tuning,
                  fmt::format("{}: {} Bytes -> Algo {} proto {} channel{{Lo..Hi}}={{0..{}}}",
                              function_of(call.kind), call.count * size_of(call.type),
                              upper(all.substr(0, slash)),
                              upper(all.substr(std::min(slash + 1, all.size()))),
                              std::max(choice.channels, 1) - 1));
    }
    return inner_->run(call);
  }
  Result<Choice> choice(const Call& call) override { return inner_->choice(call); }
  Result<double> predict(const Call& call) const override { return inner_->predict(call); }
  Result<void> exchange(std::span<const Call> messages) override {
    return inner_->exchange(messages);
  }

 private:
  const std::unique_ptr<Operations> inner_;
};

}  // namespace

void LoggedRank::log_stage(const char* what, const char* stage) const {
  if (!log_enabled(LogLevel::info, LogPart::init)) return;
  const bool of_function = *what != 0;
  const std::string text = fmt::format(
      "{}{}comm {} rank {} nranks {} cudaDev {} nvmlDev {} busId {:x} commId 0x{:x} {}- {}", what,
      of_function ? " " : "", handle, rank, ranks, device, device,
      std::max<std::int64_t>(bus_id, 0), id, of_function ? origin : "", stage);
  log_as_nccl(LogLevel::info, LogPart::init, text);
}

void LoggedRank::log_call(const Call& call, std::uint64_t number) const {
  if (!log_enabled(LogLevel::info, LogPart::coll)) return;
  const std::string text = fmt::format(
      "{}: opCount {:x} sendbuff {} recvbuff {} count {} datatype {} op {} root {} comm {} "
      "[nranks={}] stream {}",
      function_of(call.kind), number, call.send, call.recv, call.count, int(nccl_type(call.type)),
      call.reduces() ? int(nccl_op(call.op.name())) : 0, call.root, handle, ranks,
      static_cast<const void*>(call.stream));
  log_as_nccl(LogLevel::info, LogPart::coll, text);
}

void LoggedRank::log_start(const char* function, int as, int of) const {
  LoggedRank starts = *this;
  starts.rank = as;
  starts.ranks = of;
  starts.log_stage(function, "Init START");
}

std::unique_ptr<Operations> log_choices(std::unique_ptr<Operations> operations) {
  if (!log_enabled(LogLevel::info, LogPart::tuning)) return operations;
  return std::make_unique<Chosen>(std::move(operations));
}

}  // namespace ccl::detail::nccl
