// Calls of libnccl that leave the multiprocessors to the program. The GPUs are played on the CPU.
#define CCL_PLAYED_WARP 2  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/collective.cuh>
#include <ccl/comm/window.hpp>
#include <ccl/transport/p2p.hpp>

#include <string>
#include <vector>

#include "nccl/abi/zero_copies.hpp"
#include "support/environment.hpp"
#include "support/error_matchers.hpp"
#include "support/played/calls.hpp"
#include "support/played/stream_words.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr Index count = 3000;  // elements of a message

/// Buffer of a rank in a window, and one in none.
struct Buffers {
  const played::Rank& rank;
  Index all = count * rank.ranks;
  SharedMemory shared = *SharedMemory::allocate(rank.comm, all* Index{sizeof(float)});
  std::optional<Window> window{};
  std::vector<float> plain = std::vector<float>(std::size_t(all));

  explicit Buffers(const played::Rank& of) : rank{of} {}
  void open() { window.emplace(*Window::create(rank.comm, shared)); }
};

/// Runs a call into `out`. Returns "copied", "not copied", or what is wrong.
template <class Op>
std::string run(detail::nccl::ZeroCopies<Op, P2pTransport>& copies, const played::Rank& rank,
                float* out) {
  constexpr bool gathers = std::is_same_v<Op, AllGather>;
  std::vector<float> in;
  for (int to = 0; to < rank.ranks; ++to) {
    in.insert(in.end(), std::size_t(count), float(10 * rank.rank + (gathers ? 0 : to)));
  }
  std::fill_n(out, count * rank.ranks, -1.F);
  if (const auto here = rank.comm.barrier(); !here) return here.error().message();
  const auto done = copies.run(rank.comm, in.data(), out, count, Stream{rank.stream});
  rank.synchronize();
  if (!done) return done.error().message();
  if (const auto well = rank.comm.status(); !well) return well.error().message();
  if (!*done) return "not copied";
  for (Index i = 0; i < count * rank.ranks; ++i) {
    const float right = float(10 * int(i / count) + (gathers ? 0 : rank.rank));
    if (out[i] != right) return fmt::format("element {} is {}, not {}", i, out[i], right);
  }
  return "copied";
}

template <class Op>
void check_calls() {
  played::install(3, 4);
  played::install_stream_words(3);
  auto comms = played::create_ranks(3);
  played::on_each(comms, [](const played::Rank& rank) -> std::string {
    detail::nccl::ZeroCopies<Op, P2pTransport> copies;
    Buffers memory{rank};
    float* const inside = memory.shared.template as<float>();
    std::string said = run(copies, rank, inside);  // there is no window yet
    memory.open();
    for (float* const out : {inside, memory.plain.data(), inside}) {
      said += ", " + run(copies, rank, out);
    }
    const bool well = said == "not copied, copied, not copied, copied";
    return well ? std::string{} : said;
  });
}

}  // namespace

TEST_CASE("an all-gather into a window runs by copy engines alone, and any other does not") {
  check_calls<AllGather>();
}

TEST_CASE("an all-to-all into a window runs by copy engines alone, and any other does not") {
  check_calls<AllToAll>();
}

TEST_CASE("streams that cannot wait for memory leave calls to other compositions") {
  played::install(2, 4);
  detail::CudaDriver driver = **detail::cuda_driver();
  static const auto attribute = driver.device_get_attribute;
  driver.device_get_attribute = [](int* value, CUdevice_attribute what, CUdevice device) {
    const CUresult code = attribute(value, what, device);
    if (what == CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) *value = 0;
    return code;
  };
  detail::use_cuda_driver(driver, 2);
  auto comms = played::create_ranks(2);
  played::on_each(comms, [](const played::Rank& rank) -> std::string {
    detail::nccl::ZeroCopies<AllGather, P2pTransport> copies;
    Buffers memory{rank};
    memory.open();
    std::string said;
    for (int turn = 0; turn < 2; ++turn) said += run(copies, rank, memory.plain.data()) + " ";
    return said == "not copied not copied " ? std::string{} : said;
  });
}
