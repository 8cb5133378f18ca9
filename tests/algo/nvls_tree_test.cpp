// NvlsTree between CPU ranks of several hosts, in processes, over emulated multicast memory.
#include <ccl/algo/nvls_tree.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/detail/choose/auto_collective.hpp>
#include <ccl/detail/runtime/levels.hpp>
#include <ccl/hierarchical.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/nvls.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <string>
#include <vector>

#include "comm/state.hpp"
#include "support/ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
template <class Proto, class Ways = DefaultTransport>
using Sums = Collective<AllReduce, NvlsTree, Proto, Ways>;

int number(int rank, Index i) {
  return int(i % 1013) * 3 + rank * 1000;
}
/// Sums at counts that fit the rails and at such that do not, in place and not. Returns the
/// problem.
template <class C>
Answer sum_some(const Communicator& comm, const C& sums) {
  const int ranks = comm.ranks();
  for (const Index n : {Index{0}, Index{1}, Index{7}, Index{4096}, Index{300'001}}) {
    std::vector<int> in(static_cast<std::size_t>(n)), apart(in.size(), -1);
    auto& out = n % 2 == 0 ? in : apart;
    for (Index i = 0; i < n; ++i) in[std::size_t(i)] = number(comm.rank(), i);
    CCL_CHECK(sums(in.data(), out.data(), n));
    for (Index i = 0; i < n; ++i) {
      int want = 0;
      for (int r = 0; r < ranks; ++r) want += number(r, i);
      if (out[std::size_t(i)] != want) return fmt::format("element {} of {} is wrong", i, n);
    }
  }
  return std::string{};
}
Answer run_all(const Communicator& comm) {
  CCL_TRY(const auto sums, Sums<Simple>::create(comm));
  CCL_TRY(auto wrong, sum_some(comm, sums));
  using Ways = AnyOf<NvlsTransport, SocketTransport>;
  CCL_TRY(const auto packets, (Sums<LL, Ways>::create(comm)));
  CCL_TRY(auto more, sum_some(comm, packets));
  // Average: divided once, after both levels.
  std::vector<float> data(100, float(comm.rank()));
  CCL_CHECK(sums(data.data(), data.data(), 100, Avg{}));
  if (data[99] != float(comm.ranks() - 1) / 2) more += "an average is wrong";
  return wrong + more;
}
/// Rank r is on host `of[r]`.
std::vector<std::string> run_on(const std::vector<int>& of, const Body& body) {
  return run(
      int(of.size()), [&](int r) { on_host(std::to_string(of[std::size_t(r)])); }, body);
}
std::vector<std::string> nothing(std::size_t ranks) {
  return std::vector<std::string>(ranks);
}

/// A machine of four GPUs behind an NVSwitch, of which each two share a NIC.
std::string four_gpus_two_nics() {
  std::string text =
      R"(<system><cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">)";
  for (int n = 0; n < 2; ++n) {
    text += fmt::format(
        R"(<pci busid="a{0}:00.0" link_speed="32 GT/s" link_width="16">
        <pci busid="b{0}:00.0" link_speed="32 GT/s" link_width="16"><nic>
        <net name="n{0}" dev="{0}" speed="400000" guid="0x{0}" gdr="1"/></nic></pci>)",
        n);
    for (const int gpu : {2 * n, 2 * n + 1}) {
      text += fmt::format(
          R"(<pci busid="c{0}:00.0" link_speed="32 GT/s" link_width="16">
          <gpu dev="{0}" rank="{0}" sm="90" gdr="1">
          <nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/></gpu></pci>)",
          gpu);
    }
    text += "</pci>";
  }
  return text + "</cpu></system>";
}
}  // namespace

TEST_CASE("NvlsTree on hosts of equally many ranks, in any order, and of different numbers") {
  CHECK(run_on({0, 0, 1, 1}, run_all) == nothing(4));
  CHECK(run_on({0, 1, 2, 0, 1, 2}, run_all) == nothing(6));
  CHECK(run_on({0, 0, 0, 1}, run_all) == nothing(4));
}

TEST_CASE("NvlsTree on one host, and with one rank on each") {
  CHECK(run_on({0, 0, 0}, run_all) == nothing(3));
  CHECK(run_on({0, 1, 2}, run_all) == nothing(3));
}

TEST_CASE("a list that names NvlsTree takes it, on hosts of different numbers of ranks, too") {
  const std::vector<int> hosts = GENERATE(std::vector{0, 0, 1, 1}, std::vector{0, 0, 0, 1});
  const auto said = run_on(hosts, [](const Communicator& comm) -> Answer {
    using Listed = AutoOf<Candidate<NvlsTree, Simple>>;
    CCL_TRY(const auto sums, (Collective<AllReduce, Listed, Auto, DefaultTransport>::create(comm)));
    CCL_TRY(const auto wrong, sum_some(comm, sums));
    return fmt::format("{}{}", wrong, fmt::join(sums.compositions(), " "));
  });
  CHECK(said == std::vector<std::string>(4, "NVLSTree/Simple"));
}

TEST_CASE("NvlsTree crosses by the GPUs next to the NICs, beside the rails of others") {
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("ccl_heads_{}.xml", ::getpid()))
          .string();
  std::FILE* const file = std::fopen(path.c_str(), "w");
  REQUIRE(file != nullptr);
  std::fputs(four_gpus_two_nics().c_str(), file);
  std::fclose(file);
  const auto said = run(
      8,
      [&](int r) {
        on_host(std::to_string(r / 4));
        ::setenv("CCL_TOPO_FILE", path.c_str(), 1);
      },
      [](const Communicator& comm) -> Answer {
        CCL_TRY(const auto trees,
                (Collective<AllReduce, Hierarchical<Tree, Tree>, Simple>::create(comm)));
        CCL_TRY(const auto wrong, run_all(comm));
        CCL_TRY(const auto more, sum_some(comm, trees));
        CCL_TRY(const auto levels, detail::levels_of(comm, true));
        return fmt::format("{}{}{} {}", wrong, more, fmt::join(levels->heads, " "), levels->slice);
      });
  std::filesystem::remove(path);
  for (int r = 0; r < 8; ++r) {
    const int slice = r % 4 == 0 ? 0 : r % 4 == 2 ? 1 : -1;
    CHECK(said[std::size_t(r)] == fmt::format("[0, 2] [4, 6] {}", slice));
  }
}

TEST_CASE("a rank of NvlsTree that is late is named by its number in the whole communicator") {
  const auto said = run(
      4, [](int r) { on_host(std::to_string(r / 2)); },
      [](const Communicator& comm) -> Answer {
        CCL_TRY(const auto sums, Sums<Simple>::create(comm));
        std::vector<int> data(100, 1);
        if (comm.rank() == 3) {
          sleep_s(1.5);
          return std::string{};
        }
        const auto done = sums(data.data(), data.data(), 100);
        return done ? "no error" : fmt::format("{} {}", int(done.error().code), done.error().peer);
      },
      false, -1, 0.5);
  CHECK(said[2] == fmt::format("{} 3", int(Errc::timed_out)));
}
