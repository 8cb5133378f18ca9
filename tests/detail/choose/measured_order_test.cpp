// The order of compositions by the cost model, beside what was measured on H200: the table
// measured.txt, which benchmarks/results/measured.py writes from the results.
#include <ccl/auto.hpp>
#include <ccl/detail/choose/chooser.hpp>
#include <ccl/detail/choose/lists.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;
using detail::CandidateFacts;

namespace {

/// Compositions of one operation, size and run, with their us.
struct Row {
  std::string where;  // machine, run and operation
  std::string operation;
  int ranks = 0;
  Index bytes = 0;
  std::map<std::string, double> us;
};

std::vector<Row> measured() {
  std::ifstream in{CCL_SOURCE_DIR "/tests/detail/choose/measured.txt"};
  std::vector<Row> rows;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words{line};
    Row row;
    std::string machine, run, name;
    words >> machine >> run >> row.operation >> row.ranks >> row.bytes;
    row.where = fmt::format("{} {} {} {}", machine, run, row.operation, row.bytes);
    for (double us = 0; words >> name >> us;) row.us[name] = us;
    rows.push_back(std::move(row));
  }
  return rows;
}

template <class Op, class... Cs>
std::vector<CandidateFacts> facts_in(Candidates<Cs...>) {
  return {detail::facts_of<Op, Cs, DefaultTransport>()...};
}
template <class Op>
std::pair<const std::string, std::vector<CandidateFacts>> facts_of_list() {
  return {Op::name, facts_in<Op>(typename detail::DefaultCandidates<Op>::List{})};
}
/// Candidates of ccl's lists, by operation.
const std::map<std::string, std::vector<CandidateFacts>>& candidates() {
  static const std::map<std::string, std::vector<CandidateFacts>> all{
      facts_of_list<AllReduce>(), facts_of_list<AllGather>(), facts_of_list<ReduceScatter>(),
      facts_of_list<AllToAll>(),  facts_of_list<Broadcast>(), facts_of_list<Reduce>(),
      facts_of_list<SendRecv>()};
  return all;
}

/// Predicted us of a composition on so many H200 of a host, without a limit on blocks; less than 0:
/// no list has it for GPUs.
double predicted(const Row& row, const std::string& name) {
  constexpr int all_blocks = 128;
  constexpr detail::HostFacts h200{370.8, true, 90};
  for (const CandidateFacts& one : candidates().at(row.operation)) {
    if (one.name() != name || !one.on_gpus || one.step_count > 0) continue;
    if (one.takes_ranks != nullptr && !one.takes_ranks(row.ranks)) continue;
    const detail::Rates by =
        detail::rates_inside(detail::Path::nvlink, one.mover, one.packing, h200);
    return detail::predict_us(by, one.cost_terms(row.ranks), double(row.bytes), all_blocks);
  }
  return -1;
}

/// Times of the candidates of a row: measured and predicted.
struct Times {
  std::string name;
  double measured_us, predicted_us;
};
std::vector<Times> times_of(const Row& row) {
  std::vector<Times> all;
  for (const auto& [name, us] : row.us) {
    const double model_us = predicted(row, name);
    if (model_us >= 0) all.push_back({name, us, model_us});
  }
  return all;
}

}  // namespace

TEST_CASE("the model orders pairs of compositions as they were measured") {
  constexpr double clearly = 1.1;
  int pairs = 0, wrong = 0;
  for (const Row& row : measured()) {
    const auto all = times_of(row);
    for (const Times& faster : all) {
      for (const Times& slower : all) {
        if (slower.measured_us <= clearly * faster.measured_us) continue;
        ++pairs;
        if (faster.predicted_us < slower.predicted_us) continue;
        ++wrong;
        std::cout << fmt::format(
            "{}: {} before {}: measured {:.1f} and {:.1f} us, predicted "
            "{:.1f} and {:.1f}\n",
            row.where, faster.name, slower.name, faster.measured_us, slower.measured_us,
            faster.predicted_us, slower.predicted_us);
      }
    }
  }
  std::cout << fmt::format("{} of {} pairs are in the wrong order ({:.1f} %)\n", wrong, pairs,
                           100.0 * wrong / std::max(pairs, 1));
  CHECK(pairs > 1000);
  CHECK(1000 * wrong <= 65 * pairs);  // 73 of 1,176
}

TEST_CASE("the composition that the model takes is seldom far behind the fastest") {
  int rows = 0, behind = 0;
  double worst = 1;
  for (const Row& row : measured()) {
    const auto all = times_of(row);
    if (all.size() < 2) continue;
    ++rows;
    const auto by = [&](auto member) {
      return *std::min_element(all.begin(), all.end(), [&](const Times& a, const Times& b) {
        return a.*member < b.*member;
      });
    };
    const Times taken = by(&Times::predicted_us), best = by(&Times::measured_us);
    const double ratio = taken.measured_us / best.measured_us;
    worst = std::max(worst, ratio);
    if (ratio <= 1.1) continue;
    ++behind;
    std::cout << fmt::format("{}: takes {} of {:.1f} us where {} takes {:.1f}\n", row.where,
                             taken.name, taken.measured_us, best.name, best.measured_us);
  }
  std::cout << fmt::format("{} of {} choices are more than 10 % behind, at most {:.2f} times\n",
                           behind, rows, worst);
  CHECK(rows > 100);
  CHECK(behind <= 1);  // SendRecv of 2 MiB
  CHECK(worst < 1.3);
}
