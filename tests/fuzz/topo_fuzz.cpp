// Topology and graph files.
#include <fstream>
#include <iterator>

#include "fuzz/fuzz.hpp"
#include "fuzz/topo_target.hpp"

namespace ccl::fuzz {

void prepare() {}
void read(Input input) {
  test::use_topology(text_of(input));
}
std::vector<std::string> seeds() {
  std::ifstream file{CCL_SOURCE_DIR "/docs/validation/machines/eight_gpus_eight_nics.xml"};
  return {std::string{std::istreambuf_iterator<char>{file}, {}},
          "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0000:17:00.0\" class=\"0x030200\">"
          "<gpu dev=\"0\" sm=\"90\" rank=\"0\"/></pci></cpu></system>"};
}

}  // namespace ccl::fuzz
