// Flight records, which a program reads after the job.
#include "dump/flight_dump.hpp"
#include "fuzz/fuzz.hpp"

namespace ccl::fuzz {

using namespace detail;

void prepare() {}
void read(Input input) {
  const auto record = read_flight_record(text_of(input));
  if (!record) return;
  const std::string json = json_of(*record);
  const auto again = read_flight_record(json);
  demand(again.has_value(), "a record that is written cannot be read");
  demand(json_of(*again) == json, "a record changes");
  demand(!pickle_of(*record).empty(), "nothing is pickled");
  if (record->ranks > 64) return;
  std::vector<RankStatus> ranks(static_cast<std::size_t>(record->ranks));
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r].rank = int(r);
  ranks[std::size_t(record->status.rank)] = record->status;
  demand(!diagnose(std::move(ranks), -1).text().empty(), "nothing is said");
}

std::vector<std::string> seeds() {
  FlightRecord record;
  record.communicator = "0123456789abcdef";
  record.ranks = 2;
  record.status.rank = 1;
  record.status.called = 3;
  record.status.waits = {0, 7};
  Operation op;
  op.number = 3;
  op.count = 8;
  op.state = OpState::running;
  std::string_view{"all_reduce/Ring/LL/any"}.copy(op.what, sizeof op.what - 1);
  std::string_view{"float"}.copy(op.type, sizeof op.type - 1);
  record.status.operations = {op, op};
  record.status.steps = {{0, 1, true, 4, 3, 0, true}};
  record.phases = {{3, 0, 1, 0, 10, 11, 20, 90, 95}};
  record.transfers = {{true, 1, 0, 1, 0, 9, 4096, 10, 11, 20, "eth0"}};
  return {json_of(record), R"({"ccl": {"format": "ccl flight record 1"}})"};
}

}  // namespace ccl::fuzz
