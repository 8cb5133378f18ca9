// Clients of the health service of ranks that are processes. Each rank answers at an address of its
// own, 127.0.0.2 and up, all at one port.
#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/proto/simple.hpp>

#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/held_port.hpp"
#include "support/log_of.hpp"
#include "support/lost_time.hpp"
#include "support/ranks.hpp"
#include "support/ras_client.hpp"

using namespace ccl;
using namespace ccl::test;
using nlohmann::json;

namespace {
using Sums = Collective<AllReduce, Tree, Simple, DefaultTransport>;

/// Address at which a rank answers.
std::string at(int rank) {
  return fmt::format("127.0.0.{}", rank + 2);
}
std::function<void(int)> answering(const HeldPort& port) {
  return [&port](int rank) {
    ::setenv("CCL_RAS_ADDR", fmt::format("{}:{}", at(rank), port.number()).c_str(), 1);
  };
}
Result<void> sum(const Sums& sums) {
  float one = 1;
  return sums(&one, &one, 1, Sum{});
}
/// The communicator of that size in an answer; the first if there are several.
json of_size(const json& status, int size) {
  if (!status.is_object()) return {};
  for (const json& one : status["communicators"]) {
    if (one["size"] == size) return one;
  }
  return {};
}
/// Number of sockets of a process whose own end is at this address, as the kernel writes it.
int sockets_at(const std::string& address, pid_t pid) {
  std::set<std::string> sockets;
  for (const std::string& fd : list_dir(fmt::format("/proc/{}/fd", pid))) {
    char target[100] = {};
    const std::string link = fmt::format("/proc/{}/fd/{}", pid, fd);
    if (::readlink(link.c_str(), target, sizeof target - 1) <= 0) continue;
    const std::string_view text{target};
    if (text.starts_with("socket:[")) sockets.insert(std::string{text.substr(8, text.size() - 9)});
  }
  std::ifstream table{"/proc/net/tcp"};
  int found = 0;
  for (std::string line; std::getline(table, line);) {
    std::istringstream fields{line};
    const std::vector<std::string> all{std::istream_iterator<std::string>{fields}, {}};
    found += all.size() > 9 && all[1] == address && sockets.contains(all[9]) ? 1 : 0;
  }
  return found;
}
std::string first_error(const std::vector<std::string>& said) {
  for (const std::string& one : said) {
    if (one.starts_with("error")) return one;
  }
  return "";
}
}  // namespace

TEST_CASE("STATUS lists all communicators with the keys that Ray and SGLang read") {
  const HeldPort port;
  const auto said = run(3, answering(port), [&](const Communicator& comm) -> Answer {
    CCL_TRY(const auto sums, Sums::create(comm));
    for (int i = 0; i < 4; ++i) CCL_CHECK(sum(sums));
    Config pair;
    pair.name = "pair";
    CCL_TRY(const auto half, comm.split(comm.rank() == 2 ? -1 : 0, 0, pair));
    CCL_CHECK(comm.barrier());
    std::string text;
    if (comm.rank() == 1) text = status_of(at(1), port.number()).dump();
    CCL_CHECK(comm.barrier());
    if (text.size() > 599) {  // of a report's board: the parts that are looked at
      const json status = json::parse(text);
      const json world = of_size(status, 3), two = of_size(status, 2);
      text = json{{"world", world["ranks"][2]["collective_counts"]},
                  {"status", world["ranks"][0]["status"]},
                  {"counts", {world["ranks_count"], world["missing_ranks_count"]}},
                  {"pair", {two["name"], two["ranks_count"]}},
                  {"differ", world["hash"] != two["hash"]},
                  {"n", status["communicators_count"]},
                  {"keys", status.contains("timestamp") && status.contains("nccl_version") &&
                               status["ras"].contains("collection_time_sec")},
                  {"pid", world["ranks"][1]["pid"] == ::getpid()},
                  {"host", world["ranks"][2]["host"]}}
                 .dump();
    }
    return text;
  });
  INFO(said[0] << said[1] << said[2]);
  REQUIRE(first_error(said).empty());
  const json found = json::parse(said[1], nullptr, false);
  REQUIRE(found.is_object());
  CHECK(found["world"] == json{{"Broadcast", 0},
                               {"Reduce", 0},
                               {"AllGather", 0},
                               {"ReduceScatter", 0},
                               {"AllReduce", 4}});
  CHECK(found["status"] == json{{"init_state", 0},
                                {"async_error", 0},
                                {"finalize_called", false},
                                {"destroy_flag", false},
                                {"abort_flag", false}});
  CHECK(found["counts"] == json{3, 0});
  CHECK(found["pair"] == json{"pair", 2});
  CHECK(found["differ"] == true);
  CHECK(found["n"] == 2);
  CHECK(found["keys"] == true);
  CHECK(found["pid"] == true);
  CHECK(found["host"].get<std::string>().find('.') != std::string::npos);
}

TEST_CASE("a stopped rank is missing, and the answer still comes within a second") {
  const HeldPort port;
  const auto said = run(
      3, answering(port),
      [&](const Communicator& comm) -> Answer {
        CCL_CHECK(comm.barrier());
        if (comm.rank() == 2) {
          ::raise(SIGSTOP);
        } else if (comm.rank() == 0) {
          const pid_t stopped = comm.peer(2).pid;
          std::string answer;
          // Again if this machine was too busy for a second, or rank 1 for its part of it.
          const bool good = wait_until(
              [&] {
                const auto begin = Clock::now();
                const json status = of_size(status_of(at(0), port.number()), 3);
                const double took = seconds(Clock::now() - begin);
                if (!status.is_object()) return false;
                const json& missing = status["missing_ranks"];
                answer = fmt::format("{} {} after {} s", missing.dump(),
                                     status["diagnosis"]["behind"].dump(), took);
                const json as{{"considered_dead", false}, {"unresponsive", true}};
                return missing.size() == 1 && missing[0]["rank"] == 2 &&
                       missing[0]["status"] == as && status["diagnosis"]["behind"] == 2 &&
                       status["diagnosis"]["cause"] == "no_answer" && took < 1;
              },
              30);
          ::kill(stopped, SIGCONT);
          CCL_CHECK(comm.barrier());
          return good ? "in time" : answer;
        }
        CCL_CHECK(comm.barrier());
        return "";
      },
      true, -1, 60);
  CHECK(said[0] == "in time");
}

TEST_CASE("a rank that died is considered dead, and its survivors say what they got") {
  const HeldPort port;
  const auto said = run(
      3, answering(port),
      [&](const Communicator& comm) -> Answer {
        (void)comm.barrier();  // the loss may be noticed in it
        if (comm.rank() == 2) ::_exit(7);
        if (comm.rank() == 1) {
          sleep_s(1.5);
          return "";
        }
        if (!wait_until([&] { return !comm.status(); }, 60)) return "not noticed";
        const json status = of_size(status_of(at(0), port.number()), 3);
        if (!status.is_object()) return "no answer";
        return fmt::format("{} {}", status["missing_ranks"].back()["status"].dump(),
                           status["ranks"][0]["status"]["async_error"].dump());
      },
      false, 2);
  CHECK(said[0] == R"({"considered_dead":true,"unresponsive":false} 6)");
}

TEST_CASE("a late rank is named, in JSON, as text and in diagnostics") {
  const HeldPort port;
  const auto said = run(3, answering(port), [&](const Communicator& comm) -> Answer {
    CCL_TRY(const auto sums, Sums::create(comm));
    CCL_CHECK(sum(sums));
    if (comm.rank() != 1) {
      CCL_CHECK(sum(sums));
      return "";
    }
    json status;  // this rank is late, and its service answers
    const bool seen = wait_until(
        [&] {
          status = of_size(status_of(at(1), port.number()), 3);
          return status.is_object() && status["diagnosis"]["behind"] == 1 &&
                 status["diagnosis"]["cause"] == "not_called" &&
                 status["ranks"][0]["progress"].value("waits_for", -1) >= 0;
        },
        60);
    const RasClient client{at(1), port.number()};
    (void)client.send("VERBOSE STATUS\n");
    const std::string text = client.read("");
    const RasClient other{at(1), port.number()};
    (void)other.send("DIAGNOSTICS\n");
    const std::string diagnostics = other.read("");
    CCL_CHECK(sum(sums));
    std::string found = seen ? "seen" : status.dump();
    for (const char* part :
         {"\nJob summary\n===========\n", "RUNNING  ", "MISMATCH", "\nErrors\n======\n",
          "\nWarnings\n========\n", "rank 1 on", "  Rank 0 -- CPU managed by process"}) {
      if (text.find(part) == std::string::npos) found += fmt::format(" no {} in {}", part, text);
    }
    if (diagnostics.find("[INFO] communicator") == std::string::npos) found += diagnostics;
    if (diagnostics.find("3 of 3 ranks answer") == std::string::npos) found += diagnostics;
    return found;
  });
  CHECK(said[1] == "seen");
}

TEST_CASE("a monitor receives events of processes, and finalize does not wait for its client") {
  const HeldPort port;
  const auto said = run(
      2, answering(port),
      [&](const Communicator& comm) -> Answer {
        const RasClient client{at(comm.rank()), port.number()};
        (void)client.send("SET FORMAT json\nMONITOR all\n");
        std::string events = client.read("PEER_NEW");
        CCL_CHECK(comm.barrier());
        const LostTime lost;
        const auto begin = Clock::now();
        CCL_CHECK(comm.finalize());
        const double took = seconds(Clock::now() - begin) - lost.seconds();
        events += client.read("");
        if (events.find("[late]") != std::string::npos) return "not closed: " + events;
        if (RasClient{at(comm.rank()), port.number(), 0}) return "it still listens";
        for (const char* key :
             {"\"group\":\"LIFECYCLE\"", "\"event\":\"PEER_NEW\"", "\"cuda_devs\":[]"}) {
          if (events.find(key) == std::string::npos) return fmt::format("no {} in {}", key, events);
        }
        return took < 5 ? "closed" : fmt::format("finalize took {} s", took);
      },
      false);
  CHECK(said[0] == "closed");
  CHECK(said[1] == "closed");
}

TEST_CASE("ranks that are threads of a process are one communicator") {
  const HeldPort port;
  answering(port)(0);
  const auto id = create_unique_id();
  REQUIRE(id);
  std::atomic<int> errors{0};
  json status;
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      const auto work = [&]() -> Result<void> {
        CCL_TRY(const auto comm, Communicator::create(*id, r, 3));
        CCL_TRY(const auto sums, Sums::create(comm));
        CCL_CHECK(sum(sums));
        CCL_CHECK(comm.barrier());
        if (r == 0) status = status_of(at(0), port.number());
        CCL_CHECK(comm.barrier());
        return comm.finalize();
      };
      if (!work()) ++errors;
    });
  }
  for (std::thread& thread : threads) thread.join();
  ::unsetenv("CCL_RAS_ADDR");
  CHECK(errors == 0);
  REQUIRE(status.is_object());
  CHECK(status["communicators_count"] == 1);
  CHECK(of_size(status, 3)["ranks_count"] == 3);
}

TEST_CASE("a child of a fork holds no socket of the service") {
  const HeldPort port;
  const auto said = run(2, answering(port), [&](const Communicator& comm) -> Answer {
    CCL_CHECK(comm.barrier());
    if (comm.rank() == 1) return "";
    const RasClient client{at(0), port.number()};
    (void)client.send("CLIENT PROTOCOL 2\n");
    (void)client.read("\n");
    int ends[2];
    if (::pipe(ends) != 0) return "no pipe";
    const pid_t child = start_process([&] {
      char c = 0;
      return ::read(ends[0], &c, 1) == 1 ? 0 : 1;
    });
    const bool closed = wait_until(
        [&] { return sockets_at(fmt::format("{}:{:04X}", "0200007F", port.number()), child) == 0; },
        30);
    const char done = 1;
    const bool released = ::write(ends[1], &done, 1) == 1;
    if (!reap({child}, 10) || !released) return "the child failed";
    (void)client.send("STATUS\n");
    const bool answers = client.read("").find("Job summary") != std::string::npos;
    return fmt::format("{} {}", closed ? "closed" : "held", answers ? "answers" : "silent");
  });
  CHECK(said[0] == "closed answers");
}

TEST_CASE("the metrics of a process, over the port and as a file") {
  const HeldPort port;
  char folder[] = "/tmp/ccl.metrics.XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  const auto said = run(
      2,
      [&](int rank) {
        answering(port)(rank);
        ::setenv("CCL_METRICS_DIR", folder, 1);
        ::setenv("CCL_METRICS_INTERVAL", "0.1", 1);
      },
      [&](const Communicator& comm) -> Answer {
        CCL_TRY(const auto sums, Sums::create(comm));
        std::vector<float> data(1000, 1);
        for (int i = 0; i < 5; ++i) CCL_CHECK(sums(data.data(), data.data(), 1000, Sum{}));
        CCL_CHECK(comm.barrier());
        if (comm.rank() == 1) {
          sleep_s(0.5);
          CCL_CHECK(sum(sums));
          return "";
        }
        CCL_CHECK(sum(sums));  // waits for rank 1
        const RasClient http{at(0), port.number()};
        (void)http.send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        const std::string text = http.read("");
        const RasClient client{at(0), port.number()};
        (void)client.send("METRICS\n");
        const std::string plain = client.read("");
        const std::string path =
            fmt::format("{}/ccl_{}_{}.prom", folder, comm.peer(0).host, ::getpid());
        std::string file;
        (void)wait_until(
            [&] {
              std::ifstream in{path};
              file.assign(std::istreambuf_iterator<char>{in}, {});
              return file.find("size_le=\"256\"") != std::string::npos;
            },
            30);
        std::string found;
        for (const std::string& one : {text, plain, file}) {
          for (const char* part :
               {"operation=\"all_reduce\",size_le=\"4096\"} 5\n", "size_le=\"256\"} 1\n",
                "ccl_bytes_total{", "ccl_samples_waiting_total{",
                "# TYPE ccl_calls_total counter\n", "nccl_bus_bandwidth_gbs{version=\"v5.1\"",
                "ranks=\"2\",nodes=\"1\"", "ccl_network_retries_total{node="}) {
            if (one.find(part) == std::string::npos)
              found += fmt::format(" no {} in {}", part, one);
          }
          const std::regex connections{"ccl_connections\\{[^\n]*rank=\"0\"\\} [1-9][0-9]*\n"};
          if (!std::regex_search(one, connections)) found += " no connections in " + one;
        }
        return found.empty() ? path : found;
      });
  CHECK(said[0].starts_with(folder));
  CHECK(list_dir(folder).empty());  // files of processes that ended are removed
  ::rmdir(folder);
}

TEST_CASE("a communicator after the last one has metrics and answers, too") {
  const HeldPort port;
  char folder[] = "/tmp/ccl.metrics.XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  const Environment settings{{{"CCL_RAS_ADDR", fmt::format("{}:{}", at(0), port.number())},
                              {"CCL_METRICS_DIR", folder},
                              {"CCL_METRICS_INTERVAL", "0.1"}}};
  for (int round = 0; round < 20; ++round) {
    INFO(round);
    const auto comm = Communicator::create(*create_unique_id(), 0, 1);
    REQUIRE(comm);
    if (round % 5 == 4) CHECK(status_of(at(0), port.number())["communicators_count"] == 1);
    if (round == 19) {
      CHECK(wait_until([&] { return list_dir(folder).size() == 1; }, 30));
    }
  }
  CHECK(wait_until([&] { return list_dir(folder).empty(); }, 30));
  ::rmdir(folder);
}

TEST_CASE("a process without the service, or whose port is taken, runs as well") {
  const HeldPort port;
  int other = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in taken{};
  taken.sin_family = AF_INET;
  taken.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(other, reinterpret_cast<sockaddr*>(&taken), sizeof taken) == 0);
  REQUIRE(::listen(other, 1) == 0);
  socklen_t bytes = sizeof taken;
  ::getsockname(other, reinterpret_cast<sockaddr*>(&taken), &bytes);
  const auto said = run(
      2,
      [&](int rank) {
        answering(port)(rank);
        if (rank == 0) ::setenv("CCL_RAS_ENABLE", "0", 1);
        if (rank == 1) {
          ::setenv("CCL_RAS_ADDR", fmt::format("127.0.0.1:{}", ntohs(taken.sin_port)).c_str(), 1);
        }
      },
      [&](const Communicator& comm) -> Answer {
        CCL_TRY(const auto sums, Sums::create(comm));
        CCL_CHECK(sum(sums));
        if (comm.rank() == 0 && RasClient{at(0), port.number(), 0.3}) return "it listens";
        return "runs";
      });
  ::close(other);
  CHECK(said == std::vector<std::string>{"runs", "runs"});
}

#if defined(CCL_RAS_PROGRAM)
namespace {
/// Exit status of the client, and what it prints.
std::pair<int, std::string> ask_client(const std::string& arguments) {
  const std::string command = fmt::format("timeout 20 {} {} 2>&1", CCL_RAS_PROGRAM, arguments);
  FILE* const pipe = ::popen(command.c_str(), "r");
  std::string text;
  char bytes[4096];
  for (std::size_t n; (n = std::fread(bytes, 1, sizeof bytes, pipe)) > 0;) text.append(bytes, n);
  return {WEXITSTATUS(::pclose(pipe)), text};
}
}  // namespace

TEST_CASE("the client fails at once if the service refuses a command") {
  const HeldPort port;
  const auto said = run(2, answering(port), [&](const Communicator& comm) -> Answer {
    CCL_CHECK(comm.barrier());
    std::string text;
    if (comm.rank() == 0) {
      const auto begin = std::chrono::steady_clock::now();
      const auto client = ask_client(fmt::format("-h {} -p {} NONSENSE", at(0), port.number()));
      const bool late = std::chrono::steady_clock::now() - begin > std::chrono::seconds{9};
      text = fmt::format("{} {} {}", late ? "late" : "soon", client.first, client.second);
    }
    CCL_CHECK(comm.barrier());
    return text;
  });
  CHECK(said[0] == fmt::format("soon 1 ccl_ras: {}:{}: ERROR: Unknown command 'NONSENSE'\n", at(0),
                               port.number()));
}

TEST_CASE("the client fails if the process ends before it answers") {
  sockaddr_in here{};
  here.sin_family = AF_INET;
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof here;
  auto* const address = reinterpret_cast<sockaddr*>(&here);
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(::bind(listener, address, bytes) == 0);
  REQUIRE(::listen(listener, 1) == 0);
  REQUIRE(::getsockname(listener, address, &bytes) == 0);
  std::thread service{[&] {
    const int client = ::accept(listener, nullptr, nullptr);
    char line[64];
    (void)!::recv(client, line, sizeof line, 0);
    (void)!::send(client, "SERVER PROTOCOL 2\n", 18, MSG_NOSIGNAL);
    (void)!::recv(client, line, sizeof line, 0);
    ::close(client);
  }};
  const auto said = ask_client(fmt::format("-h 127.0.0.1 -p {}", ntohs(here.sin_port)));
  service.join();
  ::close(listener);
  CHECK(said.first == 1);
  CHECK(said.second.find("the connection has ended") != std::string::npos);
}

TEST_CASE("Ray's call of the client gives all that Ray reads") {
  const HeldPort port;
  const auto said = run(2, answering(port), [&](const Communicator& comm) -> Answer {
    CCL_TRY(const auto sums, Sums::create(comm));
    CCL_CHECK(sum(sums));
    CCL_CHECK(comm.barrier());
    if (comm.rank() == 1) return "";
    const auto [status, text] =
        ask_client(fmt::format("-f json -t 8 -h {} -p {}", at(0), port.number()));
    const json all = json::parse(text, nullptr, false);
    if (status != 0 || !all.is_object()) return fmt::format("{}: {}", status, text);
    const json one = all["communicators"][0], rank = one["ranks"][1];
    std::string keys;
    for (const char* key : {"abort_flag", "finalize_called", "destroy_flag", "init_state"}) {
      keys += rank["status"].contains(key) ? "" : key;
    }
    return fmt::format("{}{} {} {}", keys, all.contains("timestamp"), rank["rank"].dump(),
                       rank["collective_counts"]["AllReduce"].dump());
  });
  CHECK(said[0] == "true 1 1");
}
#endif
