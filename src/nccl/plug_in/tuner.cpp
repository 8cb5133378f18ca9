#include "nccl/plug_in/tuner.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "choose/only_selected.hpp"
#include "comm/part_rules.hpp"
#include "comm/peer_waits.hpp"
#include "comm/state.hpp"
#include "nccl/abi/part_rules.hpp"
#include "nccl/plug_in/abi.hpp"
#include "plug_in/library.hpp"

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

/// Gathers an element of each rank, and checks it by `wrong`. Collective.
Result<void> gather(const Communicator& comm, std::vector<TunerPart>& all,
                    std::string (*wrong)(TunerPart)) {
  CommState& state = *Access::state(comm);
  if (!state.rendezvous.bootstrap()) return {};
  const auto lock = state.rendezvous.lock();
  CCL_CHECK(state.rendezvous.after_creation(
      state.rendezvous.bootstrap()->all_gather(all.data(), Index{sizeof(TunerPart)})));
  return check_gathered(state, all, [wrong](TunerPart part, int) { return wrong(part); });
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

/// What a plug-in has chosen, as a number that ranks exchange: the place of an entry of the table,
/// or `own` if ccl is to choose.
using Answer = TunerPart;
constexpr Answer own = -1;

/// Name of an answer's entry, which is a whole one: see `OnlySelected`.
std::string name_of(Answer answer) {
  return fmt::format("{}_{} ", algorithms[std::size_t(answer / tuner_protocols)],
                     protocols[std::size_t(answer % tuner_protocols)]);
}
constexpr Answer answers = Answer(algorithms.size() * protocols.size());

/// The fastest entry, or `own` if there is none.
Answer fastest(const TunerTable& table) {
  Answer best = own;
  float least = 0;
  for (Answer at = 0; at < answers; ++at) {
    const float us = table[at / tuner_protocols][at % tuner_protocols];
    if (!(us >= 0) || (best != own && us >= least)) continue;  // nor one that is no number
    least = us;
    best = at;
  }
  return best;
}

/// A plug-in's state for one communicator, on rank 0.
class Tuner {
 public:
  Tuner(const TunerPlugIn& plug_in, void* context) : plug_in_{plug_in}, context_{context} {}
  ~Tuner() {
    if (context_ != nullptr) (void)plug_in_.finalize(context_);
  }
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  Answer ask(TunedFunction function, Index bytes, TunerTable& table) {
    TunerTable before;
    std::memcpy(&before, &table, sizeof table);
    int channels = 0;
    // As NCCL passes it: the table itself, under the type of rows.
    float** const rows = reinterpret_cast<float**>(&table);
    const auto done = plug_in_.choose(context_, function, std::size_t(bytes), 1, rows,
                                      tuner_algorithms, tuner_protocols, 0, &channels);
    if (done != ncclSuccess || std::memcmp(&before, &table, sizeof table) == 0) return own;
    if (channels > 0 && !std::exchange(said_channels_, true)) {
      log_info(LogPart::tuning,
               "the tuner plug-in's number of channels ({}) has no effect: ccl chooses the blocks "
               "of a launch by its size",
               channels);
    }
    return fastest(table);
  }

 private:
  const TunerPlugIn& plug_in_;
  void* const context_;
  bool said_channels_ = false;
};

class Tuned final : public Operations {
 public:
  Tuned(std::unique_ptr<Operations> inner, std::unique_ptr<Tuner> tuner, const Communicator& comm)
      : inner_{std::move(inner)}, tuner_{std::move(tuner)}, comm_{comm} {}

  Result<void> run(const Call& call) override {
    CCL_TRY(const Call chosen, with_choice(call));
    return inner_->run(chosen);
  }
  Result<Choice> choice(const Call& call) override {
    CCL_TRY(const Call chosen, with_choice(call));
    return inner_->choice(chosen);
  }
  bool has_code(const Call& call) const override { return inner_->has_code(call); }
  Result<double> predict(const Call& call) const override { return inner_->predict(call); }
  Result<void> exchange(std::span<const Call> messages) override {
    return inner_->exchange(messages);
  }

 private:
  Index bytes_of(const Call& call) const {
    const bool shares = call.kind == Kind::all_gather || call.kind == Kind::reduce_scatter;
    return call.count * size_of(call.type) * (shares ? comm_.ranks() : 1);
  }

  void fill(TunerTable& table, const Call& call) const {
    for (auto& row : table) std::fill(std::begin(row), std::end(row), -1.f);
    for (Answer at = 0; at < answers; ++at) {
      const std::string name = name_of(at);
      const OnlySelected only{name};
      const auto us = inner_->predict(call);
      if (us) table[at / tuner_protocols][at % tuner_protocols] = float(*us);
    }
  }

  /// Rank 0's answer. Collective: the data of which a rank predicts may differ, and its plug-in,
  /// too.
  Result<Answer> agree(TunedFunction function, const Call& call) {
    CCL_CHECK(check_may_wait());
    std::vector<Answer> all(static_cast<std::size_t>(comm_.ranks()), own);
    if (tuner_ != nullptr) {
      TunerTable table;
      fill(table, call);
      all[0] = tuner_->ask(function, bytes_of(call), table);
    }
    CCL_CHECK(gather(comm_, all, [](Answer of) { return wrong_tuner_answer(of, answers); }));
    return all[0];
  }

  Result<Call> with_choice(const Call& call) {
    const auto function = function_of(call.kind);
    const bool selects = call.options != nullptr && !call.options->algorithms.empty();
    if (!function || selects) return call;
    const auto key = std::make_pair(*function, bytes_of(call));
    auto known = answers_.find(key);
    if (known == answers_.end()) {
      CCL_TRY(const Answer answer, agree(*function, call));
      if (answers_.size() == max_answers) answers_.clear();
      known = answers_.emplace(key, answer).first;
    }
    if (known->second == own) return call;
    Call chosen = call;
    std::shared_ptr<const CallOptions>& plain = options_[std::size_t(known->second)];
    if (call.options == nullptr && plain == nullptr) plain = options(CallOptions{}, known->second);
    chosen.options = call.options == nullptr ? plain : options(*call.options, known->second);
    return chosen;
  }

  static std::shared_ptr<const CallOptions> options(CallOptions of, Answer answer) {
    of.algorithms = name_of(answer);
    of.must_select = false;
    return std::make_shared<const CallOptions>(std::move(of));
  }

  static constexpr std::size_t max_answers = 4096;
  const std::unique_ptr<Operations> inner_;
  const std::unique_ptr<Tuner> tuner_;  // on rank 0
  const Communicator comm_;
  std::map<std::pair<TunedFunction, Index>, Answer> answers_;  // each is asked once
  // Options, by answer, of calls that have none of their own.
  std::array<std::shared_ptr<const CallOptions>, std::size_t(answers)> options_;
};

/// The plug-in's state on rank 0; null if there is none.
std::unique_ptr<Tuner> begin(const Communicator& comm) {
  const TunerPlugIn* const with = plug_in();
  if (with == nullptr || comm.rank() != 0) return nullptr;
  void* context = nullptr;
  const Identity& identity = Access::state(comm)->identity;
  const int hosts = identity.hosts();
  NvlinkDomains domains{hosts, comm.ranks() / hosts, comm.ranks() / hosts};
  TunerConstants constants{};
  if (with->init(&context, identity.id(), std::size_t(comm.ranks()), std::size_t(hosts),
                 log_of_plug_in, &domains, &constants) != ncclSuccess) {
    log_info(LogPart::tuning, "the tuner plug-in refuses this communicator");
    return nullptr;
  }
  return std::make_unique<Tuner>(*with, context);
}

}  // namespace

Result<std::unique_ptr<Operations>> tuned(std::unique_ptr<Operations> operations,
                                          const Communicator& comm) {
  auto tuner = begin(comm);
  std::vector<Answer> present(static_cast<std::size_t>(comm.ranks()), 0);
  if (tuner != nullptr) present[0] = 1;
  CCL_CHECK(gather(comm, present, wrong_tuner_presence));
  if (present[0] == 0) return operations;
  return std::make_unique<Tuned>(std::move(operations), std::move(tuner), comm);
}

}  // namespace ccl::detail::nccl
