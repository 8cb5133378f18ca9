// Buffers in windows that emulated multicast memory reaches: which calls use them, how ranks agree
// on that, and what a program reads about it. Ranks are threads, and processes.
#include <ccl/algo/nvls.hpp>
#include <ccl/comm/window.hpp>
#include <ccl/group.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/nvls.hpp>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/chosen_transport.hpp"
#include "support/loopback_ranks.hpp"
#include "support/ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
template <class Op>
using Over = Collective<Op, Nvls, Simple, NvlsTransport>;
using Sums = Over<AllReduce>;
/// A message of 1,000 numbers that is copied takes several parts.
constexpr Plan small{.channels = 2, .slot_count = 2, .slot_bytes = 2048};
constexpr Index count = 1000;
const std::string both = "loaded from windows, stored to windows";

struct alignas(64) Buffers {
  int send[count] = {}, recv[count] = {};
  int more[64] = {};
};
Result<void> wrong(const std::string& what) {
  return fail(Errc::internal, what);
}
/// Fails unless the latest call took that way.
template <class C>
Result<void> took(const C& calls, const std::string& want) {
  CCL_TRY(const std::string way, calls.latest_way());
  return way == want ? Result<void>{} : wrong("it was " + way + ", not " + want);
}
/// An all-reduce whose sums are checked.
Result<void> sum_up(const Sums& sums, int* send, int* recv, Index n, int rank, int ranks) {
  for (Index i = 0; i < n; ++i) send[i] = int(i) * 64 + (1 << rank);
  CCL_CHECK(sums(send, recv, n));
  for (Index i = 0; i < n; ++i) {
    if (recv[i] != int(i) * 64 * ranks + (1 << ranks) - 1) return wrong("a wrong sum");
  }
  return {};
}
}  // namespace

// First: a process that has had threads should not fork.
TEST_CASE("Nvls in windows among processes") {
  const int ranks = GENERATE(2, 5);
  const auto said = run(
      ranks, [](int) {},
      [](const Communicator& comm) -> Answer {
        CCL_TRY(auto sums, Sums::create(comm, small));
        CCL_TRY(const SharedMemory shared, SharedMemory::allocate(comm, sizeof(Buffers)));
        CCL_TRY(const Window window, Window::create(comm, shared));
        auto& memory = *shared.as<Buffers>();
        for (const Index n : {4, 1000, 64}) {
          CCL_CHECK(sum_up(sums, memory.send, memory.recv, n, comm.rank(), comm.ranks()));
          CCL_CHECK(took(sums, both));
          CCL_CHECK(sum_up(sums, memory.send, memory.send + 0, n, comm.rank(), comm.ranks()));
        }
        CCL_CHECK(window.close());
        CCL_CHECK(sum_up(sums, memory.send, memory.recv, count, comm.rank(), comm.ranks()));
        CCL_CHECK(took(sums, both));  // the latest that asked
        return "done";
      });
  for (int r = 0; r < ranks; ++r) CHECK(said[std::size_t(r)] == "done");
}

TEST_CASE("a call uses the windows of one side, of both or of none") {
  for (const int ranks : {2, 3, 5}) {
    on_all(make(ranks), [](const Communicator& comm) -> Result<void> {
      const int me = comm.rank(), all = comm.ranks();
      // Windows may be there before the composition, or come later.
      Buffers first, second;
      CCL_TRY(const Window early, Window::create(comm, &first, sizeof first));
      CCL_TRY(auto sums, Sums::create(comm, small));
      CCL_TRY(const Window late, Window::create(comm, &second, sizeof second));
      std::vector<int> apart(count);
      for (const Index n : {Index{4}, Index{32}, Index{count}}) {
        CCL_CHECK(sum_up(sums, first.send, second.recv, n, me, all));
        CCL_CHECK(took(sums, both));
        CCL_CHECK(sum_up(sums, first.send, apart.data(), n, me, all));
        CCL_CHECK(took(sums, "loaded from windows"));
        CCL_CHECK(sum_up(sums, apart.data(), second.recv, n, me, all));
        CCL_CHECK(took(sums, "stored to windows"));
        CCL_CHECK(sum_up(sums, second.send, second.send, n, me, all));
        CCL_CHECK(took(sums, both));
        CCL_CHECK(sum_up(sums, apart.data(), apart.data(), n, me, all));
        CCL_CHECK(took(sums, "copied"));
      }
      // Neither whole packets, nor the begin of one.
      CCL_CHECK(sum_up(sums, first.send, first.recv, 999, me, all));
      CCL_CHECK(took(sums, "copied"));
      CCL_CHECK(sum_up(sums, first.send + 1, first.recv, 996, me, all));
      CCL_CHECK(took(sums, "stored to windows"));
      for (const int x : first.more) {
        if (x != 0) return wrong("a store beside the buffer");
      }
      CCL_CHECK(early.close());
      CCL_CHECK(sum_up(sums, first.send, second.recv, count, me, all));
      CCL_CHECK(took(sums, "stored to windows"));
      return late.close();
    });
  }
}

TEST_CASE("buffers at another place on one rank are copied on all") {
  on_all(make(3), [](const Communicator& comm) -> Result<void> {
    const int me = comm.rank();
    Buffers memory, other;
    CCL_TRY(auto sums, Sums::create(comm, small));
    CCL_TRY(const Window window, Window::create(comm, &memory, sizeof memory));
    CCL_TRY(const Window twin, Window::create(comm, &other, sizeof other));
    std::vector<int> apart(count);
    const Index n = 512;
    for (const int odd : {0, 2}) {
      // Another offset, another window, and none.
      int* const sends[] = {memory.send + 8, other.send, apart.data()};
      for (int* const send : sends) {
        CCL_CHECK(sum_up(sums, me == odd ? send : memory.send, memory.recv, n, me, 3));
        CCL_CHECK(took(sums, "stored to windows"));
      }
      int* const recvs[] = {memory.recv + 8, other.recv, apart.data()};
      for (int* const recv : recvs) {
        CCL_CHECK(sum_up(sums, memory.send, me == odd ? recv : memory.recv, n, me, 3));
        CCL_CHECK(took(sums, "loaded from windows"));
      }
      // In place on this rank alone.
      CCL_CHECK(sum_up(sums, memory.send, me == odd ? memory.send : memory.recv, n, me, 3));
      CCL_CHECK(took(sums, "loaded from windows"));
    }
    CCL_CHECK(sum_up(sums, memory.send, memory.recv, n, me, 3));
    return took(sums, both);
  });
}

TEST_CASE("all-gathers and reduce-scatters in windows") {
  for (const int ranks : {2, 3, 8}) {
    on_all(make(ranks), [](const Communicator& comm) -> Result<void> {
      const int me = comm.rank(), all = comm.ranks();
      CCL_TRY(auto gather, Over<AllGather>::create(comm, small));
      CCL_TRY(auto scatter, Over<ReduceScatter>::create(comm, small));
      CCL_TRY(auto copy, Over<Broadcast>::create(comm, small));
      std::vector<Packet> room(std::size_t(all) * count / 2 + 8, Packet{{77, 77}});
      auto* const data = reinterpret_cast<Word*>(room.data());
      CCL_TRY(const Window window, Window::create(comm, data, Index(room.size() * sizeof(Packet))));
      for (const Index n : {Index{2}, Index{400}, Index{count}, Index{7}}) {
        const std::string straight = n == 7 ? "copied" : "stored to windows";
        for (const bool in_place : {false, true}) {
          std::vector<Word> mine(std::size_t(n), 100 + Word(me));
          Word* const own = in_place ? data + me * n : mine.data();
          std::fill_n(own, n, 100 + Word(me));
          CCL_CHECK(gather(own, data, n));
          for (Index i = 0; i < all * n; ++i) {
            if (data[i] != 100 + Word(i / n)) return wrong("a wrong gather");
          }
          CCL_CHECK(took(gather, straight));
          for (Index i = 0; i < all * n; ++i) data[i] = Word(i) + Word(me);
          std::vector<Word> part(count);
          Word* const to = in_place ? data + me * n : part.data();
          CCL_CHECK(scatter(data, to, n));
          for (Index i = 0; i < n; ++i) {
            const Word want = Word(all) * Word(me * n + i) + Word(all) * Word(all - 1) / 2;
            if (to[i] != want) return wrong("a wrong share");
          }
          CCL_CHECK(took(scatter, n == 7 ? "copied" : "loaded from windows"));
          // The others have read this rank's buffer.
          std::fill_n(data, all * n, Word{1});
        }
      }
      if (room.back().word[1] != 77) return wrong("a store beside the buffer");
      CCL_CHECK(copy(data, data, 16, 0));
      CCL_CHECK(took(copy, "copied"));
      return window.close();
    });
  }
}

TEST_CASE("a program reads how a call reaches its buffers") {
  std::vector<std::string> texts(2);
  on_all(make(2), [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto sums, Sums::create(comm, small));
    CCL_TRY(auto scatter, Over<ReduceScatter>::create(comm, small));
    CCL_TRY(auto copy, Over<Broadcast>::create(comm, small));
    Buffers memory, odd;
    std::string text = sums.explain(memory.send, memory.recv, count) + '\n';
    CCL_TRY(const Window window, Window::create(comm, &memory, sizeof memory));
    // On one rank, a window begins within a packet.
    char* const begin = reinterpret_cast<char*>(&odd) + (comm.rank() == 1 ? 4 : 0);
    CCL_TRY(const Window skewed, Window::create(comm, begin, 4096));
    int apart = 0;
    text += sums.explain(memory.send, memory.recv, count) + '\n';
    text += sums.explain(memory.send + 1, &apart, 4) + '\n';
    text += sums.explain(memory.send, memory.recv, 3) + '\n';
    text += sums.explain<PreMulSum>(memory.send, memory.recv, count) + '\n';
    text += scatter.explain(memory.send, &apart, 8) + '\n';
    text += copy.explain(memory.send, memory.recv, 4) + '\n';
    text += sums.explain(reinterpret_cast<const int*>(begin), memory.recv, 4);
    // Such a window is copied.
    auto* const data = reinterpret_cast<int*>(begin);
    CCL_CHECK(sum_up(sums, data, data, 4, comm.rank(), 2));
    CCL_CHECK(took(sums, "copied"));
    texts[std::size_t(comm.rank())] = std::move(text);
    return {};
  });
  CHECK(texts[0].rfind("copies send (in no window), copies to recv (in no window); ", 0) == 0);
  INFO(texts[0]);
  for (const char* const part :
       {"loads straight from send (at offset 0 of window ", "stores straight into recv (at offset ",
        "copies send (at offset 4 of window ",
        ", no multiple of 16), copies to recv (in no window)",
        "copies send (12 bytes are no multiple of 16), copies to recv (12 bytes are no",
        "copies send (each rank scales its data before the sum), stores straight into recv",
        "copies send and recv (this operation does not use windows)",
        "which multicast does not reach: ", "no multiple of 16 bytes",
        "); buffers at another place on some rank are copied on all"}) {
    for (const std::string& text : texts) CHECK(text.find(part) != std::string::npos);
  }
  CHECK(texts[1].find("the memory of rank 1 begins at ") != std::string::npos);
  CHECK(texts[0].find("rank 1") != std::string::npos);
}

TEST_CASE("calls keep their way, whenever their stream runs them") {
  on_all(make(3), [](const Communicator& comm) -> Result<void> {
    const int me = comm.rank();
    CCL_TRY(auto sums, Sums::create(comm, small));
    Buffers memory;
    std::fill_n(memory.send, count, 1 << me);
    HostStream stream;
    // Ranks run the first call before or after they create the window.
    if (me == 1)
      stream.enqueue([]() -> Result<void> {
        std::this_thread::sleep_for(std::chrono::milliseconds{50});
        return {};
      });
    CCL_CHECK(sums(memory.send, memory.recv, count, Sum{}, stream));
    CCL_TRY(const Window window, Window::create(comm, &memory, sizeof memory));
    CCL_CHECK(sums(memory.recv, memory.recv, count, Sum{}, stream));
    CCL_CHECK(stream.synchronize());
    for (const int x : memory.recv) {
      if (x != 21) return wrong("a wrong sum");
    }
    CCL_CHECK(took(sums, both));
    CCL_TRY(auto more, Sums::create(comm, small));
    std::vector<int> apart(count, 1);
    CCL_CHECK(group(sums.bind(memory.send, memory.recv, count),
                    more.bind(apart.data(), apart.data(), count)));
    for (const int x : memory.recv) {
      if (x != 7) return wrong("a wrong sum in a group");
    }
    if (apart != std::vector<int>(count, 3)) return wrong("another wrong sum in a group");
    CCL_CHECK(took(sums, both));
    CCL_CHECK(took(more, "copied"));
    return window.close();
  });
}

TEST_CASE("a window that one rank has dropped, and one that a rank never gave") {
  on_all(make(3), [](const Communicator& comm) -> Result<void> {
    const int me = comm.rank();
    Buffers memory, other;
    std::optional<Window> dropped;
    CCL_TRY(auto first, Window::create(comm, &other, sizeof other));
    dropped = std::move(first);
    if (me == 1) dropped.reset();
    CCL_TRY(auto sums, Sums::create(comm, small));  // binds what is left
    CCL_CHECK(sum_up(sums, other.send, other.recv, count, me, 3));
    CCL_CHECK(took(sums, "copied"));
    std::optional<Window> window;
    CCL_TRY(auto second, Window::create(comm, &memory, sizeof memory));
    window = std::move(second);
    CCL_CHECK(sum_up(sums, memory.send, memory.recv, count, me, 3));
    CCL_CHECK(took(sums, both));
    if (me == 2) window.reset();
    CCL_CHECK(sum_up(sums, memory.send, memory.recv, count, me, 3));
    return took(sums, "copied");
  });
}

TEST_CASE("a call in windows that one rank does not make ends at the deadline and names it") {
  Config config;
  config.timeout_s = 0.3;
  const auto results = on_ranks(3, config, [](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto sums, Sums::create(comm, small));
    static Buffers memory[3];
    Buffers& own = memory[comm.rank()];
    CCL_TRY(const Window window, Window::create(comm, &own, sizeof own));
    if (comm.rank() == 1) return {};
    return sums(own.send, own.recv, count);
  });
  CHECK(results[1].has_value());
  for (const int r : {0, 2}) {
    REQUIRE_FALSE(results[std::size_t(r)]);
    const Error& error = results[std::size_t(r)].error();
    INFO(error.message());
    CHECK(error.code == Errc::timed_out);
    CHECK(error.what.find("rank 1") != std::string::npos);
  }
}

TEST_CASE("many calls that change places, and ranks that run ahead") {
  constexpr int calls = 200;
  on_all(make(4), [](const Communicator& comm) -> Result<void> {
    const int me = comm.rank();
    CCL_TRY(auto sums, Sums::create(comm, small));
    Buffers memory;
    CCL_TRY(const Window window, Window::create(comm, &memory, sizeof memory));
    std::vector<int> apart(count);
    for (int n = 0; n < calls; ++n) {
      // Rank 3 alone has a buffer elsewhere in each third call.
      int* const send = n % 3 == 0 && me == 3 ? apart.data() : memory.send;
      int* const recv = n % 5 == 0 ? apart.data() : memory.recv;
      CCL_CHECK(sum_up(sums, send, recv, 64 + 4 * (n % 200), me, 4));
    }
    return {};
  });
}
