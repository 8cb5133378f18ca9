#include "rounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cases.hpp"
#include "group.hpp"
#include "median.hpp"

namespace ccl::perf {
namespace {

constexpr int max_restarts = 3;

/// Size with one composition.
struct Task {
  Choice choice;
  DataType type = DataType::float32;
  RedOp redop = RedOp::sum;
  Index bytes = 0;
};

/// Ranks of one library in one mode.
struct Team {
  Mode mode;
  std::unique_ptr<Group> group{};
  int starts = 0;
  Start start{};  // start of the first group that ran
  bool has_called = false;
  std::string dropped{};  // reason why it takes no further part
};

/// Number of calls of a case in one repetition.
struct Amount {
  int calls = 1, warm = 1, samples = 1;
};

/// True if all ranks refuse the case, and go on.
bool refuses(const Error& error) {
  return error.code == Errc::not_supported || error.code == Errc::over_budget;
}

class Rounds {
 public:
  Rounds(const Options& options, int ranks, std::string nccl_library, Report& report)
      : options_{options}, ranks_{ranks}, nccl_library_{std::move(nccl_library)}, report_{report} {
    teams_.push_back({{"ccl"}});
    if (options.compare == "nccl") {
      for (const Mode& mode : nccl_modes(options)) teams_.push_back({mode});
    }
  }

  /// Runs all cases.
  Measured run() {
    const double begin = now_s();
    std::vector<Task> cases;
    const std::vector<Choice> listed =
        choices(options_.op, options_.algo, options_.proto, Device::cuda,
                {.windows = options_.windows, .one_host = options_.hosts <= 1});
    for (const auto type : options_.types) {
      for (const auto redop : options_.redops) {
        for (const Index bytes : sizes(options_, type, ranks_)) {
          std::vector<Choice> now = listed;
          if (now.empty()) {
            now = {{options_.algo, options_.proto}};  // the ranks resolve it
          }
          for (const Choice& choice : now) {
            if (now.size() > 1 &&
                !(supports_reduction(choice, type, redop) && runs_on_gpus(choice)))
              continue;
            cases.push_back({choice, type, redop, bytes});
          }
        }
      }
    }
    for (Team& team : teams_) {
      if (const auto ready = ensure(team); !ready) give_up(team, ready.error());
    }
    int done = 0;
    const auto stop = [&] {
      const Task& next = cases[std::size_t(done)];
      if (done > 0 && cases[std::size_t(done) - 1].bytes == next.bytes) {
        measured_.unfinished = shape_of(next).bytes;
      }
    };
    for (const Task& one : cases) {
      if (now_s() - begin > options_.limit_s) {
        stop();
        report_.finding(fmt::format("stopped after {} of {} cases: --limit {} s was reached", done,
                                    cases.size(), options_.limit_s));
        break;
      }
      if (!teams_[0].dropped.empty()) {
        report_.finding("stopped: ccl failed too often");
        stop();
        break;
      }
      const bool well = measure(one, [&](const std::string& doing) {
        report_.progress(done, int(cases.size()),
                         fmt::format("{} B, {}, {}", one.bytes, name(one.type), doing));
      });
      measured_.well = measured_.well && well;
      ++done;
    }
    for (Team& team : teams_) {
      if (team.group != nullptr) leave(team);
      if (team.has_called) report_.add(team.start);
    }
    measured_.well = measured_.well && teams_[0].dropped.empty();
    return measured_;
  }

 private:
  /// Starts a team whose ranks accept orders.
  Result<void> ensure(Team& team) {
    if (team.group != nullptr) return {};
    if (team.starts == max_restarts) return fail(Errc::internal, "it failed too often");
    ++team.starts;
    CCL_TRY(auto group, Group::start(options_, team.mode, ranks_, nccl_library_));
    CCL_TRY(const auto replies, group->join());
    team.group = std::move(group);
    if (team.starts > 1) return {};
    team.start.name = team.mode.name;
    for (const Reply& reply : replies) {
      team.start.create_s = std::max(team.start.create_s, reply.seconds);
      team.start.create_bytes = std::max(team.start.create_bytes, reply.memory_bytes);
    }
    if (replies[0].note[0] != 0) {
      report_.finding(fmt::format("{}: {}", team.mode.name, replies[0].note));
    }
    return {};
  }
  void give_up(Team& team, const Error& error) {
    team.dropped = error.message();
    team.group.reset();
    report_.finding(fmt::format("{} takes no part: {}", team.mode.name, team.dropped));
  }
  /// Replaces the ranks after a failure, because their state is unknown. The next case uses other
  /// ranks.
  std::string restart(Team& team, const Error& error) {
    team.group.reset();
    report_.finding(error.message());
    if (team.starts == max_restarts) give_up(team, error);
    return error.message();
  }

  Shape shape_of(const Task& one) const {
    return Shape::of(options_.op, one.bytes, size_of(one.type), ranks_, 0, options_.root);
  }
  bool measure(const Task& one, const std::function<void(const std::string&)>& progress) {
    Row row;
    row.shape = shape_of(one);
    row.type = one.type;
    row.redop = one.redop;
    std::vector<Times> times(teams_.size());
    std::vector<Amount> amounts(teams_.size());
    for (std::size_t i = 0; i < teams_.size(); ++i) {
      Team& team = teams_[i];
      times[i].name = team.mode.name;
      times[i].takes_part = team.dropped.empty() && one.bytes >= team.mode.from_bytes;
      if (!times[i].takes_part) continue;
      progress(fmt::format("preparing {}", team.mode.name));
      if (const auto amount = prepare(team, one, row, times[i])) {
        amounts[i] = *amount;
      } else {
        times[i].takes_part = false;
        if (refuses(amount.error()) && team.group != nullptr) {
          times[i].failure = amount.error().what;
        } else {
          times[i].failure = restart(team, amount.error());
        }
      }
      if (i == 0 && !times[0].takes_part) break;  // no reference time
    }
    for (int round = 0; times[0].takes_part && round < options_.rounds; ++round) {
      for (std::size_t i = 0; i < teams_.size(); ++i) {
        if (!times[i].takes_part) continue;
        progress(fmt::format("round {} of {}, {}", round + 1, options_.rounds, times[i].name));
        if (const auto timed = time(teams_[i], amounts[i], times[i]); !timed) {
          times[i].takes_part = false;
          times[i].failure = restart(teams_[i], timed.error());
        }
      }
    }
    for (std::size_t i = 0; i < teams_.size(); ++i) {
      if (!times[i].takes_part) continue;
      if (const auto finished = finish(teams_[i], times[i]); !finished) {
        times[i].takes_part = false;
        times[i].failure = restart(teams_[i], finished.error());
      }
    }
    const bool explained = !options_.explain || !times[0].takes_part || explain(teams_[0], row);
    row.own = std::move(times[0]);
    row.iterations = amounts[0].calls * amounts[0].samples;
    times.erase(times.begin());
    row.rivals = std::move(times);
    row.finish_choice();
    report_.add(row);
    return row.own.takes_part && row.wrong <= 0 && explained;
  }

  /// Times the phases of the prepared case. Returns false if its ranks failed; a composition
  /// without phases is no failure.
  bool explain(Team& team, Row& row) {
    const auto explained = team.group->explain();
    if (explained) {
      row.explained = *explained;
      row.explained->plain_launches = options_.graph != 0;
      return true;
    }
    if (!refuses(explained.error())) {
      restart(team, explained.error());
      return false;
    }
    report_.finding(explained.error().what);
    return true;
  }

  Result<Amount> prepare(Team& team, const Task& one, Row& row, Times& times) {
    CCL_CHECK(ensure(team));
    Order order;
    order.verb = Order::Verb::prepare;
    order.type = one.type;
    order.redop = one.redop;
    order.bytes = one.bytes;
    put(order.algo, one.choice.algo);
    put(order.proto, one.choice.proto);
    CCL_TRY(const auto replies, team.group->ask(order));
    double call_s = 0, first_s = 0;
    Index memory = 0;
    for (const Reply& reply : replies) {
      call_s = std::max(call_s, reply.call_s);
      first_s = std::max(first_s, reply.seconds);
      memory = std::max(memory, reply.memory_bytes);
      times.wrong += reply.wrong;
    }
    if (!team.has_called) {
      team.has_called = true;
      team.start.first_call_s = first_s;
      team.start.first_call_bytes = memory;
    }
    if (!team.mode.nccl) {
      row.composition = replies[0].label;
      row.plan = replies[0].plan;
      row.ctas = options_.ctas.front();
      measured_.where = {options_.op,
                         ranks_,
                         replies[0].hosts,
                         replies[0].path,
                         replies[0].compute_capability,
                         options_.ctas.front()};
    }
    return amount(call_s);
  }

  /// Returns an amount of about 30 ms for each measurement, and some calls before that are not
  /// counted.
  Amount amount(double call_s) const {
    const auto times = [](double wanted_s, double each_s, int least, int most) {
      return std::clamp(int(wanted_s / std::max(each_s, 1e-9)), least, most);
    };
    if (options_.graph == 0) {
      const int calls =
          options_.iterations != 0 ? options_.iterations : times(0.01, call_s, 5, 500);
      return {calls, 1, 3};
    }
    const double replay_s = call_s * options_.graph;
    const int samples = options_.iterations != 0
                            ? std::min(options_.iterations, Reply::max_samples)
                            : times(0.03, replay_s, replay_s > 0.3 ? 2 : 3, 20);
    return {options_.graph, times(0.003, replay_s, 1, 20), samples};
  }

  Result<void> time(Team& team, const Amount& amount, Times& times) {
    Order order;
    order.verb = Order::Verb::time;
    order.calls = amount.calls;
    order.warm = amount.warm;
    order.samples = amount.samples;
    CCL_TRY(const auto replies, team.group->ask(order));
    std::vector<double> us, wall_us;
    for (int sample = 0; sample < amount.samples; ++sample) {
      double slowest = 0, slowest_wall = 0;
      for (const Reply& reply : replies) {
        slowest = std::max(slowest, reply.us[sample]);
        slowest_wall = std::max(slowest_wall, reply.wall_us[sample]);
      }
      us.push_back(slowest);
      wall_us.push_back(slowest_wall);
    }
    times.us.push_back(median(us));
    if (options_.graph == 0) times.wall_us.push_back(median(wall_us));
    return {};
  }

  Result<void> finish(Team& team, Times& times) {
    Order order;
    order.verb = Order::Verb::finish;
    CCL_TRY(const auto replies, team.group->ask(order));
    for (const Reply& reply : replies) times.wrong += reply.wrong;
    return {};
  }

  void leave(Team& team) {
    Order order;
    order.verb = Order::Verb::leave;
    const auto replies = team.group->ask(order);
    if (!replies) {
      report_.finding(replies.error().message());
    } else {
      for (const Reply& reply : *replies) {
        team.start.leave_s = std::max(team.start.leave_s, reply.seconds);
      }
    }
    team.group.reset();
  }

  const Options& options_;
  int ranks_;
  std::string nccl_library_;
  Report& report_;
  std::vector<Team> teams_;
  Measured measured_;
};

}  // namespace

Measured measure_in_rounds(const Options& options, int ranks, const std::string& nccl_library,
                           Report& report) {
  return Rounds{options, ranks, nccl_library, report}.run();
}

}  // namespace ccl::perf
