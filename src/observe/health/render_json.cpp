#include <ccl/version.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ctime>
#include <map>

#include "base/nccl_result.hpp"
#include "base/report_text.hpp"
#include "observe/health/render.hpp"

namespace ccl::detail::health {
namespace {

using Json = nlohmann::ordered_json;

// NCCL's names of the operations that it counts.
constexpr std::pair<const char*, const char*> nccl_counts[] = {{"Broadcast", "broadcast"},
                                                               {"Reduce", "reduce"},
                                                               {"AllGather", "all_gather"},
                                                               {"ReduceScatter", "reduce_scatter"},
                                                               {"AllReduce", "all_reduce"}};

Word calls(const RankHealth& health, std::string_view operation) {
  return health.calls[CallCounters::operation_of(operation)];
}

Json place_json(const RankView& of, int rank) {
  return {{"rank", rank},
          {"host", of.address},
          {"pid", of.pid},
          {"cuda_dev", of.device},
          {"nvml_dev", of.device}};
}

Json progress_json(const RankStatus& status) {
  Json progress{{"called", status.called}};
  const Operation* op = status.running();
  if (op == nullptr && !status.operations.empty()) op = &status.operations.back();
  if (op == nullptr) return progress;
  progress["operation"] = op->number;
  progress["what"] = say(*op);
  progress["state"] = name(op->state);
  if (op->state == OpState::running) {
    if (op->started_ns != 0) progress["running_s"] = age_s(status, op->started_ns);
    if (status.waits.peer >= 0) {
      progress["waits_for"] = status.waits.peer;
      progress["step"] = status.waits.step;
    }
  }
  return progress;
}

Json rank_json(const RankView& of, int rank) {
  Json json = place_json(of, rank);
  const RankHealth& health = of.health;
  json["status"] = {{"init_state", health.is_up != 0 ? 0 : 7},
                    {"async_error", nccl_error(health)},
                    {"finalize_called", health.finalize_called != 0},
                    {"destroy_flag", false},
                    {"abort_flag", health.error == int(Errc::aborted)}};
  Json counts = Json::object(), others = Json::object();
  for (const auto& [theirs, ours] : nccl_counts) counts[theirs] = calls(health, ours);
  for (const std::string_view operation : CallCounters::operations) {
    if (const Word n = calls(health, operation); n != 0) others[std::string{operation}] = n;
  }
  json["collective_counts"] = std::move(counts);
  json["operation_counts"] = std::move(others);
  json["progress"] = progress_json(of.status);
  return json;
}

Json diagnosis_json(const Report& diagnosis) {
  Json json{{"behind", diagnosis.behind}, {"summary", diagnosis.summary}};
  if (diagnosis.cause != Cause::none) json["cause"] = name(diagnosis.cause);
  if (diagnosis.behind < 0) return json;
  json["waiting"] = diagnosis.waiting;
  json["operation"] = diagnosis.operation.number;
  json["step"] = diagnosis.step;
  return json;
}

Json communicator_json(const CommView& of) {
  Json ranks = Json::array(), missing = Json::array();
  for (std::size_t r = 0; r < of.ranks.size(); ++r) {
    const RankView& rank = of.ranks[r];
    if (rank.status.answered) {
      ranks.push_back(rank_json(rank, int(r)));
      continue;
    }
    Json json = place_json(rank, int(r));
    const bool silent = of.asked && !rank.dead;
    json["status"] = {{"unresponsive", silent}, {"considered_dead", rank.dead}};
    if (!of.asked && !rank.dead) json["status"]["not_asked"] = true;
    missing.push_back(std::move(json));
  }
  return {{"hash", fmt::format("{:#x}", of.hash)},
          {"secondary_hash", fmt::format("{:#x}:{:#x}", of.first_host, of.first_pid)},
          {"size", of.ranks.size()},
          {"ranks_count", ranks.size()},
          {"missing_ranks_count", missing.size()},
          {"name", of.name},
          {"ranks", std::move(ranks)},
          {"missing_ranks", std::move(missing)},
          {"diagnosis", diagnosis_json(of.diagnosis)}};
}

}  // namespace

std::string local_time(Word ns) {
  const std::time_t seconds = std::time_t(ns / 1'000'000'000);
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  char text[32] = {};
  std::strftime(text, sizeof text, "%F %T", &parts);
  return text;
}

std::string status_json(const Snapshot& snapshot) {
  Json communicators = Json::array();
  for (const CommView& of : snapshot.communicators) communicators.push_back(communicator_json(of));
  const Json all{
      {"nccl_version", nccl_version},
      {"ccl_version", version},
      {"cuda_runtime_version", 0},
      {"cuda_driver_version", 0},
      {"timestamp", local_time(snapshot.taken_ns)},
      {"communicators_count", communicators.size()},
      {"communicators", std::move(communicators)},
      {"ras",
       {{"collection_time_sec", snapshot.collection_s}, {"timeouts_count", snapshot.timeouts}}}};
  // Names and texts of other ranks may be no UTF-8.
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ccl::detail::health
