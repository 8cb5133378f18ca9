// Protocols of a program's own. All bytes of a protocol on the wire pass its lane at both ends, on
// one CPU lane and on several, without a replacement.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/auto.hpp>
#include <ccl/proto/protocol.hpp>

#include <atomic>
#include <tuple>

#include "support/catch.hpp"
#include "support/chosen_transport.hpp"
#include "support/environment.hpp"
#include "support/every_protocol.hpp"
#include "support/thread_lanes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

std::atomic<long> stored{0}, unpacked{0};

/// Sends each word beside its complement: twice the wire, and a damaged word is detected. `Line` is
/// the stated size of its lines, whose words have a flag each.
template <bool Flags, int Line = 8>
struct Doubled {
  static constexpr const char* name = Flags ? "DoubledWithFlags" : "Doubled";
  static constexpr bool carries_flags = Flags;
  static constexpr int line_bytes = Line;
  static constexpr int batch = 2;
  static constexpr Index default_slot_bytes = 64 << 10;

  template <LaneGroup Group, int W = 1>
  class Lane {
    using Memory = typename Group::Memory;
    static constexpr int packets = Flags ? 2 * W : W;

   public:
    static constexpr int words = W, cells = 1, stride = 1;
    static constexpr int tile_cells = Group::width;
    static constexpr int tile_packets = packets * Group::width;
    using Fragment = ccl::Fragment<W>;
    struct Arrival {
      Packet packet[packets];
    };

    explicit Lane(Group group) : rank_{group.rank()} {}
    int cell(int) const { return rank_; }
    bool contains(int) const { return true; }
    void store(Packet* tile, const Fragment& f, Word flag) const {
      ++stored;
      for (int w = 0; w < W; ++w) {
        const Word word = f.word[w], mark = flag << 32, low = 0xffff'ffff;
        if constexpr (Flags) {
          Memory::store_relaxed(at(tile, 2 * w), {mark | (word & low), mark | (~word & low)});
          Memory::store_relaxed(at(tile, 2 * w + 1), {mark | word >> 32, mark | ~word >> 32});
        } else {
          Memory::store_bulk(at(tile, w), {word, ~word});
        }
      }
    }
    Arrival load(const Packet* tile) const {
      Arrival a;
      for (int p = 0; p < packets; ++p) {
        a.packet[p] = Flags ? Memory::load_relaxed(at(tile, p)) : Memory::load_bulk(at(tile, p));
      }
      return a;
    }
    bool has_arrived(const Arrival& a, Word flag) const {
      bool all = true;
      for (const Packet& p : a.packet) {
        for (const Word word : p.word) all = all && (!Flags || word >> 32 == (flag & 0xffff'ffff));
      }
      return all;
    }
    bool agree(bool vote) const { return vote; }
    Fragment unpack(const Arrival& a) const {
      ++unpacked;
      Fragment f;
      for (int w = 0; w < W; ++w) {
        Word word = a.packet[w].word[0], complement = a.packet[w].word[1];
        if constexpr (Flags) {
          word = part(a.packet[2 * w].word[0], a.packet[2 * w + 1].word[0]);
          complement = part(a.packet[2 * w].word[1], a.packet[2 * w + 1].word[1]);
        }
        f.word[w] = word == ~complement ? word : 0;
      }
      return f;
    }

   private:
    template <class P>
    P* at(P* tile, int p) const {
      return tile + p * Group::width + rank_;
    }
    static Word part(Word low, Word high) { return (low & 0xffff'ffff) | high << 32; }
    int rank_;
  };
};
static_assert(Protocol<Doubled<false>, detail::SoloLane> &&
              Protocol<Doubled<true>, detail::SoloLane>);

// One struct per requirement that is a number: a model in all but that.
struct NoBatch : Doubled<true> {
  static constexpr int batch = 0;
};
struct NoLine : Doubled<true> {
  static constexpr int line_bytes = 0;
};
struct HalfALine : Doubled<true> {
  static constexpr Index default_slot_bytes = 192;
};
template <class Lane>
struct AsItIs : Lane {
  using Lane::Lane;
};
template <class Lane>
struct MadeOfNothing : Lane {
  MadeOfNothing();
};
template <class Lane>
struct OneWordTooMany : Lane {
  using Lane::Lane;
  static constexpr int words = Lane::words + 1;
};
template <class Lane>
struct OwnFragment : Lane {
  using Lane::Lane;
  struct Fragment : Lane::Fragment {};
  Fragment unpack(const typename Lane::Arrival&) const;
};
/// Whose lanes are those of `Doubled`, changed.
template <template <class> class Change>
struct OfChange : Doubled<true> {
  template <LaneGroup Group, int W = 1>
  using Lane = Change<Doubled<true>::Lane<Group, W>>;
};
static_assert(!Protocol<NoBatch, detail::SoloLane> && !Protocol<NoLine, detail::SoloLane> &&
              !Protocol<HalfALine, detail::SoloLane>);
static_assert(Protocol<OfChange<AsItIs>, detail::SoloLane>);
static_assert(!Protocol<OfChange<MadeOfNothing>, detail::SoloLane>);
static_assert(!Protocol<OfChange<OneWordTooMany>, detail::SoloLane>);
static_assert(!Protocol<OfChange<OwnFragment>, detail::SoloLane>);

static_assert(!detail::LiesPlainly<Doubled<false>> && detail::LiesPlainly<Simple>);

using Own =
    std::tuple<OnLanes<Doubled<false>, detail::SoloLane>, OnLanes<Doubled<true>, detail::SoloLane>,
               OnLanes<Doubled<false>, detail::ThreadLanes<8>>>;

}  // namespace

TEMPLATE_LIST_TEST_CASE("a protocol of one's own", "[proto]", Own) {
  using Proto = typename TestType::Proto;
  using Group = typename TestType::Group;
  const int ranks = TestType::max_ranks < 4 ? TestType::max_ranks : 4;
  World world{ranks, 2, 4, 1024};
  for (const Index count : {Index{0}, Index{1}, Index{7}, Index{129}, Index{5001}}) {
    stored = unpacked = 0;
    check_all_reduce<Ring, Proto, Group>(world, count, 1, false);
    check_all_reduce<Tree, Proto, Group>(world, count, 2, true);
    check_rooted<Ring, Proto, Group>(world, count, ranks - 1);
    CHECK((stored > 0) == (count > 0));
    CHECK((unpacked > 0) == (count > 0));
  }
}

TEMPLATE_TEST_CASE("CPU ranks carry a protocol's lines of up to 128 bytes", "[proto]",
                   (Doubled<true, 16>), (Doubled<true, 128>)) {
  for (const char* const transport : {"loopback", "shm", "socket"}) {
    INFO(transport);
    const Environment env{"CCL_TRANSPORT", transport};
    Config config;
    config.device = Config::cpu;
    const auto comms = Communicator::create_all(3, config);
    REQUIRE(comms);
    on_all(*comms, [&](const Communicator& comm) -> Result<void> {
      using Chosen = Collective<AllReduce, AutoOf<Candidate<Ring, TestType>>>;
      const std::vector<int> in(1001, comm.rank() + 1);
      const auto sums = [&](const auto& made) -> Result<void> {
        CCL_CHECK(made);
        std::vector<int> out(in.size());
        CCL_CHECK((*made)(in.data(), out.data(), Index(in.size())));
        if (out == std::vector<int>(in.size(), 6)) return {};
        return fail(Errc::internal, "another sum");
      };
      CCL_CHECK(sums(Collective<AllReduce, Ring, TestType>::create(comm)));
      return sums(Chosen::create(comm));
    });
  }
}
