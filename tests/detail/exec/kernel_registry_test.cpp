#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/detail/exec/kernel_registry.hpp>
#include <ccl/detail/wire/registry.hpp>
#include <ccl/proto/simple.hpp>

#include "support/catch.hpp"

using namespace ccl;

TEST_CASE("a program without device code has no kernels, and registering them does nothing") {
  using Kernels = detail::WireKernels<AllReduce, Tree, Simple, detail::Reduction<Sum, float>>;
  detail::register_kernels<Kernels>();
  CHECK(Kernels::launch == nullptr);
  CHECK(!detail::program_has_device_code);
  CHECK((detail::ComposedKernels<AllReduce, Tree, Simple>::first == nullptr));
}

TEST_CASE("the bytes of a message count every share once") {
  detail::WireWork<detail::Reduction<Sum, float>> work{detail::Reduction<Sum, float>{Sum{}, 4}};
  work.ranks = 4;
  work.layout = {1000, 0, 0, true};  // an all-reduce
  CHECK(detail::message_bytes(work) == 4000);
  work.layout = {1000, 1000, 0, false};  // a reduce-scatter of 1000 each
  CHECK(detail::message_bytes(work) == 16000);
  work.layout = {1000, 0, 0, false};  // a broadcast
  CHECK(detail::message_bytes(work) == 4000);
}
