#include "comm/team_errors.hpp"

#include <fmt/format.h>

#include <string>

namespace ccl::detail {
namespace {

std::string text_of(const LaneFailure& found) {
  const auto given = Index(found.count), limit = Index(found.stride);
  switch (LaneFailure::Why(found.why)) {
    case LaneFailure::no_block:
      return fmt::format(
          "a kernel has {} blocks (its team has {}); launch fewer, or raise "
          "DeviceRequirements::blocks",
          given, limit);
    case LaneFailure::no_rank:
      return fmt::format(
          "a kernel names rank {} of its team (the call takes another rank below {}); pass one of "
          "those",
          given, limit);
    case LaneFailure::no_signal:
      return fmt::format(
          "a kernel uses signal {} (its team has {}); raise DeviceRequirements::signals", given,
          limit);
    case LaneFailure::no_counter:
      return fmt::format(
          "a kernel uses counter {} (its team has {}); raise DeviceRequirements::counters", given,
          limit);
    case LaneFailure::no_slot:
      return fmt::format(
          "a kernel uses slot {} of Tiles that have {} (their packets hold no more); raise "
          "ll_bytes "
          "or ll128_bytes of DeviceRequirements",
          given, limit);
    case LaneFailure::outside_window:
      return fmt::format(
          "a kernel puts data up to byte {} of the window of rank {} (it has {} bytes); put less, "
          "or register a larger window",
          given, Index(found.peer) - 1, limit);
    case LaneFailure::no_value:
      return fmt::format(
          "a kernel gives a signal the value {} (values are from 1 to {}, and count from the begin "
          "of each launch); pass one of those",
          found.count, limit);
    case LaneFailure::no_blocks:
      return fmt::format(
          "a kernel lets {} blocks count (its launch has {}, and the last one to count must be "
          "known); let 1 to {} blocks count",
          given, limit, limit);
    case LaneFailure::few_ranks:
      return fmt::format(
          "a kernel has Tiles for at most {} ranks (its team has {}); give Tiles that many as "
          "MaxRanks",
          limit, given);
    case LaneFailure::not_near:
      return fmt::format(
          "a kernel takes a Team, and {} of its ranks are on other hosts (it addresses {} of "
          "them); "
          "let it take a NetworkTeam, of DeviceComm::network_team()",
          given, limit);
    default:
      return fmt::format(
          "a kernel passes a tile that begins {} bytes after a multiple of {} (lanes move whole "
          "packets); align it to that many bytes",
          given, limit);
  }
}

}  // namespace

Error error_of_team(const LaneFailure& found) {
  Error error{Errc::invalid_usage, text_of(found)};
  if (found.why == LaneFailure::outside_window) error.peer = int(found.peer) - 1;
  return error;
}

}  // namespace ccl::detail
