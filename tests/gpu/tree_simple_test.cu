#include "wires.cuh"

int main() {
  using namespace ccl;
  return test::run_suites<Tree, Simple, detail::BlockLanes<128>>("Tree Simple");
}
