#include "wires.cuh"

int main() {
  using namespace ccl;
  return test::run_suites<Tree, LL128, detail::WarpLanes>("Tree LL128");
}
