#include "compositions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

namespace ccl::perf {

Result<const Compositions::Chooser*> Compositions::chooser(const Choice& choice) {
  const auto key = choice.name();
  if (const auto found = choosers_.find(key); found != choosers_.end()) return &found->second;
  const bool pinned = choice.algo != "auto" || choice.proto != "auto";
  std::vector<std::pair<Choice, EntryFacts::Listed>> listed;
  for (const Entry& entry : all_entries()) {
    if (entry.op != options_.op || (choice.algo != "auto" && entry.algo != choice.algo) ||
        (choice.proto != "auto" && entry.proto != choice.proto)) {
      continue;
    }
    const EntryFacts of = entry.facts();
    if (!pinned && !(options_.deterministic ? of.in_one_order.has_value() : of.is_default)) {
      continue;
    }
    listed.push_back({{std::string{entry.algo}, std::string{entry.proto}},
                      options_.deterministic ? *of.in_one_order : EntryFacts::Listed{of.facts}});
    if (pinned) {  // a composition requested by name is always usable
      detail::CandidateFacts& facts = listed.back().second.facts;
      facts.on_cpus = facts.mover == detail::Mover::wires;
      facts.on_gpus = runs_on_gpus(listed.back().first);
    }
  }
  // `Deterministic` takes the order of the first candidate that the ranks can run.
  std::ranges::stable_sort(listed, {}, [](const auto& one) { return one.second.place; });
  std::vector<Choice> names;
  std::vector<detail::CandidateFacts> facts;
  for (auto& [name, of] : listed) {
    names.push_back(std::move(name));
    facts.push_back(of.facts);
  }
  const bool by_message = options_.op == "send_recv" || options_.op == "all_to_all_v";
  const bool reduces = options_.op.find("reduce") != std::string::npos;
  CCL_TRY(auto made, detail::Chooser::create(comm_, {options_.op.c_str(), facts,
                                                     options_.deterministic, reduces, by_message}));
  return &choosers_.emplace(key, Chooser{std::move(names), std::move(made)}).first->second;
}

Result<Choice> Compositions::resolve(const Choice& choice, Index bytes, DataType type,
                                     RedOp redop) {
  if (!choice.is_open()) return choice;
  CCL_TRY(const Chooser* const by, chooser(choice));
  detail::CallConstraints demands;
  demands.any_reduction = redop == RedOp::avg || redop == RedOp::mulsum;
  demands.in_window = options_.windows;
  demands.any_elements = !supports_reduction({{}, "Sentinel"}, type, redop);
  const int at = by->chooser.pick(bytes, demands);
  if (at < 0) return fail(by->chooser.none_meets(demands));
  return by->names[std::size_t(at)];
}

Result<detail::TuningCase> Compositions::tuning_case() {
  CCL_TRY(const Chooser* const by, chooser({"auto", "auto"}));
  return by->chooser.tuning_case();
}

double Compositions::volume(const Choice& choice) const {
  const Entry* const entry = find(choice);
  const auto terms = entry == nullptr ? nullptr : entry->facts().facts.cost_terms;
  return terms == nullptr ? 0 : terms(comm_.ranks()).volume;
}

bool Compositions::over_wires(const Choice& choice) const {
  const Entry* const entry = find(choice);
  return entry != nullptr && entry->facts().facts.mover == detail::Mover::wires;
}

const Entry* Compositions::find(const Choice& choice) const {
  for (const Entry& entry : all_entries()) {
    if (entry.op == options_.op && entry.algo == choice.algo && entry.proto == choice.proto) {
      return &entry;
    }
  }
  return nullptr;
}

Result<const Runner*> Compositions::get_traced(const Choice& choice) {
  const auto key = options_.op + " traced " + choice.name();
  if (const auto found = made_.find(key); found != made_.end()) return found->second.get();
  std::set<std::string_view> algos;
  for (const TracedEntry& entry : traced_entries()) {
    algos.insert(entry.algo);
    if (entry.op != options_.op || entry.algo != choice.algo || entry.proto != choice.proto) {
      continue;
    }
    CCL_TRY(const Runner* const plain, get(choice));
    CCL_TRY(auto runner, entry.make(comm_, plain->plan()));
    return (made_[key] = std::move(runner)).get();
  }
  return fail(Errc::not_supported,
              fmt::format("this ccl_perf has no traced form of {}/{} (it has those of {}); choose "
                          "another --algo, or configure with -DCCL_PERF_TRACED=all",
                          options_.op, choice.name(), fmt::join(algos, ", ")));
}

Result<const Runner*> Compositions::get_of(const std::string& op, const Choice& choice) {
  const auto key = op + " " + choice.name();
  if (const auto found = made_.find(key); found != made_.end()) return found->second.get();
  for (const Entry& entry : all_entries()) {
    if (entry.op != op || entry.algo != choice.algo || entry.proto != choice.proto) continue;
    CCL_TRY(auto runner, entry.make(comm_, {}));
    if (options_.plan_given()) {
      Plan plan = runner->plan();
      if (options_.channels != 0) plan.channels = options_.channels;
      if (options_.slots != 0) plan.slot_count = options_.slots;
      if (options_.slot_bytes != 0) plan.slot_bytes = options_.slot_bytes;
      if (options_.slice_steps != 0) plan.slice_steps = options_.slice_steps;
      if (options_.chunk_steps != 0) plan.chunk_steps = options_.chunk_steps;
      made_[key + " as it is"] = std::move(runner);  // its peers may still be connecting to it
      CCL_TRY(runner, entry.make(comm_, plan));
      return (made_[key] = std::move(runner)).get();
    }
    return (made_[key] = std::move(runner)).get();
  }
  return fail(
      Errc::invalid_argument,
      fmt::format("{} does not run on {} (see `supports` in its header)", op, choice.name()));
}

}  // namespace ccl::perf
