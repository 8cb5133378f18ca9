#include "nccl/plug_in/tuner.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "choose/only_selected.hpp"
#include "nccl/plug_in/abi.hpp"
#include "nccl/plug_in/hosts.hpp"
#include "nccl/plug_in/library.hpp"

namespace ccl::detail::nccl {
namespace {

constexpr std::array<std::string_view, 3> symbols{"ncclTunerPlugin_v7", "ncclTunerPlugin_v6",
                                                  "ncclTunerPlugin_v5"};
constexpr std::array<const char*, 2> algorithms{"TREE", "RING"};  // by NCCL's numbers
constexpr std::array<const char*, tuner_protocols> protocols{"LL", "LL128", "SIMPLE"};

/// The process's plug-in, or null. It is looked for once.
const TunerPlugIn* plug_in() {
  static const auto* const found = [] {
    const auto setting = setting_text("TUNER_PLUGIN");
    return static_cast<const TunerPlugIn*>(
        find_plug_in("tuner", setting ? *setting : "none", symbols).object);
  }();
  return found;
}

std::optional<TunedFunction> function_of(Kind kind) {
  switch (kind) {
    case Kind::all_reduce:
      return tuned_all_reduce;
    case Kind::reduce_scatter:
      return tuned_reduce_scatter;
    case Kind::reduce:
      return tuned_reduce;
    case Kind::all_gather:
      return tuned_all_gather;
    case Kind::broadcast:
      return tuned_broadcast;
    default:
      return {};
  }
}

/// Name of the fastest entry; empty if there is none.
std::string fastest(const TunerTable& table) {
  std::string name;
  float least = 0;
  for (std::size_t a = 0; a < algorithms.size(); ++a) {
    for (std::size_t p = 0; p < protocols.size(); ++p) {
      const float us = table[a][p];
      if (us < 0 || (!name.empty() && us >= least)) continue;
      least = us;
      name = fmt::format("{}_{} ", algorithms[a], protocols[p]);
    }
  }
  return name;
}

class Tuned final : public Operations {
 public:
  Tuned(std::unique_ptr<Operations> inner, const TunerPlugIn& plug_in, void* context, int ranks)
      : inner_{std::move(inner)}, plug_in_{plug_in}, context_{context}, ranks_{ranks} {}
  ~Tuned() override { (void)plug_in_.finalize(context_); }

  Result<void> run(const Call& call) override { return inner_->run(with_choice(call)); }
  Result<Choice> choice(const Call& call) override { return inner_->choice(with_choice(call)); }
  Result<double> predict(const Call& call) const override { return inner_->predict(call); }
  Result<void> exchange(std::span<const Call> messages) override {
    return inner_->exchange(messages);
  }

 private:
  Index bytes_of(const Call& call) const {
    const bool shares = call.kind == Kind::all_gather || call.kind == Kind::reduce_scatter;
    return call.count * size_of(call.type) * (shares ? ranks_ : 1);
  }

  void fill(TunerTable& table, const Call& call) const {
    for (auto& row : table) std::fill(std::begin(row), std::end(row), -1.f);
    for (std::size_t a = 0; a < algorithms.size(); ++a) {
      for (std::size_t p = 0; p < protocols.size(); ++p) {
        const std::string name = fmt::format("{}_{} ", algorithms[a], protocols[p]);
        const OnlySelected only{name};
        if (const auto us = inner_->predict(call)) table[a][p] = float(*us);
      }
    }
  }

  /// What the plug-in makes the fastest; empty if it leaves the choice to ccl.
  std::string ask(TunedFunction function, const Call& call) {
    TunerTable table;
    fill(table, call);
    const std::string before = fastest(table);
    if (before.empty()) return {};
    int channels = 0;
    // As NCCL passes it: the table itself, under the type of rows.
    float** const rows = reinterpret_cast<float**>(&table);
    const auto done = plug_in_.choose(context_, function, std::size_t(bytes_of(call)), 1, rows,
                                      tuner_algorithms, tuner_protocols, 0, &channels);
    if (done != ncclSuccess) return {};
    if (channels > 0 && !std::exchange(said_channels_, true)) {
      log_info(LogPart::tuning,
               "the tuner plug-in's number of channels ({}) has no effect: ccl chooses the blocks "
               "of a launch by its size",
               channels);
    }
    std::string after = fastest(table);
    return after == before ? std::string{} : after;
  }

  Call with_choice(const Call& call) {
    const auto function = function_of(call.kind);
    const bool selects = call.options != nullptr && !call.options->algorithms.empty();
    if (!function || selects) return call;
    const auto key = std::make_pair(*function, bytes_of(call));
    auto known = answers_.find(key);
    if (known == answers_.end()) {
      if (answers_.size() == max_answers) answers_.clear();
      known = answers_.emplace(key, ask(*function, call)).first;
    }
    if (known->second.empty()) return call;
    Call chosen = call;
    auto options = call.options != nullptr ? std::make_shared<CallOptions>(*call.options)
                                           : std::make_shared<CallOptions>();
    options->algorithms = known->second;
    options->must_select = false;
    chosen.options = std::move(options);
    return chosen;
  }

  static constexpr std::size_t max_answers = 4096;
  const std::unique_ptr<Operations> inner_;
  const TunerPlugIn& plug_in_;
  void* const context_;
  const int ranks_;
  bool said_channels_ = false;
  std::map<std::pair<TunedFunction, Index>, std::string> answers_;  // each is asked once
};

}  // namespace

std::unique_ptr<Operations> tuned(std::unique_ptr<Operations> operations, const Communicator& comm,
                                  std::string_view family) {
  const TunerPlugIn* const with = plug_in();
  if (with == nullptr) return operations;
  void* context = nullptr;
  const auto id = std::hash<std::string_view>{}(family);
  const int hosts = hosts_of(comm);
  NvlinkDomains domains{hosts, comm.ranks() / hosts, comm.ranks() / hosts};
  TunerConstants constants{};
  if (with->init(&context, id, std::size_t(comm.ranks()), std::size_t(hosts), log_of_plug_in,
                 &domains, &constants) != ncclSuccess) {
    log_info(LogPart::tuning, "the tuner plug-in refuses this communicator");
    return operations;
  }
  return std::make_unique<Tuned>(std::move(operations), *with, context, comm.ranks());
}

}  // namespace ccl::detail::nccl
