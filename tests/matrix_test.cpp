// Operations by algorithm, protocol and transport, on CPU ranks that are processes: every element
// of every call is checked. The table of docs/validation/matrix.md must be that of this run, which
// is written to the file that MATRIX_TABLE names.
#include <ccl/ccl.hpp>
#include <ccl/transport/collnet.hpp>
#include <ccl/transport/nvls.hpp>
#include <ccl/transport/plugin.hpp>

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/chosen_transport.hpp"
#include "support/net_plug_in.hpp"
#include "support/ranks.hpp"
#include <unistd.h>

using namespace ccl;
using namespace ccl::test;

namespace {

/// Operation, algorithm, protocol, transport.
using Row = std::tuple<std::string, std::string, std::string, std::string>;
struct Counts {
  int calls = 0;
  Index wrong = 0;               // elements, on all ranks
  std::set<std::string> jobs{};  // ranks of each host
};
std::map<Row, Counts>& matrix() {
  static std::map<Row, Counts> all;
  return all;
}

/// Each rank adds lines to it, whole ones.
std::string file_of_job() {
  return fmt::format("/tmp/ccl.matrix.{}", ::getpid());
}

int number(int rank, Index i) {
  return int(i % 1009) + rank * 1013;
}

/// Calls an operation. Returns the number of wrong elements.
template <class Op, class Call>
Result<Index> wrong_of(const Communicator& comm, const Call& call, Index n, int root) {
  const int ranks = comm.ranks(), me = comm.rank();
  const auto sum = [&](Index i) {
    int all = 0;
    for (int r = 0; r < ranks; ++r) all += number(r, i);
    return all;
  };
  constexpr bool spreads = std::is_same_v<Op, AllGather> || std::is_same_v<Op, AllToAll>;
  constexpr bool splits = std::is_same_v<Op, ReduceScatter> || std::is_same_v<Op, AllToAll>;
  std::vector<int> in(std::size_t(n * (splits ? ranks : 1)) + 1);
  std::vector<int> out(std::size_t(n * (spreads ? ranks : 1)) + 1, -1);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = number(me, Index(i));
  const auto want = [&](Index i) {
    if constexpr (std::is_same_v<Op, AllReduce>) return sum(i);
    if constexpr (std::is_same_v<Op, Reduce>) return me == root ? sum(i) : -1;
    if constexpr (std::is_same_v<Op, Broadcast>) return number(root, i);
    if constexpr (std::is_same_v<Op, AllGather>) return number(int(i / n), i % n);
    if constexpr (std::is_same_v<Op, ReduceScatter>) return sum(me * n + i);
    if constexpr (std::is_same_v<Op, AllToAll>) return number(int(i / n), me * n + i % n);
  };
  if constexpr (std::is_same_v<Op, Reduce>) {
    CCL_CHECK(call(in.data(), out.data(), n, Sum{}, root));
  } else if constexpr (std::is_same_v<Op, Broadcast>) {
    CCL_CHECK(call(in.data(), out.data(), n, root));
  } else {
    CCL_CHECK(call(in.data(), out.data(), n));
  }
  Index wrong = out.back() == -1 ? 0 : 1;
  for (Index i = 0; i + 1 < Index(out.size()); ++i) wrong += out[std::size_t(i)] != want(i) ? 1 : 0;
  return wrong;
}

/// One cell of the matrix, on one job.
template <class Op, class Algo, class Proto, class Ways>
Result<void> cell(const Communicator& comm, const std::string& file, const std::string& ways) {
  if constexpr (RunsOperation<Algo, Op>) {
    CCL_TRY(const auto call, (Collective<Op, Algo, Proto, Ways>::create(comm)));
    int calls = 0;
    Index wrong = 0;
    for (const Index n : {Index{1}, Index{7}, Index{1023}, Index{40'003}}) {
      CCL_TRY(const Index found, wrong_of<Op>(comm, call, n, calls % comm.ranks()));
      wrong += found;
      ++calls;
    }
    const std::string line =
        fmt::format("{} {} {} {} {} {} {}\n", Op::name, Algo::name, Proto::name, ways,
                    comm.rank() == 0 ? calls : 0, wrong, comm.ranks());
    std::FILE* const to = std::fopen(file.c_str(), "a");
    if (to == nullptr) return fail(Errc::system, "cannot write the lines of the matrix");
    std::fputs(line.c_str(), to);
    std::fclose(to);
  }
  return {};
}
template <class Algo, class Proto, class Ways>
Result<void> each_operation(const Communicator& comm, const std::string& file,
                            const std::string& ways) {
  CCL_CHECK((cell<AllReduce, Algo, Proto, Ways>(comm, file, ways)));
  CCL_CHECK((cell<AllGather, Algo, Proto, Ways>(comm, file, ways)));
  CCL_CHECK((cell<ReduceScatter, Algo, Proto, Ways>(comm, file, ways)));
  CCL_CHECK((cell<Broadcast, Algo, Proto, Ways>(comm, file, ways)));
  CCL_CHECK((cell<Reduce, Algo, Proto, Ways>(comm, file, ways)));
  return cell<AllToAll, Algo, Proto, Ways>(comm, file, ways);
}
template <class Proto>
Result<void> each_algorithm(const Communicator& comm, const std::string& file,
                            const std::string& ways) {
  CCL_CHECK((each_operation<Ring, Proto, ChosenTransport>(comm, file, ways)));
  CCL_CHECK((each_operation<Tree, Proto, ChosenTransport>(comm, file, ways)));
  CCL_CHECK((each_operation<Pat, Proto, ChosenTransport>(comm, file, ways)));
  return each_operation<Pairwise, Proto, ChosenTransport>(comm, file, ways);
}

/// Runs a job of so many ranks on each host, and adds its lines to the matrix.
void add_job(
    const std::vector<int>& hosts,
    const std::vector<std::pair<const char*, std::string>>& variables,
    const std::function<Result<void>(const Communicator&, const std::string& file)>& body) {
  std::vector<int> host_of;
  std::string shape;
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    host_of.insert(host_of.end(), std::size_t(hosts[h]), int(h));
    shape += (h == 0 ? "" : "+") + std::to_string(hosts[h]);
  }
  const std::string file = file_of_job();
  ::unlink(file.c_str());
  const auto said = run(
      int(host_of.size()),
      [&](int r) {
        on_host(fmt::format("host{}", host_of[std::size_t(r)]));
        for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 1);
      },
      [&](const Communicator& comm) -> Answer {
        CCL_CHECK(body(comm, file));
        return std::string{"well"};
      });
  for (const std::string& one : said) {
    INFO(shape);
    CHECK(one == "well");
  }
  std::ifstream lines{file};
  std::string op, algo, proto, ways;
  int calls = 0, ranks = 0;
  Index wrong = 0;
  while (lines >> op >> algo >> proto >> ways >> calls >> wrong >> ranks) {
    Counts& counts = matrix()[{op, algo, proto, ways}];
    counts.calls += calls;
    counts.wrong += wrong;
    counts.jobs.insert(shape);
  }
  ::unlink(file.c_str());
}

template <class Ways>
void add_wires(const std::vector<int>& hosts, const char* name,
               const std::vector<std::pair<const char*, std::string>>& variables = {}) {
  add_job(hosts, variables,
          [name](const Communicator& comm, const std::string& file) -> Result<void> {
            chosen = detail::transport_table<Ways>();
            CCL_CHECK(each_algorithm<Simple>(comm, file, name));
            CCL_CHECK(each_algorithm<LL>(comm, file, name));
            return each_algorithm<LL128>(comm, file, name);
          });
}

std::vector<std::pair<const char*, std::string>> with_collnet(int devices) {
  return {{"CCL_COLLNET_ENABLE", "1"},
          {"CCL_NET_PLUGIN", CCL_TEST_SOFTWARE_COLLNET},
          {"SOFTWARE_COLLNET_IFNAME", "lo"},
          {"SOFTWARE_COLLNET_DEVICES", std::to_string(devices)}};
}

std::string table() {
  std::string text =
      "| operation | algorithm | protocol | transport | ranks of each host | calls | wrong "
      "elements |\n|---|---|---|---|---|---|---|\n";
  for (const auto& [row, counts] : matrix()) {
    const auto& [op, algo, proto, ways] = row;
    std::string jobs;
    for (const std::string& shape : counts.jobs) jobs += (jobs.empty() ? "" : ", ") + shape;
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", op, algo, proto, ways, jobs,
                        counts.calls, counts.wrong);
  }
  return text;
}

}  // namespace

TEST_CASE("operations by algorithm, protocol and transport") {
  add_wires<ShmTransport>({3}, "shm");
  add_wires<SocketTransport>({2, 1}, "socket");
  add_wires<PluginTransport>({2, 1}, "plugin", {{"CCL_NET_PLUGIN", TestNet{12}.path()}});
  for (const int ranks : {2, 3, 5}) {
    add_job({ranks}, {}, [](const Communicator& comm, const std::string& file) {
      return each_operation<Nvls, Simple, NvlsTransport>(comm, file, "nvls");
    });
  }
  for (const auto& hosts : {std::vector{2, 2}, std::vector{3, 1}, std::vector{1, 1, 1}}) {
    add_job(hosts, {}, [](const Communicator& comm, const std::string& file) -> Result<void> {
      CCL_CHECK((each_operation<NvlsTree, Simple, DefaultTransport>(comm, file, "nvls+socket")));
      return each_operation<NvlsTree, LL, DefaultTransport>(comm, file, "nvls+socket");
    });
  }
  for (const auto& hosts : {std::vector{1, 1}, std::vector{2, 3, 1}, std::vector{1, 1, 1, 1, 1}}) {
    add_job(hosts, with_collnet(1), [](const Communicator& comm, const std::string& file) {
      return each_operation<CollNetChain, Simple, CollNetTransport>(comm, file, "collnet");
    });
  }
  for (const auto& hosts : {std::vector{1, 1, 1}, std::vector{2, 2}}) {
    add_job(hosts, with_collnet(2), [](const Communicator& comm, const std::string& file) {
      return each_operation<CollNetDirect, Simple, CollNetTransport>(comm, file, "collnet");
    });
  }
  int calls = 0;
  for (const auto& [row, counts] : matrix()) {
    INFO(std::get<0>(row) << " " << std::get<1>(row) << " " << std::get<2>(row) << " "
                          << std::get<3>(row));
    CHECK(counts.calls > 0);
    CHECK(counts.wrong == 0);
    calls += counts.calls;
  }
  if (const char* const path = std::getenv("MATRIX_TABLE")) std::ofstream{path} << table();
  std::ifstream file{CCL_TEST_MATRIX_PAGE};
  const std::string page{std::istreambuf_iterator<char>{file}, {}};
  CHECK(page.find("\n" + table() + "\n") != page.npos);
  CHECK(page.find(fmt::format("\n{} rows, {} calls, ", matrix().size(), calls)) != page.npos);
}
