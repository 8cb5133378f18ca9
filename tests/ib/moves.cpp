// moves OPERATION CALLS BYTES: calls over IbTransport, with every element checked. BYTES is the
// longer buffer of a rank. SendRecv goes to the rank after half of the others.
#include <ccl/algo/pairwise.hpp>
#include <ccl/collective.hpp>
#include <ccl/proto/simple.hpp>

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>
#include <vector>

#include "support/calls/rings.hpp"

using namespace ccl;

namespace {

/// Element `i` of what rank `from` gives in call `call`.
float given(int from, int call, Index i) {
  return float((i + 7 * from + call) % 1000);
}

/// Runs calls: `move(in, out)` is one of them, and `wanted(call, i)` an element of its result.
template <class Move, class Wanted>
Result<void> run_calls(const Communicator& comm, int calls, Index count_in, Index count_out,
                       Move move, Wanted wanted) {
  std::vector<float> in(static_cast<std::size_t>(count_in)),
      out(static_cast<std::size_t>(count_out));
  for (int call = 0; call < calls; ++call) {
    for (Index i = 0; i < count_in; ++i) in[std::size_t(i)] = given(comm.rank(), call, i);
    CCL_CHECK(move(in.data(), out.data()));
    for (Index i = 0; i < count_out; ++i) {
      const float is = out[std::size_t(i)], want = wanted(call, i);
      if (is == want) continue;
      return fail(Errc::internal,
                  fmt::format("call {}: element {} is {} instead of {}", call, i, is, want));
    }
  }
  return comm.finalize();
}

Result<void> run(std::string_view operation, int calls, Index bytes) {
  CCL_TRY(const auto comm, Communicator::from_env());
  const int ranks = comm.ranks(), me = comm.rank();
  const Index share = bytes / 4 / ranks, all = share * ranks;
  if (operation == "all_gather") {
    CCL_TRY(const auto gather, test::RingGathers::create(comm));
    return run_calls(
        comm, calls, share, all,
        [&](const float* in, float* out) { return gather(in, out, share); },
        [&](int call, Index i) { return given(int(i / share), call, i % share); });
  }
  if (operation == "reduce_scatter") {
    CCL_TRY(const auto scatter, test::RingScatters::create(comm));
    return run_calls(
        comm, calls, all, share,
        [&](const float* in, float* out) { return scatter(in, out, share); },
        [&](int call, Index i) {
          float sum = 0;
          for (int r = 0; r < ranks; ++r) sum += given(r, call, me * share + i);
          return sum;
        });
  }
  if (operation == "all_to_all") {
    CCL_TRY(const auto exchange,
            (Collective<AllToAll, Pairwise, Simple, IbTransport>::create(comm)));
    return run_calls(
        comm, calls, all, all,
        [&](const float* in, float* out) { return exchange(in, out, share); },
        [&](int call, Index i) { return given(int(i / share), call, me * share + i % share); });
  }
  if (operation == "send_recv") {
    CCL_TRY(const auto messages,
            (Collective<SendRecv, Pairwise, Simple, IbTransport>::create(comm)));
    const int half = ranks / 2, to = (me + half) % ranks, from = (me + ranks - half) % ranks;
    return run_calls(
        comm, calls, all, all,
        [&](const float* in, float* out) { return messages(in, all, to, out, all, from); },
        [&](int call, Index i) { return given(from, call, i); });
  }
  return fail(Errc::invalid_argument, fmt::format("no operation {}", operation));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 1;
  const auto done = run(argv[1], std::atoi(argv[2]), std::atoll(argv[3]));
  if (!done) fmt::print("{}\n", done.error().message());
  return done ? 0 : 3;
}
