#include <ccl/topo/lint.hpp>

#include <string>

#include "support/catch.hpp"
#include "support/fake_machine.hpp"
#include "support/graph_of.hpp"

namespace topo = ccl::topo;
using ccl::test::FakeMachine;
using ccl::test::loaded_from;

namespace {

/// Returns the advice of the finding that contains these words, or "none".
std::string advice(const std::vector<topo::Finding>& findings, const std::string& words) {
  for (const topo::Finding& finding : findings) {
    if (finding.problem.find(words) != std::string::npos) return finding.advice;
  }
  return "none";
}

std::vector<topo::Finding> lint(const std::string& text, const topo::PathRules& rules = {}) {
  return topo::lint(loaded_from(text), rules);
}

/// A GPU or NIC at a bus id.
std::string pci(const std::string& bus, const std::string& inside, const char* speed = "32.0",
                int width = 16) {
  return "<pci busid=\"0000:" + bus + ":00.0\" link_speed=\"" + speed +
         " GT/s PCIe\" link_width=\"" + std::to_string(width) + "\">" + inside + "</pci>\n";
}

std::string gpu(int rank, int links, const char* target, int gdr = 1) {
  return "<gpu dev=\"" + std::to_string(rank) + "\" sm=\"90\" rank=\"" + std::to_string(rank) +
         "\" gdr=\"" + std::to_string(gdr) + "\"><nvlink target=\"0000:" + target +
         ":00.0\" count=\"" + std::to_string(links) + "\" tclass=\"0x030200\"/></gpu>";
}

std::string machine(const std::string& first, const std::string& second) {
  const std::string kind =
      " arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\"";
  return "<system version=\"1\"><cpu numaid=\"0\"" + kind + ">" + first +
         "</cpu><cpu numaid=\"1\"" + kind + ">" + second + "</cpu></system>";
}

std::string nic(const char* name, int dev, int mbps, int gdr = 1) {
  return "<nic><net name=\"" + std::string(name) + "\" dev=\"" + std::to_string(dev) +
         "\" speed=\"" + std::to_string(mbps) + "\" port=\"1\" guid=\"0x" +
         std::to_string(dev + 1) + "\" gdr=\"" + std::to_string(gdr) + "\"/></nic>";
}

topo::SystemFiles files(const FakeMachine& fake) {
  topo::SystemFiles files;
  files.sys = fake.path("sys");
  files.proc = fake.path("proc");
  files.open_files = 1 << 20;
  files.locked_bytes = ~std::uint64_t{0};
  files.shm_bytes = std::uint64_t{1} << 34;
  return files;
}

}  // namespace

TEST_CASE("a sound machine gets no remarks") {
  CHECK(lint(machine(pci("10", gpu(0, 18, "20")) + pci("11", nic("mlx5_0", 0, 200000)),
                     pci("20", gpu(1, 18, "10")) + pci("21", nic("mlx5_1", 1, 200000))))
            .size() == 2);  // GPU direct RDMA through a CPU: one for each GPU
  const std::string below = pci("10", pci("11", gpu(0, 18, "12")) + pci("12", gpu(1, 18, "11")) +
                                          pci("13", nic("mlx5_0", 0, 200000)));
  const auto findings = lint(machine(below, ""));
  for (const topo::Finding& finding : findings) UNSCOPED_INFO(finding.problem);
  CHECK(findings.empty());
  FakeMachine fake;
  CHECK(topo::lint_system(files(fake)).empty());
}

TEST_CASE("what a graph shows to be wrong is named with what to do") {
  const auto narrow =
      lint(machine(pci("10", gpu(0, 18, "11"), "32.0", 4) + pci("11", gpu(1, 18, "10")), ""));
  CHECK(advice(narrow, "GPU/0-10000 has 12 GB/s of PCIe, others have 48").find("reseat") == 0);

  // As a virtual machine tells it that knows nothing.
  const auto unknown =
      lint(machine(pci("10", gpu(0, 18, "11"), "Unknown", 255) + pci("11", gpu(1, 18, "10")), ""));
  CHECK(advice(unknown, "of PCIe, others have") == "none");
  CHECK(advice(unknown, "width 255: taken as") != "none");

  const auto uneven = lint(machine(pci("10", gpu(0, 18, "11")) + pci("11", gpu(1, 12, "10")), ""));
  CHECK(advice(uneven, "247.2 GB/s of NVLink").find("nvidia-smi nvlink") != std::string::npos);

  const auto apart = lint(machine(pci("10", gpu(0, 18, "11")) + pci("11", gpu(1, 18, "10")),
                                  pci("20", nic("mlx5_0", 0, 200000))));
  CHECK(advice(apart, "GPU/0-10000 and its NIC mlx5_0 are on different sockets").find("move") == 0);

  const auto no_gdr =
      lint(machine(pci("10", pci("11", gpu(0, 18, "12", 0)) + pci("12", gpu(1, 18, "11", 0)) +
                                 pci("13", nic("mlx5_0", 0, 200000, 0))),
                   ""));
  CHECK(advice(no_gdr, "no GPU direct RDMA between mlx5_0 and GPU/0-11000, GPU/0-12000")
            .find("nvidia-peermem") != std::string::npos);

  const auto slow_slot = lint(machine(pci("13", nic("mlx5_0", 0, 400000), "16.0", 8), ""));
  CHECK(advice(slow_slot, "mlx5_0 has 50 GB/s of wire, but 12 of PCIe").find("move") == 0);

  const auto broken = lint(machine(pci("10", gpu(0, 18, "10"), "2.5", 1), ""));
  CHECK(advice(broken, "to itself left out").find("correct the file") == 0);
}

TEST_CASE("GPU direct RDMA is judged by the rules of communicators") {
  const std::string through_cpu =
      machine(pci("10", gpu(0, 18, "11")) + pci("11", gpu(1, 18, "10")) +
                  pci("12", nic("mlx5_0", 0, 200000)),
              "");
  CHECK(advice(lint(through_cpu), "no GPU direct RDMA between mlx5_0") != "none");
  topo::PathRules rules;
  rules.gdr_level = topo::PathType::sys;
  CHECK(advice(lint(through_cpu, rules), "no GPU direct RDMA") == "none");

  const std::string below =
      machine(pci("10", pci("11", gpu(0, 18, "12")) + pci("12", gpu(1, 18, "11")) +
                            pci("13", nic("mlx5_0", 0, 200000))),
              "");
  CHECK(advice(lint(below), "no GPU direct RDMA") == "none");
  rules.gdr_level = topo::PathType::loc;
  CHECK(advice(lint(below, rules), "(distance PIX > LOC)").find("CCL_NET_GDR_LEVEL") !=
        std::string::npos);
}

TEST_CASE("what the running system shows to be wrong is named with what to do") {
  FakeMachine fake;
  auto low = files(fake);
  low.open_files = 1024;
  low.locked_bytes = 64 << 10;
  low.shm_bytes = 64 << 20;
  const auto limits = topo::lint_system(low);
  CHECK(advice(limits, "open files is limited to 1024").find("ulimit -n") != std::string::npos);
  CHECK(advice(limits, "locked memory is limited to 64 KiB").find("ulimit -l") !=
        std::string::npos);
  CHECK(advice(limits, "holds 64 MiB").find("--shm-size") != std::string::npos);
  CHECK(limits.size() == 3);

  fake.file("sys/kernel/iommu_groups/0/type", "identity\n");
  CHECK(topo::lint_system(files(fake)).empty());
  fake.file("sys/kernel/iommu_groups/1/type", "DMA-FQ\n");
  CHECK(advice(topo::lint_system(files(fake)), "IOMMU is on").find("iommu=pt") !=
        std::string::npos);
}

TEST_CASE("an old kernel's IOMMU counts unless the command line says pass through") {
  FakeMachine fake;
  fake.file("sys/class/iommu/dmar0/x", "");
  CHECK(advice(topo::lint_system(files(fake)), "IOMMU is on") != "none");
  fake.file("proc/cmdline", "root=/dev/sda intel_iommu=on iommu=pt\n");
  CHECK(topo::lint_system(files(fake)).empty());
}

TEST_CASE("PCIe links below what card and slot can are named") {
  FakeMachine fake;
  const std::string port = fake.pci("pci0000:00/0000:00:01.0", "0x060400", 0, "32.0 GT/s PCIe");
  const std::string gpu =
      fake.pci("pci0000:00/0000:00:01.0/0000:01:00.0", "0x030200", 0, "32.0 GT/s PCIe");
  fake.file(gpu + "/current_link_width", "16\n");
  fake.file(gpu + "/current_link_speed", "2.5 GT/s PCIe\n");  // idle
  CHECK(topo::lint_system(files(fake)).empty());
  fake.file(gpu + "/current_link_width", "8\n");
  CHECK(advice(topo::lint_system(files(fake)), "GPU 0000:01:00.0 runs on 8 of its 16 PCIe lanes")
            .find("reseat") == 0);
  fake.file(port + "/max_link_width", "8\n");
  CHECK(advice(topo::lint_system(files(fake)), "(its slot has 8)").find("wider slot") !=
        std::string::npos);
  fake.file(port + "/max_link_speed", "8.0 GT/s PCIe\n");
  CHECK(advice(topo::lint_system(files(fake)), "can 32 GT/s, its slot 8") != "none");
  const std::string nic =
      fake.pci("pci0000:00/0000:00:02.0/0000:02:00.0", "0x020700", 0, "16.0 GT/s PCIe");
  fake.file(nic + "/current_link_width", "16\n");
  fake.file(nic + "/current_link_speed", "8.0 GT/s PCIe\n");
  CHECK(advice(topo::lint_system(files(fake)), "NIC 0000:02:00.0 runs at 8 of its 16 GT/s") !=
        "none");
}

TEST_CASE("ACS on a bridge is named, and bridges that do not show theirs are counted") {
  FakeMachine fake;
  const std::string bridge = fake.pci("pci0000:00/0000:00:01.0", "0x060400", 0);
  std::string config(4096, '\0');
  const auto put = [&](std::size_t at, unsigned value) {
    for (int byte = 0; byte < 4; ++byte) config[at + byte] = char(value >> (8 * byte));
  };
  put(0x100, 0x14800001);  // some other capability, the next at 0x148
  put(0x148, 0x0001000d);  // ACS, the last
  put(0x14c, 0x0000007f);  // can all, does nothing
  fake.file(bridge + "/config", config);
  CHECK(topo::lint_system(files(fake)).empty());
  put(0x14c, 0x001d007f);  // redirects
  fake.file(bridge + "/config", config);
  CHECK(advice(topo::lint_system(files(fake)), "ACS redirects on bridge 0000:00:01.0")
            .find("setpci -s 0000:00:01.0") == 0);
  fake.file(bridge + "/config", config.substr(0, 64));
  CHECK(advice(topo::lint_system(files(fake)), "1 of 1 PCIe bridges do not show").find("root") !=
        std::string::npos);
}
