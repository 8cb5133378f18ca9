// endure CALLS BYTES [repair [BREAK_AT] | failure]: all-reduces over IbTransport, with every
// element checked, while the network is disturbed from outside.
//
// - "repair": calls continue until a rank has recreated queue pairs, and for CALLS more. Rank 0
//   breaks one of its own before call BREAK_AT.
// - "failure": calls continue until one fails.
// - Status 0: all calls were right. 3: one failed; its error and seconds are printed.
#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/proto/simple.hpp>

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <vector>

#include "transport/ib/verbs/verbs.hpp"

using namespace ccl;

namespace {

using Sums = Collective<AllReduce, Tree, Simple, IbTransport>;

/// The library's table, and the queue pairs made through it.
struct Watched {
  detail::Verbs calls, library;
  std::mutex mutex;
  std::vector<ibv_qp*> pairs;
  std::atomic<int> made{0};
} watched;

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  ibv_qp* const qp = watched.library.create_qp(pd, attributes);
  const std::lock_guard lock{watched.mutex};
  if (qp == nullptr) return qp;
  watched.pairs.push_back(qp);
  ++watched.made;
  return qp;
}
int destroy_qp(ibv_qp* qp) {
  const std::lock_guard lock{watched.mutex};
  std::erase(watched.pairs, qp);
  return watched.library.destroy_qp(qp);
}
/// Breaks a queue pair, like a device that has given it up.
int break_one() {
  const std::lock_guard lock{watched.mutex};
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_ERR;
  return watched.pairs.empty() ? -1
                               : watched.library.modify_qp(watched.pairs[0], &to, IBV_QP_STATE);
}

enum class Until { counted, repaired, failed };

Result<void> run(const int calls, Index bytes, Until until, int break_at) {
  CCL_TRY(const detail::Verbs* const library, detail::verbs());
  watched.library = watched.calls = *library;
  watched.calls.create_qp = create_qp;
  watched.calls.destroy_qp = destroy_qp;
  detail::use_verbs(&watched.calls);
  CCL_TRY(const auto comm, Communicator::from_env());
  CCL_TRY(const auto sums, Sums::create(comm));
  const Index count = bytes / 4;
  const int ranks = comm.ranks();
  // The last element counts the ranks that have recreated queue pairs. All ranks read it in the
  // same call, so all end with the same call.
  std::vector<float> data(static_cast<std::size_t>(count) + 1);
  double longest = 0;
  const auto start = std::chrono::steady_clock::now();
  const auto since = [](auto then) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
  };
  int left = calls, call = 0, made_first = 0;
  for (bool repaired = false; left > 0 || until == Until::failed; ++call) {
    for (Index i = 0; i < count; ++i) data[std::size_t(i)] = float((i + call + comm.rank()) % 1000);
    data.back() = call > 0 && watched.made > made_first ? 1 : 0;
    const auto then = std::chrono::steady_clock::now();
    if (call == break_at && comm.rank() == 0) {
      fmt::print("rank 0: breaks a queue pair before call {} ({})\n", call, break_one());
    }
    if (auto done = sums(data.data(), data.data(), count + 1); !done) {
      Error error = std::move(done).error();
      error.what = fmt::format("call {} failed after {:.1f} s: {}", call, since(then), error.what);
      return fail(std::move(error));
    }
    longest = std::max(longest, since(then));
    for (Index i = 0; i < count; ++i) {
      float want = 0;
      for (int r = 0; r < ranks; ++r) want += float((i + call + r) % 1000);
      if (data[std::size_t(i)] != want) {
        return fail(Errc::internal, fmt::format("call {}: element {} is {} instead of {}", call, i,
                                                data[std::size_t(i)], want));
      }
    }
    if (call == 0) made_first = watched.made;
    repaired = repaired || data.back() > 0;
    if (until != Until::repaired || repaired) --left;
    if (call == 1 && comm.rank() == 0) {  // so the first one has ended everywhere
      fmt::print("rank 0: under way\n");
      std::fflush(stdout);
    }
  }
  fmt::print("rank {}: {} calls of {} bytes right, {:.1f} s, the longest {:.2f} s\n", comm.rank(),
             call, bytes, since(start), longest);
  return comm.finalize();
}

}  // namespace

int main(int argc, char** argv) {
  const int calls = argc > 1 ? std::atoi(argv[1]) : 10;
  const Index bytes = argc > 2 ? std::atoll(argv[2]) : 1 << 20;
  const std::string_view word = argc > 3 ? argv[3] : "";
  const Until until = word == "repair"    ? Until::repaired
                      : word == "failure" ? Until::failed
                                          : Until::counted;
  const auto done = run(calls, bytes, until, argc > 4 ? std::atoi(argv[4]) : -1);
  if (!done) fmt::print("{}\n", done.error().message());
  return done ? 0 : done.error().code == Errc::internal ? 2 : 3;
}
