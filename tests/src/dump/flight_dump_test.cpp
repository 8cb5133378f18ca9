#include "dump/flight_dump.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstring>
#include <fstream>
#include <iterator>

#include "base/io/file.hpp"
#include "dump/pickle.hpp"
#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/skip.hpp"
#include <unistd.h>

using namespace ccl;
using namespace ccl::detail;
using namespace ccl::test;
using Json = nlohmann::ordered_json;

namespace {

Operation operation(Word number, OpState state, const char* what, Index count,
                    const char* type = "float") {
  Operation op;
  op.number = number;
  op.call = number;
  op.composition = 0;
  op.count = count;
  op.state = state;
  std::strncpy(op.what, what, sizeof op.what - 1);
  std::strncpy(op.type, type, sizeof op.type - 1);
  op.queued_ns = 1'000'000'000 + number * 100;
  if (state == OpState::queued) return op;
  op.started_ns = op.queued_ns + 10;
  if (state == OpState::done) op.ended_ns = op.queued_ns + 2'000'010;
  return op;
}

FlightRecord record() {
  FlightRecord out;
  out.communicator = "0123456789abcdef";
  out.name = "tensor \"parallel\"";
  out.ranks = 4;
  out.failure = "rank 2 is late";
  RankStatus& status = out.status;
  status.rank = 1;
  status.answered = true;
  status.host = "node1";
  status.pid = 77;
  status.now_ns = 3'000'000'000;
  status.called = 4;
  status.rendezvous = "finalize";
  status.waits = {2, 12};
  status.operations = {operation(1, OpState::done, "all_gather/Ring/LL/any", 100),
                       operation(0, OpState::done, "send_recv/Pairwise/Simple/any", -1),
                       operation(2, OpState::done, "reduce_scatter/Ring/LL/any", 10, "bfloat16"),
                       operation(3, OpState::running, "all_to_all_v/Pairwise/LL/any", -1, "half"),
                       operation(4, OpState::queued, "barrier", -1, "")};
  status.steps = {{2, 1, false, 13, 12, 0, true}, {0, 0, true, 40, 39, 1, false}};
  status.network_bytes = 77;
  status.proxy_stuck_s = 1.5;
  status.elsewhere = {"operation 3", "node2", 9};
  out.phases = {{3, 0, 3, 1, 100, 110, 150, 900, 910}, {4, 0, 4, 0, 920, 0, 0, 0, 930}};
  out.lane_clock_ns = -5;
  out.transfers = {{true, 3, 1, 2, 5, 77, 4096, 100, 110, 150, "mlx5_0:1"}, {}};
  return out;
}

Json entries_of(const FlightRecord& of) {
  return Json::parse(json_of(of))["entries"];
}

}  // namespace

TEST_CASE("a record is read as it was written") {
  const FlightRecord wrote = record();
  const auto read = read_flight_record(json_of(wrote));
  REQUIRE(read);
  CHECK(json_of(*read) == json_of(wrote));
  CHECK(read->communicator == wrote.communicator);
  CHECK((read->name == wrote.name && read->ranks == 4 && read->failure == wrote.failure));
  CHECK((read->status.rank == 1 && read->status.answered && read->status.pid == 77));
  CHECK((read->status.waits.peer == 2 && read->status.waits.step == 12));
  REQUIRE(read->status.operations.size() == 5);
  CHECK(std::string_view{read->status.operations[2].type} == "bfloat16");
  CHECK(read->status.operations[3].state == OpState::running);
  REQUIRE(read->status.steps.size() == 2);
  CHECK((read->status.steps[1].sends && read->status.steps[1].filled == 40));
  CHECK((read->status.steps[0].proxied && read->status.steps[1].composition == 1));
  CHECK((read->status.network_bytes == 77 && read->status.proxy_stuck_s == 1.5));
  REQUIRE(read->phases.size() == 2);
  const LanePhases& phases = read->phases[0];
  CHECK((phases.number == 3 && phases.composition == 0 && phases.call == 3 && phases.channel == 1));
  CHECK((phases.begun_ns == 100 && phases.ready_ns == 110 && phases.first_data_ns == 150));
  CHECK((phases.last_data_ns == 900 && phases.ended_ns == 910));
  CHECK(read->lane_clock_ns == -5);
  REQUIRE(read->transfers.size() == 2);
  const Transfer& sent = read->transfers[0];
  CHECK((sent.sends && sent.peer == 3 && sent.composition == 1 && sent.channel == 2));
  CHECK((sent.stream == 5 && sent.step == 77 && sent.bytes == 4096 && sent.network == "mlx5_0:1"));
  CHECK((sent.posted_ns == 100 && sent.begin_ns == 110 && sent.end_ns == 150));
  CHECK((!read->transfers[1].sends && read->transfers[1].peer == -1));
  CHECK((read->status.elsewhere.text == "operation 3" && read->status.elsewhere.peer_pid == 9));
}

TEST_CASE("what is no record of ccl is refused, with the member that is wrong") {
  const auto refused = [](const std::string& text) {
    const auto read = read_flight_record(text);
    if (read || read.error().code != Errc::invalid_argument) return std::string{};
    return read.error().what;
  };
  Json older = Json::parse(json_of(record()));
  older["ccl"].erase("phases");  // a file of version 0.1.0
  older["ccl"].erase("lane_clock_ns");
  older["ccl"].erase("transfers");
  REQUIRE(read_flight_record(older.dump()));
  CHECK(read_flight_record(older.dump())->phases.empty());
  CHECK(mentions(refused(""), "no JSON object"));
  CHECK(mentions(refused("[1]"), "no JSON object"));
  CHECK(mentions(refused("{}"), "\"ccl\""));
  CHECK(mentions(refused("{\"ccl\": 7}"), "\"format\" is missing"));
  const Json whole = Json::parse(json_of(record()));
  const auto with = [&](const char* member, const Json& value) {
    Json changed = whole;
    changed["ccl"][Json::json_pointer{member}] = value;
    return refused(changed.dump());
  };
  CHECK(mentions(with("/format", "ccl flight record 9"), "\"ccl flight record 9\""));
  CHECK(mentions(with("/rank", "1"), "\"rank\""));
  CHECK(mentions(with("/rank", 4), "none of 4"));
  CHECK(mentions(with("/ranks", -1), "none of -1"));
  CHECK(mentions(with("/called", -1), "\"called\""));
  CHECK(mentions(with("/pid", 1LL << 40), "\"pid\""));
  CHECK(mentions(with("/waits_peer", 9), "none of 4"));
  CHECK(mentions(with("/steps/0/peer", 4), "none of 4"));
  CHECK(mentions(with("/steps/0/sends", 1), "\"sends\""));
  CHECK(mentions(with("/phases/0/channel", "x"), "\"channel\""));
  CHECK(mentions(with("/transfers/0/bytes", -1), "\"bytes\""));
  CHECK(mentions(with("/transfers/0/peer", 4), "none of 4"));
  CHECK(mentions(with("/operations", 1), "\"operations\""));
  CHECK(mentions(with("/operations/1", 1), "\"number\""));
  CHECK(mentions(with("/operations/1/state", "asleep"), "\"state\""));
  CHECK(mentions(with("/operations/1/type", std::string(16, 'x')), "\"type\""));
}

TEST_CASE("collectives have the names, types and sizes that PyTorch's analyzer compares") {
  const Json entries = entries_of(record());
  REQUIRE(entries.size() == 4);  // without the messages, whose peers are not recorded
  CHECK(entries[0]["profiling_name"] == "nccl:_all_gather_base");
  CHECK(entries[0]["input_sizes"] == Json::parse("[[100]]"));
  CHECK(entries[0]["output_sizes"] == Json::parse("[[400]]"));
  CHECK(entries[0]["input_dtypes"] == Json::parse("[\"Float\"]"));
  CHECK(entries[0]["state"] == "completed");
  CHECK(entries[0]["duration_ms"] == 2.0);
  CHECK(entries[0]["retired"] == true);
  CHECK(entries[0]["process_group"] == Json::parse(R"(["0123456789abcdef", "undefined"])"));
  CHECK(entries[1]["profiling_name"] == "nccl:_reduce_scatter_base");
  CHECK(entries[1]["input_sizes"] == Json::parse("[[40]]"));
  CHECK(entries[1]["output_sizes"] == Json::parse("[[10]]"));
  CHECK(entries[1]["output_dtypes"] == Json::parse("[\"BFloat16\"]"));
  CHECK(entries[1]["record_id"] == 2);
  CHECK(entries[2]["profiling_name"] == "nccl:all_to_all");
  CHECK(entries[2]["input_sizes"] == Json::parse("[[]]"));
  CHECK(entries[2]["state"] == "started");
  CHECK_FALSE(entries[2].contains("duration_ms"));
  CHECK(entries[2]["time_discovered_completed_ns"].is_null());
  CHECK(entries[3]["profiling_name"] == "nccl:all_reduce_barrier");
  CHECK(entries[3]["state"] == "scheduled");
  const Json all = Json::parse(json_of(record()));
  CHECK(all["version"] == "2.10");
  CHECK(all["pg_config"]["0123456789abcdef"]["ranks"] == "[0, 1, 2, 3]");
  CHECK(all["pg_status"]["0"]["last_enqueued_collective"] == 4);
  CHECK(all["pg_status"]["0"]["last_started_collective"] == 3);
  CHECK(all["pg_status"]["0"]["last_completed_collective"] == 2);
  FlightRecord own = record();
  own.status.operations = {operation(1, OpState::done, "norm_and_reduce/Ring/LL/any", 5, "Spin")};
  CHECK(entries_of(own)[0]["profiling_name"] == "nccl:all_to_all");
  CHECK(entries_of(own)[0]["input_dtypes"] == Json::parse("[\"Spin\"]"));
}

TEST_CASE("values are pickled as Python reads them") {
  const auto bytes = [](const char* json) { return pickled(Json::parse(json)).substr(2); };
  CHECK(pickled(Json()) == std::string{"\x80\x02N.", 4});
  CHECK(bytes("true") == "\x88.");
  CHECK(bytes("false") == "\x89.");
  CHECK(bytes("\"ab\"") == std::string{"X\x02\0\0\0ab.", 8});
  CHECK(bytes("258") == std::string{"\x8a\x09\x02\x01\0\0\0\0\0\0\0.", 12});
  CHECK(bytes("18446744073709551615") ==
        std::string{"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0.", 12});
  CHECK(bytes("-2") == std::string{"\x8a\x09\xfe\xff\xff\xff\xff\xff\xff\xff\xff.", 12});
  CHECK(bytes("1.5") == std::string{"G\x3f\xf8\0\0\0\0\0\0.", 10});
  CHECK(bytes("[]") == "](e.");
  CHECK(bytes("{\"a\": [true]}") == "}(X\x01" + std::string(3, '\0') + "a](\x88" + "eu.");
}

TEST_CASE("Python reads both files alike") {
  if (std::system("python3 -c 'import json, pickle' > /dev/null 2>&1") != 0)
    return skip("there is no python3");
  const std::string folder = fmt::format("/tmp/ccl-dump-{}", ::getpid());
  REQUIRE(std::system(("mkdir -p " + folder).c_str()) == 0);
  REQUIRE(write_flight_record(record(), folder));
  CHECK(pickle_path(record(), folder) == folder + "/ccl_0123456789abcdef_rank_1");
  const std::string program =
      "import json, pickle, sys\n"
      "pickled = pickle.load(open(sys.argv[1], 'rb'))\n"
      "written = json.load(open(sys.argv[2]))\n"
      "del written['ccl']\n"
      "sys.exit(pickled != written or pickled['entries'][0]['record_id'] != 1)";
  const auto run = fmt::format("python3 -c \"{}\" {} {}", program, pickle_path(record(), folder),
                               json_path(record(), folder));
  CHECK(std::system(run.c_str()) == 0);
  CHECK(std::system(("rm -r " + folder).c_str()) == 0);
  const auto gone = write_flight_record(record(), folder);
  REQUIRE_FALSE(gone);
  CHECK((gone.error().code == Errc::system && gone.error().os_code == ENOENT));
  CHECK(mentions(gone.error().what, folder.c_str()));
}
