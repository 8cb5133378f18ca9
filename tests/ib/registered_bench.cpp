// Time and copies of large calls over IbTransport, with and without registered buffers. Without a
// launcher, two ranks are threads on emulated devices, whose writes are copies by the CPU. With
// RANK set it is one rank on a host of the virtual machine (tests/ib/vm.sh). Settings: BYTES of a
// message, CALLS of each kind.
#include <ccl/algo/pairwise.hpp>
#include <ccl/collective.hpp>
#include <ccl/comm/registered_buffer.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/ib.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/state.hpp"
#include "support/calls/rings.hpp"
#include "support/fake_verbs.hpp"
#include "support/on_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

Index number(const char* name, Index otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : Index(std::atoll(text));
}

struct Measured {
  std::vector<double> us;
  Word bytes = 0, registered = 0;
  double median() {
    std::sort(us.begin(), us.end());
    return us[us.size() / 2];
  }
  double copied() const { return bytes == 0 ? 0 : 1 - double(registered) / double(bytes); }
};

/// Element i of rank r's input. Sums of four ranks are exact.
float value(int rank, Index i) {
  return float((i * 7 + rank) % 1000);
}
/// Element i of the output. Share p of an all-gather or all-to-all is from rank p.
float wanted(AllReduce, const Communicator& comm, Index i, Index) {
  float sum = 0;
  for (int r = 0; r < comm.ranks(); ++r) sum += value(r, i);
  return sum;
}
float wanted(AllGather, const Communicator&, Index i, Index count) {
  return value(int(i / count), i % count);
}
float wanted(AllToAll, const Communicator& comm, Index i, Index count) {
  return value(int(i / count), comm.rank() * count + i % count);
}

/// Calls in turns, with neither buffer registered, the input, and both.
template <class Op, class C>
Result<void> measure(const Communicator& comm, const C& collective, const char* what, Index count,
                     Index ins, Index outs) {
  std::vector<float> in(std::size_t(ins), 0), out(std::size_t(outs), 0);
  for (Index i = 0; i < ins; ++i) in[std::size_t(i)] = value(comm.rank(), i);
  Measured measured[3];
  const auto counters = [&] { return detail::Access::state(comm)->proxy.counters(); };
  for (Index call = 0; call < 3 * number("CALLS", 20) + 3; ++call) {
    const int kind = int(call % 3);
    std::optional<RegisteredBuffer> kept[2];
    const auto keep = [&](int n, std::vector<float>& memory) -> Result<void> {
      CCL_TRY(kept[n],
              RegisteredBuffer::create(comm, memory.data(), Index(memory.size() * sizeof(float))));
      return {};
    };
    if (kind >= 1) CCL_CHECK(keep(0, in));
    if (kind >= 2) CCL_CHECK(keep(1, out));
    CCL_CHECK(collective(in.data(), out.data(), count));  // registers with the NICs
    CCL_CHECK(comm.barrier());
    const auto before = counters();
    const auto begin = std::chrono::steady_clock::now();
    CCL_CHECK(collective(in.data(), out.data(), count));
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    CCL_CHECK(comm.barrier());
    const auto after = counters();
    for (Index i = 0; i < outs; ++i) {
      if (std::exchange(out[std::size_t(i)], -1.0f) == wanted(Op{}, comm, i, count)) continue;
      return fail(Errc::internal, "element " + std::to_string(i) + " is wrong");
    }
    if (call < 3) continue;
    measured[kind].us.push_back(took.count());
    measured[kind].bytes += after.bytes - before.bytes;
    measured[kind].registered += after.registered_bytes - before.registered_bytes;
  }
  if (comm.rank() != 0) return {};
  const char* const names[] = {"neither", "input", "both"};
  for (int kind = 0; kind < 3; ++kind) {
    std::printf(
        "%s, %td bytes, registered: %s: %.0f us, %.2f of its time without, %.2f of the bytes "
        "through slots\n",
        what, count * Index{sizeof(float)}, names[kind], measured[kind].median(),
        measured[kind].median() / measured[0].median(), measured[kind].copied());
  }
  std::fflush(stdout);
  return {};
}

Result<void> all(const Communicator& comm) {
  const Index count = number("BYTES", Index{64} << 20) / Index{sizeof(float)}, ranks = comm.ranks();
  {
    CCL_TRY(const auto sums, RingSums::create(comm, Via::ib));
    CCL_CHECK(measure<AllReduce>(comm, sums, "all_reduce", count, count, count));
  }
  {
    CCL_TRY(const auto gathers, RingGathers::create(comm));
    CCL_CHECK(measure<AllGather>(comm, gathers, "all_gather", count, count, ranks * count));
  }
  CCL_TRY(const auto exchanges,
          (Collective<AllToAll, Pairwise, Simple, IbTransport>::create(comm)));
  return measure<AllToAll>(comm, exchanges, "all_to_all", count, ranks * count, ranks * count);
}

}  // namespace

TEST_CASE("registered buffers") {
  if (std::getenv("RANK") == nullptr) {
    const FakeVerbs fabric{1};
    check_well(on_ranks(2, {}, all));
    return;
  }
  Config config;
  config.timeout_s = 200;
  const auto comm = Communicator::from_env(config);
  INFO((comm ? std::string{} : comm.error().message()));
  REQUIRE(comm.has_value());
  check_well(on_ranks({*comm}, all));
  CHECK(comm->finalize().has_value());
}
