#include "measure.hpp"

#include <ccl/comm/registered_buffer.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <set>
#include <vector>

#include "cases.hpp"
#include "compositions.hpp"
#include "explain.hpp"
#include "listing.hpp"
#include "median.hpp"
#include "report.hpp"
#include "rival.hpp"
#include "sideband.hpp"
#include "tune.hpp"
#include "verify.hpp"

namespace ccl::perf {
namespace {

/// Page-aligned memory, owned by the object.
class Buffer {
 public:
  explicit Buffer(Index bytes)
      : data_{static_cast<std::byte*>(
            std::aligned_alloc(4096, std::size_t((bytes + 4096) / 4096 * 4096)))} {}
  ~Buffer() { std::free(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
};

/// Returns the seconds of one call, as the mean of `n` calls in a row.
template <class F>
Result<double> time_calls(int n, F&& call) {
  const double begin = now_s();
  for (int i = 0; i < n; ++i) CCL_CHECK(call());
  return (now_s() - begin) / n;
}

/// Returns the number of calls that take about `round_s` seconds, within limits.
int iterations_for(double call_s) {
  constexpr double round_s = 0.03;
  return int(std::clamp(round_s / std::max(call_s, 1e-9), 2.0, 5000.0));
}

class Bench {
 public:
  Bench(const Communicator& comm, const Options& options, const Sideband& sideband, Index bytes)
      : comm_{comm},
        options_{options},
        sideband_{sideband},
        bytes_{bytes},
        send_{bytes},
        recv_{bytes} {}

  /// Fails without memory for the buffers, and registers them if that is asked for.
  Result<void> prepare() {
    if (send_.data() == nullptr || recv_.data() == nullptr) {
      return fail(
          Errc::out_of_memory,
          fmt::format("rank {} has no memory for two buffers of {} bytes; give a smaller -e",
                      comm_.rank(), bytes_));
    }
    for (Buffer* const each : {&send_, &recv_}) {
      if (!options_.registered) break;
      CCL_TRY(auto one, RegisteredBuffer::create(comm_, each->data(), bytes_));
      registered_.push_back(std::move(one));
    }
    return {};
  }

  /// Times the phases of calls like those of `row`, with the data that its last call left.
  Result<Explained> explain(Compositions& compositions, const Choice& choice,
                            const Row& row) const {
    Call call = make_call(row.shape, row.type, row.redop);
    call.send = send_.data();
    call.recv = recv_.data();
    return perf::explain(comm_, options_, sideband_, compositions, choice, call, row.shape.bytes);
  }

  Result<Row> row(const Runner& runner, Row row, const std::function<void(int)>& progress) {
    const Shape& shape = row.shape;
    Call call = make_call(shape, row.type, row.redop);
    const Index size = size_of(row.type);
    std::byte* send = send_.data();
    call.recv = recv_.data();
    if (const auto in_place = shape.in_place(); options_.in_place && in_place) {
      send = recv_.data() + in_place->send * size;
      call.recv = recv_.data() + in_place->recv * size;
    }
    call.send = send;
    const auto ours = [&] { return runner.run(call); };
    const auto theirs = [&]() -> Result<void> {
      rival::run(shape, call);
      return {};
    };

    // One checked call comes first, without data of earlier calls.
    Index wrong = 0;
    if (options_.check) poison(call.recv, shape.recv_count * size);
    fill_send(shape, row.type, row.redop, send);
    CCL_CHECK(sideband_.meet());
    CCL_CHECK(ours());
    if (options_.check) wrong = count_wrong(shape, row.type, row.redop, call.recv);

    const bool compares =
        !options_.compare.empty() && rival::runs(shape, row.type, row.redop, options_.in_place);
    CCL_CHECK(sideband_.meet());
    CCL_TRY(const double guess, time_calls(std::max(options_.warmup, 1), ours));
    CCL_TRY(const double slowest, sideband_.most(guess));
    row.iterations = options_.iterations != 0 ? options_.iterations : iterations_for(slowest);
    int rival_iterations = row.iterations;
    if (compares) {
      rival::barrier();
      CCL_TRY(const double their_guess, time_calls(std::max(options_.warmup, 1), theirs));
      CCL_TRY(const double their_slowest, sideband_.most(their_guess));
      if (options_.iterations == 0) rival_iterations = iterations_for(their_slowest);
    }
    std::vector<double> our_times, their_times;
    for (int round = 0; round < options_.rounds; ++round) {
      progress(round);
      if (compares) {
        rival::barrier();
        CCL_TRY(const double t, time_calls(rival_iterations, theirs));
        CCL_TRY(const double mean, sideband_.mean(t));
        their_times.push_back(mean);
      }
      // The first call of a round runs with cold caches.
      CCL_CHECK(sideband_.meet());
      CCL_CHECK(ours());
      CCL_TRY(const double t, time_calls(row.iterations, ours));
      CCL_TRY(const double mean, sideband_.mean(t));
      our_times.push_back(mean);
    }
    row.time_us = median(our_times) * 1e6;
    row.min_us = *std::min_element(our_times.begin(), our_times.end()) * 1e6;
    if (compares) {
      row.rival_us = median(their_times) * 1e6;
      row.rival_least_us = *std::min_element(their_times.begin(), their_times.end()) * 1e6;
    }
    if (options_.check) {
      // The check is repeated after all calls, if no input was overwritten by an output.
      if (!options_.in_place) {
        poison(call.recv, shape.recv_count * size);
        CCL_CHECK(sideband_.meet());
        CCL_CHECK(ours());
        wrong += count_wrong(shape, row.type, row.redop, call.recv);
      }
      CCL_TRY(const double mean, sideband_.mean(double(wrong)));
      row.wrong = Index(std::llround(mean * comm_.ranks()));
    }
    return row;
  }

 private:
  const Communicator& comm_;
  const Options& options_;
  const Sideband& sideband_;
  Index bytes_;
  Buffer send_, recv_;
  std::vector<RegisteredBuffer> registered_;  // they end before the memory
};

}  // namespace

Result<int> measure(const Communicator& comm, const Options& options) {
  if (options.root < 0 || options.root >= comm.ranks()) {
    return fail(Errc::invalid_argument,
                fmt::format("-r {} is no rank (there are {})", options.root, comm.ranks()));
  }
  CCL_TRY(const auto sideband, Sideband::create(comm));
  const auto shape_of = [&](Index bytes, DataType type) {
    return Shape::of(options.op, bytes, size_of(type), comm.ranks(), comm.rank(), options.root);
  };
  Report report{options, comm.ranks(), comm.rank() == 0};
  Compositions compositions{comm, options};
  Bench bench{comm, options, sideband, largest_buffer(options, comm.ranks())};
  CCL_CHECK(bench.prepare());
  bool has_wrong = false;
  const std::vector<Choice> listed = choices(options.op, options.algo, options.proto, Device::cpu,
                                             {.windows = false, .one_host = options.hosts <= 1});
  std::size_t calls = 0;
  for (const auto type : options.types) calls += sizes(options, type, comm.ranks()).size();
  const int all = int(calls * options.redops.size() * std::max<std::size_t>(listed.size(), 1));
  int done = 0;
  std::set<std::string> left_out;  // compositions that do not run on these ranks
  for (const auto type : options.types) {
    for (const auto redop : options.redops) {
      for (const Index bytes : sizes(options, type, comm.ranks())) {
        std::vector<Choice> now = listed;
        if (now.empty()) {
          CCL_TRY(const Choice chosen,
                  compositions.resolve({options.algo, options.proto}, bytes, type, redop));
          now = {chosen};
        }
        for (const Choice& choice : now) {
          if (left_out.contains(choice.name())) continue;
          if (now.size() > 1 && !supports_reduction(choice, type, redop)) continue;
          const Result<const Runner*> made = compositions.get(choice);
          if (!made && now.size() > 1 && made.error().code == Errc::not_supported) {
            // the error is equal on all ranks, and none has failed
            report.finding(made.error().what);
            left_out.insert(choice.name());
            continue;
          }
          CCL_TRY(const Runner* const runner, made);
          Row row;
          row.shape = shape_of(bytes, type);
          row.type = type;
          row.redop = redop;
          row.composition = choice.name();
          row.plan = runner->plan();
          const auto progress = [&](int round) {
            report.progress(done, all,
                            fmt::format("{} B, {}, {}, round {} of {}", row.shape.bytes, name(type),
                                        row.composition, round + 1, options.rounds));
          };
          CCL_TRY(Row measured, bench.row(*runner, row, progress));
          if (options.explain) {
            const auto explained = bench.explain(compositions, choice, row);
            if (!explained && explained.error().code != Errc::not_supported) {
              return fail(explained.error());
            }
            if (explained) measured.explained = *explained;
            if (!explained) report.finding(explained.error().what);
          }
          report.add(measured);
          has_wrong = has_wrong || measured.wrong > 0;
          ++done;
        }
      }
    }
  }
  if (!options.tune.empty()) {
    CCL_TRY(const detail::TuningCase where, compositions.tuning_case());
    if (comm.rank() == 0) CCL_CHECK(write_tuning(options, where, processor(), report.rows()));
  }
  return report.finish() && !has_wrong ? 0 : 1;
}

}  // namespace ccl::perf
