#pragma once

// What the proxies of ranks note about the steps of a ring over a network.
#include <ccl/comm/flight_record.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "calls/rings.hpp"
#include "catch.hpp"
#include "on_ranks.hpp"
#include "processes.hpp"

namespace ccl::test::transfers {

constexpr int ranks = 3, calls = 2;
constexpr Index count = 300'000;
constexpr Plan plan{.channels = 2, .slot_count = 4, .slot_bytes = 64 << 10};

// A ring sends 2(R - 1)/R of the message in each call. The shares of ranks differ by some elements.
constexpr double min_bytes = 0.999 * 2 * (ranks - 1) / ranks * count * sizeof(float) * calls;

inline Word bytes_of(const FlightRecord& record, bool sends) {
  Word bytes = 0;
  for (const Transfer& of : record.transfers) bytes += of.sends == sends ? of.bytes : 0;
  return bytes;
}

struct Job {
  std::vector<FlightRecord> records;
  int composition = -1;
};

/// Records of ranks that have summed up over a network.
inline Job sums_over(Via via) {
  Job job;
  job.records.resize(ranks);
  check_well(on_ranks(ranks, {}, [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto sums, RingSums::create(comm, via, plan));
    std::vector<float> in(count, 1), out(count);
    for (int n = 0; n < calls; ++n) CCL_CHECK(sums(in.data(), out.data(), count));
    CCL_CHECK(comm.barrier());
    if (out.front() != ranks) return fail(Errc::internal, "wrong sum");
    FlightRecord& record = job.records[std::size_t(comm.rank())];
    // RDMA: the last writes are acknowledged after they have arrived.
    const auto acknowledged = [&] {
      record = comm.flight_record();
      return std::ranges::all_of(record.status.steps, [](const WireSteps& of) {
        return !of.sends || of.drained == of.filled;
      });
    };
    if (!wait_until(acknowledged, 20)) return fail(Errc::internal, "a step stays on its way");
    record = comm.flight_record();
    if (comm.rank() == 0) job.composition = sums.number();
    return {};
  }));
  return job;
}

using Key = std::tuple<int, int, int, int, Word>;  // sender, receiver, channel, stream, step

/// Checks that each step has a begin and an end at both ends, in order.
inline void check_both_ends(const Job& job, const std::string& network) {
  std::map<Key, Transfer> sent;
  const auto key_of = [](int rank, const Transfer& of) {
    return Key{of.sends ? rank : of.peer, of.sends ? of.peer : rank, of.channel, of.stream,
               of.step};
  };
  for (const FlightRecord& record : job.records) {
    const int rank = record.status.rank;
    for (const Transfer& of : record.transfers) {
      INFO("rank " << rank << " and " << of.peer << ", step " << of.step << ": " << of.posted_ns
                   << " " << of.begin_ns << " " << of.end_ns);
      REQUIRE(of.network == network);
      REQUIRE(of.composition == job.composition);
      REQUIRE(of.peer == (rank + (of.sends ? 1 : ranks - 1)) % ranks);
      REQUIRE((of.begin_ns != 0 && of.begin_ns <= of.end_ns));
      if (!of.sends) continue;
      const Operation& first = record.status.operations.front();
      REQUIRE(of.begin_ns + 1'000'000 > first.queued_ns);  // clocks are read apart
      REQUIRE((of.posted_ns != 0 && of.posted_ns <= of.begin_ns));
      REQUIRE(sent.emplace(key_of(rank, of), of).second);
    }
  }
  std::size_t received = 0;
  for (const FlightRecord& record : job.records) {
    for (const Transfer& of : record.transfers) {
      if (of.sends) continue;
      const auto from = sent.find(key_of(record.status.rank, of));
      REQUIRE(from != sent.end());
      REQUIRE(of.bytes == from->second.bytes);
      // All ranks of this test have one clock, which each converts by itself.
      REQUIRE(from->second.begin_ns <= of.end_ns + 1'000'000);
      ++received;
    }
  }
  CHECK(received == sent.size());
  for (const FlightRecord& record : job.records) {
    for (const bool sends : {true, false}) {
      CHECK(double(bytes_of(record, sends)) >= min_bytes);
      CHECK(double(bytes_of(record, sends)) <= min_bytes * 1.01);
    }
  }
}

}  // namespace ccl::test::transfers
