#include <ccl/ccl.hpp>
#include <ccl/topo/xml.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/ranks.hpp"

// Ranks as processes. CCL_HOSTID selects the host of each rank, and files describe that host.
using namespace ccl;
using namespace ccl::test;
namespace fs = std::filesystem;

namespace {

/// Every operation of rings and trees, over whatever connects the ranks. Empty if all is right.
template <class Algo>
Result<std::string> all_right(const Communicator& comm, int channels) {
  const int ranks = comm.ranks(), rank = comm.rank(), each = 57;
  const int total = each * ranks;
  Plan plan;
  plan.channels = channels;
  plan.slot_bytes = 1024;
  std::vector<int> in(total), out(total);
  const auto expect = [&](const char* what, bool truth) {
    return truth ? std::string() : fmt::format("{} {} is wrong on rank {}", what, Algo::name, rank);
  };
  std::string wrong;
  bool good = true;
  if constexpr (Algo::template supports<AllReduce>) {
    CCL_TRY(const auto all_reduce,
            (Collective<AllReduce, Algo, Simple, DefaultTransport>::create(comm, plan)));
    for (int i = 0; i < total; ++i) in[i] = i * (rank + 1);
    CCL_CHECK(all_reduce(in.data(), out.data(), total));
    for (int i = 0; i < total; ++i) good = good && out[i] == i * ranks * (ranks + 1) / 2;
    wrong += expect("all_reduce", good);
  }
  if constexpr (Algo::template supports<Broadcast>) {
    CCL_TRY(const auto broadcast,
            (Collective<Broadcast, Algo, Simple, DefaultTransport>::create(comm, plan)));
    CCL_TRY(const auto reduce,
            (Collective<Reduce, Algo, Simple, DefaultTransport>::create(comm, plan)));
    for (int root = 0; root < ranks; ++root) {
      for (int i = 0; i < total; ++i) in[i] = i + 1000 * rank;
      CCL_CHECK(broadcast(in.data(), out.data(), total, root));
      good = true;
      for (int i = 0; i < total; ++i) good = good && out[i] == i + 1000 * root;
      wrong += expect("broadcast", good);
      CCL_CHECK(reduce(in.data(), out.data(), total, Sum{}, root));
      for (int i = 0; i < total && rank == root; ++i) {
        good = good && out[i] == ranks * i + 500 * ranks * (ranks - 1);
      }
      wrong += expect("reduce", good);
    }
  }
  if constexpr (Algo::template supports<AllGather>) {
    CCL_TRY(const auto all_gather,
            (Collective<AllGather, Algo, Simple, DefaultTransport>::create(comm, plan)));
    for (int i = 0; i < each; ++i) in[i] = rank * each + i;
    CCL_CHECK(all_gather(in.data(), out.data(), each));
    good = true;
    for (int i = 0; i < total; ++i) good = good && out[i] == i;
    wrong += expect("all_gather", good);
    CCL_TRY(const auto reduce_scatter,
            (Collective<ReduceScatter, Algo, Simple, DefaultTransport>::create(comm, plan)));
    for (int i = 0; i < total; ++i) in[i] = i + rank;
    CCL_CHECK(reduce_scatter(in.data(), out.data(), each));
    good = true;
    for (int i = 0; i < each; ++i) {
      good = good && out[i] == ranks * (rank * each + i) + ranks * (ranks - 1) / 2;
    }
    wrong += expect("reduce_scatter", good);
  }
  return wrong;
}

Answer works(const Communicator& comm) {
  CCL_TRY(const std::string rings, all_right<Ring>(comm, 4));
  CCL_TRY(const std::string trees, all_right<Tree>(comm, 4));
  CCL_TRY(const std::string pats, all_right<Pat>(comm, 4));
  return rings + trees + pats;
}

Answer rings_of(const Communicator& comm) {
  std::string text;
  for (int c = 0; c < comm.ring_count(); ++c) {
    text += fmt::format("{}{}", c == 0 ? "" : " | ", fmt::join(comm.ring(c), " "));
  }
  return text;
}

/// File that the destructor removes.
struct File {
  std::string path;
  explicit File(const char* name, const std::string& text = "")
      : path((fs::temp_directory_path() / fmt::format("ccl_{}_{}", ::getpid(), name)).string()) {
    if (!text.empty()) REQUIRE(topo::write_file(path, text));
  }
  ~File() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
};

/// Four GPUs; NVLink makes a ring of 0 2 1 3, twice as wide on two of its sides.
std::string crossed() {
  std::string gpus;
  const auto link = [](int to, int count) {
    return fmt::format("<nvlink target=\"0000:{}0:00.0\" count=\"{}\" tclass=\"0x030200\"/>",
                       to + 1, count);
  };
  const int next[4] = {2, 3, 1, 0}, before[4] = {3, 2, 0, 1};
  for (int g = 0; g < 4; ++g) {
    gpus += fmt::format(
        "<pci busid=\"0000:{}0:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" "
        "link_width=\"16\"><gpu dev=\"{}\" sm=\"80\" rank=\"{}\" gdr=\"1\">{}{}</gpu></pci>\n",
        g + 1, g, g, link(next[g], 2), link(before[g], 2));
  }
  return "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"GenuineIntel\" "
         "familyid=\"6\" modelid=\"143\">\n" +
         gpus +
         "<nic><net name=\"mlx5_0\" dev=\"0\" speed=\"100000\" port=\"1\" guid=\"0x1\" gdr=\"1\" "
         "maxconn=\"100\"/></nic></cpu></system>\n";
}

}  // namespace

TEST_CASE("interleaved hosts: rings stay on a host as long as they can") {
  // Ranks 0 and 2 on host A, 1 and 3 on B.
  const auto host = [](int r) { on_host(r % 2 == 0 ? "A" : "B"); };
  for (const std::string& said : run(4, host, rings_of)) {
    // A A B B; which of a host's ranks is first is free.
    const std::vector<std::string> good{"0 2 1 3", "0 2 3 1", "0 1 3 2", "0 3 1 2"};
    CHECK(std::find(good.begin(), good.end(), said.substr(0, 7)) != good.end());
  }
  for (const std::string& wrong : run(4, host, works)) CHECK(wrong == "");
}

TEST_CASE("hosts of different sizes in any order work") {
  const std::string hosts = "CABBACB";
  const auto host = [&](int r) { on_host(hosts.substr(std::size_t(r), 1)); };
  const auto said = run(7, host, [&](const Communicator& comm) -> Answer {
    int crossings = 0;
    const std::vector<int>& ring = comm.ring(0);
    for (std::size_t i = 0; i < ring.size(); ++i) {
      const auto at = [&](std::size_t n) { return hosts[std::size_t(ring[n % ring.size()])]; };
      crossings += at(i) != at(i + 1) ? 1 : 0;
    }
    CCL_TRY(const std::string wrong, works(comm));
    return fmt::format("{} crossings{}", crossings, wrong);
  });
  for (const std::string& text : said) CHECK(text == "3 crossings");
}

TEST_CASE("the machine's links decide the order; files say what was found") {
  const File machine("machine.xml", crossed()), topology("topology.xml"), graphs("graphs.xml");
  const auto prepare = [&](int r) {
    ::setenv("NCCL_TOPO_FILE", machine.path.c_str(), 1);
    if (r != 0) return;
    ::setenv("CCL_TOPO_DUMP_FILE", topology.path.c_str(), 1);
    ::setenv("CCL_GRAPH_DUMP_FILE", graphs.path.c_str(), 1);
  };
  for (const std::string& said : run(4, prepare, rings_of)) {
    INFO(said);
    CHECK((said.find("0 2 1 3") != std::string::npos || said.find("0 3 1 2") != std::string::npos));
    CHECK(said.find("0 1") == std::string::npos);
  }
  const auto found = topo::load_graph(topology.path);
  REQUIRE(found);
  CHECK(found->graph.of(topo::NodeType::gpu).size() == 4);
  CHECK(topo::read_xml(graphs.path));
  for (const std::string& wrong : run(4, prepare, works)) CHECK(wrong == "");

  // The same graphs again, read from the file; then others.
  const auto reread = [&](int) {
    ::setenv("CCL_TOPO_FILE", machine.path.c_str(), 1);
    ::setenv("CCL_GRAPH_FILE", graphs.path.c_str(), 1);
  };
  CHECK(run(4, reread, rings_of) == run(4, prepare, rings_of));
  REQUIRE(topo::write_file(
      graphs.path,
      "<graphs><graph id=\"0\" pattern=\"4\" nchannels=\"2\" speedintra=\"7\" speedinter=\"7\">"
      "<channel><gpu dev=\"0\"/><gpu dev=\"1\"/><gpu dev=\"2\"/><gpu dev=\"3\"/></channel>"
      "<channel><gpu dev=\"0\"/><gpu dev=\"3\"/><gpu dev=\"2\"/><gpu dev=\"1\"/></channel>"
      "</graph></graphs>"));
  for (const std::string& said : run(4, reread, rings_of)) CHECK(said == "0 1 2 3 | 0 3 2 1");
  for (const std::string& wrong : run(4, reread, works)) CHECK(wrong == "");
}

TEST_CASE("two such machines, ranks interleaved: chains inside, a tree between") {
  const File machine("machines.xml", crossed());
  const auto prepare = [&](int r) {
    ::setenv("CCL_TOPO_FILE", machine.path.c_str(), 1);
    on_host(r % 2 == 0 ? "A" : "B");
  };
  for (const std::string& wrong : run(8, prepare, works)) CHECK(wrong == "");
}

TEST_CASE("a rank whose file is missing fails with its name; the others name the rank") {
  const auto said = run(
      3,
      [](int r) {
        if (r == 1) ::setenv("CCL_TOPO_FILE", "/not/there.xml", 1);
      },
      [](const Communicator&) -> Answer { return "made"; });
  CHECK(said[1].find("/not/there.xml") != std::string::npos);
  for (const int r : {0, 2}) {
    INFO(said[r]);
    CHECK(said[r].find("rank 1") != std::string::npos);
  }
}
