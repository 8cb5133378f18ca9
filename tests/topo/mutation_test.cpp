#include <array>
#include <chrono>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "fuzz/topo_target.hpp"
#include "support/catch.hpp"

namespace {

constexpr auto seed_machine = R"(<system version="1">
  <cpu numaid="0" host_hash="0x1" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="106">
    <pci busid="0000:0a:00.0" class="0x060400" vendor="0x1" device="0x2" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:17:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1"><nvlink target="0000:65:00.0" count="12" tclass="0x030200"/>
          <nvlink target="fffffff:ff:ff.0" count="4" tclass="0x068000"/><c2c bw="450000" count="1"/></gpu>
      </pci>
      <pci busid="0000:4b:00.0" class="0x020000" link_speed="8.0 GT/s PCIe" link_width="8">
        <nic><net name="m0" dev="0" speed="200000" port="1" latency="0.0" guid="0x12" maxconn="9" gdr="1" coll="1"/></nic>
      </pci>
      <pcilink target="0000:0b:00.0"/>
    </pci>
    <pci busid="0000:0b:00.0" class="0x060400" link_speed="" link_width="0"/>
  </cpu>
  <cpu numaid="1" host_hash="0x1" arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49">
    <pci busid="0000:65:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="1" sm="60" rank="1" gdr="1"><nvlink target="0000:17:00.0" count="12" tclass="0x030200"/></gpu>
    </pci>
    <pci busid="0000:66:00.0" class="0x038000" link_speed="16 GT/s" link_width="16">
      <gpu dev="2" sm="104" gcn="910" arch="38911" rank="2" gdr="0"><xgmi target="0000:65:00.0" count="1" tclass="0x038000"/></gpu>
    </pci>
    <nic><net name="e0" dev="1" speed="10000" port="0" guid="0x0" gdr="0"/></nic>
  </cpu>
</system>)";

constexpr auto seed_graphs =
    R"(<graphs version="1"><graph id="0" pattern="4" crossnic="0" nchannels="1"
 speedintra="12" speedinter="12" latencyinter="0" typeintra="SYS" typeinter="PIX" samechannels="0">
 <channel><net dev="0"/><gpu dev="0"/><gpu dev="0x1" rank="1"/><net dev="0"/></channel></graph></graphs>)";

}  // namespace

TEST_CASE("mutated files never break the reader or the graph code") {
  std::mt19937 random(20240607);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::array<std::string, 20> words{
      "\"",           "\"\"",         "-1",       "0",
      "999999999999", "1e30",         "nan",      "<pci busid=\"1\">",
      "</pci>",       "0000:17:00.0", "0x068000", "0x068001",
      "nvlink",       "c2c",          "gpu",      "numaid=\"0\"",
      "rank=\"0\"",   "\0x",          "&lt;",     "count=\"1\""};
  const auto start = std::chrono::steady_clock::now();
  int machines = 0, runs = 0;
  for (; runs < 12000; ++runs) {
    std::string text = runs % 8 == 7 ? seed_graphs : seed_machine;
    for (std::size_t edits = 1 + below(2); edits > 0; --edits) {
      const std::size_t at = below(text.size());
      switch (below(6)) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + below(12));
          break;
        case 2:
          text.insert(at, words[below(words.size())]);
          break;
        case 3: {  // a value becomes another word
          const std::size_t open = text.find("=\"", at);
          if (open == std::string::npos) break;
          const std::size_t close = text.find('"', open + 2);
          if (close == std::string::npos) break;
          std::string word = words[2 + below(9)];
          for (char& c : word) c = c == '"' || c == '<' ? '7' : c;
          text.replace(open + 2, close - open - 2, word);
          break;
        }
        case 4: {  // a line twice
          const std::size_t from = text.rfind('\n', at);
          const std::size_t to = text.find('\n', at);
          if (from == std::string::npos || to == std::string::npos) break;
          text.insert(to, text.substr(from, to - from));
          break;
        }
        default: {  // removes a line
          const std::size_t from = text.rfind('\n', at);
          const std::size_t to = text.find('\n', at);
          if (from != std::string::npos && to != std::string::npos) text.erase(from, to - from);
        }
      }
      if (text.empty()) break;
    }
    machines += ccl::test::use_topology(text) ? 1 : 0;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::cout << runs << " files, " << machines << " of them machines, " << took.count() << " s\n";
  // Enough mutations must pass the parser for a meaningful test.
  CHECK(machines > runs / 5);
}
