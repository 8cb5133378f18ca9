#include "observe/health/metrics.hpp"

#include <ccl/detail/runtime/host_id.hpp>

#include <fmt/format.h>

#include <cstdlib>
#include <iterator>

#include "base/text.hpp"

namespace ccl::detail::health {
namespace {

struct Metric {
  std::string_view name, type, help;
};
enum class MetricId : std::size_t {
  calls,
  bytes,
  seconds,
  completed,
  failures,
  bus_bytes,
  bus_bandwidth,
  running,
  waiting,
  connections,
  connection_bytes,
  connections_made,
  connections_closed,
  info,
  retries,
  failovers,
  inspector_bandwidth,
  inspector_time
};
constexpr Metric metrics[] = {
    {"ccl_calls_total", "counter", "Calls that this rank has made."},
    {"ccl_bytes_total", "counter", "Bytes of these calls: the largest buffer of a rank."},
    {"ccl_call_seconds_total", "counter",
     "Time in calls on CPU lanes that have ended well, from the start of the lanes to their end."},
    {"ccl_calls_completed_total", "counter", "Calls that ccl_call_seconds_total contains."},
    {"ccl_call_failures_total", "counter", "Calls that have ended with an error."},
    {"ccl_bus_bytes_total", "counter",
     "Bytes on the busiest link of an ideal algorithm, of calls that ccl_call_seconds_total "
     "contains."},
    {"ccl_bus_bandwidth_bytes_per_second", "gauge",
     "ccl_bus_bytes_total over ccl_call_seconds_total, since the creation of the communicator."},
    {"ccl_samples_running_total", "counter",
     "Samples, ten a second, in which an operation was running."},
    {"ccl_samples_waiting_total", "counter",
     "Those of these samples in which its lanes were waiting for another rank."},
    {"ccl_connections", "gauge",
     "Open connections of this rank: one for each composition, peer and direction."},
    {"ccl_connection_bytes", "gauge", "Bytes of the slots of these that lie on this rank."},
    {"ccl_connections_made_total", "counter", "Connections that this rank has made."},
    {"ccl_connections_closed_total", "counter",
     "Connections that have closed because no call used them (CCL_CONNECTION_IDLE)."},
    {"ccl_communicator_info", "gauge", "1 for each communicator of this process."},
    {"ccl_network_retries_total", "counter",
     "Attempts of this process to make an RDMA connection anew after a failure."},
    {"ccl_network_failovers_total", "counter",
     "RDMA connections of this process that failed and go on, over the ports that are left."},
    {"nccl_bus_bandwidth_gbs", "gauge", "As ccl_bus_bandwidth_bytes_per_second, in GB/s."},
    {"nccl_collective_exec_time_microseconds", "gauge", "Mean duration of a call."},
};

/// Value of a label. Prometheus drops all metrics of a text that is no UTF-8.
std::string escaped(std::string_view value) {
  const bool is_text = is_utf8(value);
  std::string out;
  for (const char c : value) {
    if (c == '\n') {
      out += "\\n";
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += is_text || static_cast<unsigned char>(c) < 0x80 ? c : '?';
    }
  }
  return out;
}

std::string communicator_labels(const CommMetrics& of) {
  return fmt::format("comm=\"{:#x}\",comm_name=\"{}\",rank=\"{}\"", of.hash, escaped(of.name),
                     of.rank);
}
std::string cell_labels(const CommMetrics& of, const CommMetrics::Cell& cell) {
  return fmt::format("{},operation=\"{}\",size_le=\"{}\"", communicator_labels(of),
                     CallCounters::operations[std::size_t(cell.operation)],
                     class_label(cell.size_class));
}
/// Labels of NCCL's Inspector. The last two keep ranks of one process apart.
std::string inspector_labels(const CommMetrics& of, const CommMetrics::Cell& cell) {
  const char* const job = std::getenv("SLURM_JOB_ID");
  return fmt::format(
      "version=\"v5.1\",slurm_job_id=\"{}\",node=\"{}\",gpu=\"{}\",comm_name=\"{}\",n_nodes=\"{}\","
      "nranks=\"{}\",collective=\"{}\",message_size=\"{}\",comm=\"{:#x}\",rank=\"{}\"",
      job != nullptr && *job != 0 ? escaped(job) : "unknown", escaped(host_name()),
      of.device < 0 ? "CPU" : fmt::format("GPU{}", of.device),
      of.name.empty() ? fmt::format("{:#x}", of.hash) : escaped(of.name), of.nodes, of.ranks,
      CallCounters::operations[std::size_t(cell.operation)], class_label(cell.size_class), of.hash,
      of.rank);
}

double seconds_of(const CommMetrics& of, const CommMetrics::Cell& cell) {
  return double(cell.ticks) * of.ns_per_tick / 1e9;
}
/// Bus bytes of the calls with a duration: their share of all.
double bus_bytes_of(const CommMetrics& of, const CommMetrics::Cell& cell) {
  if (cell.calls == 0) return 0;
  return double(cell.bytes) / double(cell.calls) * double(cell.ended) *
         CallCounters::bus_factor(cell.operation, of.ranks);
}

class Text {
 public:
  explicit Text(const std::vector<CommMetrics>& all) : all_{all} {}

  /// Writes one sample for each cell for which `value` returns a number of at least 0.
  template <class Labels, class Value>
  void cells(MetricId metric, Labels labels, Value value) {
    begin(metric);
    for (const CommMetrics& of : all_) {
      for (const CommMetrics::Cell& cell : of.cells) {
        const double number = value(of, cell);
        if (number >= 0) sample(metric, labels(of, cell), number);
      }
    }
  }
  void begin(MetricId metric) {
    const Metric& of = metrics[std::size_t(metric)];
    fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", of.name, of.help,
                   of.name, of.type);
  }
  void sample(MetricId metric, std::string_view labels, double value) {
    fmt::format_to(std::back_inserter(text_), "{}{{{}}} {:.15g}\n",
                   metrics[std::size_t(metric)].name, labels, value);
  }
  std::string take() { return std::move(text_); }

 private:
  const std::vector<CommMetrics>& all_;
  std::string text_;
};

void write_waits(Text& text, const std::vector<CommMetrics>& all, MetricId metric) {
  text.begin(metric);
  for (const CommMetrics& of : all) {
    for (const auto& [operation, samples] : of.waits.by_operation) {
      text.sample(metric,
                  fmt::format("{},operation=\"{}\"", communicator_labels(of), escaped(operation)),
                  double(metric == MetricId::running ? samples.first : samples.second));
    }
  }
}

void write_connections(Text& text, const std::vector<CommMetrics>& all) {
  using Counts = CommMetrics::Connections;
  const auto write = [&](MetricId metric, auto value) {
    text.begin(metric);
    for (const CommMetrics& of : all) {
      text.sample(metric, communicator_labels(of), double(value(of.connections)));
    }
  };
  write(MetricId::connections, [](const Counts& of) { return of.open; });
  write(MetricId::connection_bytes, [](const Counts& of) { return of.bytes; });
  write(MetricId::connections_made, [](const Counts& of) { return of.made; });
  write(MetricId::connections_closed, [](const Counts& of) { return of.closed; });
}

void write_durations(Text& text) {
  using Cell = CommMetrics::Cell;
  constexpr double none = -1;
  text.cells(MetricId::seconds, cell_labels, [](const auto& of, const Cell& cell) {
    return cell.ended != 0 ? seconds_of(of, cell) : none;
  });
  text.cells(MetricId::completed, cell_labels,
             [](const auto&, const Cell& cell) { return double(cell.ended); });
  text.cells(MetricId::bus_bytes, cell_labels, [](const auto& of, const Cell& cell) {
    return cell.bytes != 0 && cell.ended != 0 ? bus_bytes_of(of, cell) : none;
  });
  const auto bandwidth = [](const CommMetrics& of, const Cell& cell) {
    const double time = seconds_of(of, cell);
    return time > 0 && cell.bytes != 0 ? bus_bytes_of(of, cell) / time : none;
  };
  text.cells(MetricId::bus_bandwidth, cell_labels, bandwidth);
  text.cells(MetricId::inspector_bandwidth, inspector_labels,
             [&](const auto& of, const Cell& cell) {
               const double rate = bandwidth(of, cell);
               return rate < 0 ? none : rate / 1e9;
             });
  text.cells(MetricId::inspector_time, inspector_labels, [](const auto& of, const Cell& cell) {
    return cell.ended != 0 ? seconds_of(of, cell) * 1e6 / double(cell.ended) : none;
  });
}

}  // namespace

std::vector<CommMetrics::Cell> cells_of(const CallCounters& counters) {
  std::vector<CommMetrics::Cell> out;
  constexpr auto relaxed = std::memory_order_relaxed;
  for (int op = 0; op < int(CallCounters::operations.size()); ++op) {
    for (int c = 0; c < CallCounters::classes; ++c) {
      const CallCounters::Cell& cell = counters.cell(op, c);
      const Word ended = cell.ended.load(relaxed), ticks = cell.ticks.load(relaxed);
      const Word n = cell.calls.load(relaxed);
      if (n == 0) continue;
      out.push_back({op, c, n, cell.bytes.load(relaxed), ended, ticks, cell.failed.load(relaxed)});
    }
  }
  return out;
}

std::string metrics_text(const std::vector<CommMetrics>& all, const NetworkCounts& network) {
  using Cell = CommMetrics::Cell;
  Text text{all};
  text.begin(MetricId::info);
  for (const CommMetrics& of : all) {
    text.sample(MetricId::info,
                fmt::format("{},ranks=\"{}\",nodes=\"{}\",device=\"{}\"", communicator_labels(of),
                            of.ranks, of.nodes, of.device),
                1);
  }
  text.cells(MetricId::calls, cell_labels,
             [](const auto&, const Cell& cell) { return double(cell.calls); });
  text.cells(MetricId::bytes, cell_labels,
             [](const auto&, const Cell& cell) { return double(cell.bytes); });
  text.cells(MetricId::failures, cell_labels,
             [](const auto&, const Cell& cell) { return double(cell.failed); });
  write_durations(text);
  write_waits(text, all, MetricId::running);
  write_waits(text, all, MetricId::waiting);
  write_connections(text, all);
  // Files of several processes in one folder must not have a series twice.
  const std::string process =
      fmt::format("node=\"{}\",pid=\"{}\"", escaped(network.node), network.pid);
  text.begin(MetricId::retries);
  text.sample(MetricId::retries, process, double(network.retries));
  text.begin(MetricId::failovers);
  text.sample(MetricId::failovers, process, double(network.failovers));
  return text.take();
}

std::vector<std::string_view> metric_names() {
  std::vector<std::string_view> names;
  for (const Metric& one : metrics) names.push_back(one.name);
  return names;
}

std::string class_label(int size_class) {
  if (size_class == CallCounters::unknown) return "unknown";
  if (size_class == CallCounters::larger) return "+Inf";
  return fmt::format("{}", CallCounters::class_bytes[std::size_t(size_class)]);
}

}  // namespace ccl::detail::health
