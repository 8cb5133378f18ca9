// The protocols' own code over a model of memory. In all executions that release and acquire allow,
// no lane accepts a torn or stale word, and none waits without end. Then the same code runs with
// orders removed, which the model must detect.
#include <ccl/detail/wire/prims.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>

#include "support/catch.hpp"
#include "support/model_lanes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

/// The orders that `Memory` promises; a test leaves one out.
struct Promises {
  bool release = true, acquire = true;                // of counts and flags
  bool credit_release = true, credit_acquire = true;  // of what is given back
  bool whole_words = true;                            // a word lands at once
};

template <Promises P>
struct ModelMemory : ModelData {
  static Word load_acquire(const Word* at) { return model().load(at, P.acquire); }
  static Word load_credit(const Word* at) { return model().load(at, P.credit_acquire); }
  static void store_release(Word* at, Word value) { model().store(at, value, P.release); }
  static void store_credit(Word* at, Word value) { model().store(at, value, P.credit_release); }
  // Lines: words of data around a flag.
  static Word load_relaxed(const Word* at) { return model().load_data(at, true); }
  static void store_relaxed(Word* at, Word value) { model().store_data(at, value, true); }
  // Packets: data and flag in each word.
  static Packet load_relaxed(const Packet* at) {
    return {model().load(&at->word[0], false), model().load(&at->word[1], false)};
  }
  static void store_relaxed(Packet* at, Packet value) {
    for (int w = 0; w < 2; ++w) {
      if (!P.whole_words) model().store(&at->word[w], value.word[w] & ~Word{0xffff'ffff}, false);
      model().store(&at->word[w], value.word[w], false);
    }
  }
};

using Copy = detail::Reduction<Sum, Word>;
constexpr int slot_packets = 8;

struct Line {
  alignas(128) Packet slots[2 * slot_packets] = {};
  Word posted = 0, drained = 0, sent = 0, received = 0;
  Wire wire() {
    return {slots, &posted, &drained, &sent, &received, nullptr, 2, slot_packets, false};
  }
};

/// Rank 0 sends `steps` tiles to rank 1, which stores them and, if there is a rank 2, sends them
/// on. Returns the number of executions. `early`: credit that the receiver has not given.
template <class Proto, int Width, Promises P = Promises{}>
long carry(int ranks, int steps, Word early = 0) {
  using Group = ModelLanes<Width, ModelMemory<P>>;
  using Format = detail::WireFormat<Group, Proto, Copy, 8>;
  using Prims = detail::WirePrims<Group, Proto, Copy, 8, 1, 1>;
  const Index count = Format::slice_capacity(Line{}.wire(), 1) /
                      (slot_packets / Format::Lane::tile_packets);  // of one tile
  const Index total = count * steps;
  std::vector<Word> source(static_cast<size_t>(total));
  for (size_t i = 0; i < source.size(); ++i) source[i] = (i + 1) * 0x1'0000'0001u;
  std::array<std::vector<Word>, 3> sink;
  std::array<Line, 2> lines;
  std::array<MemoryModel::StartGate, 3> gates;
  std::array<std::array<Wire, 3>, 3> in, out;
  std::vector<detail::WireWork<Copy>> works;
  MemoryModel model;
  const auto prepare = [&] {
    in = out = {};
    gates = {};
    works.clear();
    for (auto& line : lines) {
      line.sent = line.received = 0;
      line.drained = early;
    }
    for (int r = 0; r < ranks; ++r) {
      sink[size_t(r)].assign(source.size(), 0);
      if (r > 0) in[size_t(r)][size_t(r) - 1] = lines[size_t(r) - 1].wire();
      if (r + 1 < ranks) out[size_t(r)][size_t(r) + 1] = lines[size_t(r)].wire();
      detail::WireWork<Copy> work{Copy{Sum{}, ranks}};
      work.in = in[size_t(r)].data();
      work.out = out[size_t(r)].data();
      work.rank = r;
      work.ranks = ranks;
      work.input = source.data();
      work.output = sink[size_t(r)].data();
      works.push_back(work);
    }
    for (int r = 0; r < ranks; ++r) {
      for (int lane = 0; lane < Width; ++lane) {
        model.add([&, r, lane] {
          Prims prims{Group{gates[size_t(r)], lane},
                      works[size_t(r)],
                      0,
                      {r - 1},
                      {r + 1 < ranks ? r + 1 : -1}};
          for (int s = 0; s < steps; ++s) {
            const Part part{s * count, s * count, count};
            if (r == 0) {
              prims.send(part);
            } else if (r + 1 < ranks) {
              prims.recv_copy_send(part);
            } else {
              prims.recv(part);
            }
          }
        });
      }
    }
  };
  const auto after = [&] {
    for (int r = 1; r < ranks; ++r) {
      for (size_t i = 0; i < source.size(); ++i) {
        if (model.value_of(sink[size_t(r)][i]) != source[i]) throw OrderError{"a wrong word"};
      }
    }
  };
  return model.explore(prepare, after);
}

/// Runs a protocol with an order removed. Returns the defect that the model found, or an empty
/// text.
template <class Proto, int Width, Promises P>
std::string flaw(Word early = 0) {
  try {
    carry<Proto, Width, P>(2, 4, early);
  } catch (const OrderError& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("no execution of a wire of two slots tears a word or brings an old one") {
  long simple = 0, ll = 0, ll128 = 0;
  for (int steps = 1; steps <= 4; ++steps) {
    simple += carry<Simple, 2>(2, steps);
    ll += carry<LL, 1>(2, steps);
    ll128 += carry<LL128, 1>(2, steps);
  }
  for (int steps = 1; steps <= 2; ++steps) {  // each lane looks for itself: many more executions
    ll += carry<LL, 2>(2, steps);
    ll128 += carry<LL128, 2>(2, steps);
  }
  WARN("executions: Simple " << simple << ", LL " << ll << ", LL128 " << ll128);
  CHECK(simple > 10'000);
  CHECK(ll > 5'000);
  CHECK(ll128 > 500);
}

TEST_CASE("nor does one that goes through a rank in the middle") {
  long simple = 0, ll = 0, ll128 = 0;
  for (int steps = 1; steps <= 3; ++steps) {
    if (steps <= 2) simple += carry<Simple, 2>(3, steps);
    if (steps <= 2) ll += carry<LL, 1>(3, steps);
    ll128 += carry<LL128, 1>(3, steps);
  }
  WARN("executions: Simple " << simple << ", LL " << ll << ", LL128 " << ll128);
  CHECK(simple > 600);
  CHECK(ll > 200);
  CHECK(ll128 > 100);
}

TEST_CASE("the model catches an order that is left out") {
  constexpr Promises no_release{.release = false}, no_acquire{.acquire = false};
  constexpr Promises no_credit_release{.credit_release = false};
  constexpr Promises no_credit_acquire{.credit_acquire = false};
  constexpr Promises torn{.whole_words = false};
  CHECK(flaw<Simple, 2, no_release>() != "");
  CHECK(flaw<Simple, 2, no_acquire>() != "");
  CHECK(flaw<Simple, 2, no_credit_release>() != "");
  CHECK(flaw<Simple, 2, no_credit_acquire>() != "");
  CHECK(flaw<LL128, 1, no_release>() != "");
  CHECK(flaw<LL128, 1, no_acquire>() != "");
  CHECK(flaw<LL128, 1, no_credit_release>() != "");
  CHECK(flaw<LL128, 2, no_release>() != "");
  CHECK(flaw<LL, 1, torn>() != "");
  // Slots are filled before they were returned.
  CHECK(flaw<Simple, 2, Promises{}>(1) != "");
  CHECK(flaw<LL, 1, Promises{}>(1) != "");
  CHECK(flaw<LL128, 1, Promises{}>(1) != "");
}
