#include <ccl/algo/pairwise.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>

#include <algorithm>
#include <random>
#include <tuple>

#include "support/brief.hpp"
#include "support/catch.hpp"
#include "support/thread_lanes.hpp"
#include "support/world.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
template <class P, class G>
struct Case {
  using Proto = P;
  using Group = G;
};
using Cases = std::tuple<Case<LL, detail::SoloLane>, Case<LL128, detail::SoloLane>,
                         Case<Simple, detail::SoloLane>, Case<LL128, detail::ThreadLanes<8>>,
                         Case<Simple, detail::ThreadLanes<2>>>;
}  // namespace

TEMPLATE_LIST_TEST_CASE("pairwise: messages of any size, several between two ranks, in any order",
                        "", Cases) {
  const int ranks = TestType::Group::width > 1 ? 3 : 5;
  World world{ranks, 3, 4, 512};
  const int servers = GENERATE(1, 3, 99);  // of a channel's peers; 99: more than there are turns
  // Messages between two ranks, at most. 40: more than fit into a launch.
  const unsigned most = TestType::Group::width > 1 || servers != 3 ? 4 : GENERATE(4, 40);
  std::mt19937 random{7};
  constexpr int first = brief ? 2 : 0, rounds = brief ? 2 : 6;
  for (int round = first; round < first + rounds; ++round) {
    // sizes[from][to]: the messages between two ranks
    std::vector<std::vector<std::vector<Index>>> sizes(ranks,
                                                       std::vector<std::vector<Index>>(ranks));
    for (int from = 0; from < ranks; ++from) {
      for (int to = 0; to < ranks; ++to) {
        // Each rank has another largest message from the fourth round on.
        const int limit = round >= 3 ? 400 * (1 + from * to) : round % 2 == 0 ? 300 : 5000;
        for (auto n = random() % most; n > 0; --n) {
          sizes[from][to].push_back(Index(random() % limit));
        }
      }
    }
    std::vector<std::vector<std::vector<char>>> sent(ranks), got(ranks);
    struct Table {
      std::vector<detail::Message> messages[2];
      std::vector<int> begin[2];
    };
    std::vector<Table> tables(ranks);
    for (int r = 0; r < ranks; ++r) {
      for (int side = 0; side < 2; ++side) {
        auto& buffers = side == 0 ? sent[r] : got[r];
        std::vector<Index> lengths;
        for (int p = 0; p < ranks; ++p) {
          tables[r].begin[side].push_back(int(lengths.size()));
          const auto& list = side == 0 ? sizes[r][p] : sizes[p][r];
          lengths.insert(lengths.end(), list.begin(), list.end());
        }
        tables[r].begin[side].push_back(int(lengths.size()));
        for (const Index n : lengths) {
          buffers.emplace_back(n);
          if (side == 0) {
            for (char& c : buffers.back()) c = char(random());
          }
        }
        for (auto& b : buffers) tables[r].messages[side].push_back({b.data(), Index(b.size())});
      }
    }
    REQUIRE(world.run<SendRecv, Pairwise, typename TestType::Proto, typename TestType::Group>(
        detail::Bytes{}, 1, 1, 0, [&](int r, auto& w) {
          w.sends.message = tables[r].messages[0].data();
          w.sends.begin = tables[r].begin[0].data();
          w.recvs.message = tables[r].messages[1].data();
          w.recvs.begin = tables[r].begin[1].data();
          w.servers = std::min(servers, 2 * ranks);
          if (round < 3) return;
          // A rank has as many channels as its own largest message needs, as on a GPU.
          w.channel_bytes = 1000;
          Index most = 0;
          for (const auto& messages : tables[r].messages) {
            for (const detail::Message& m : messages) most = std::max(most, m.bytes);
          }
          w.channels = int(std::clamp<Index>(div_up(most, w.channel_bytes), 1, w.channels));
        }));
    if (most > 4) REQUIRE(world.launches(0) >= 2 * (round - first + 1));
    for (int to = 0; to < ranks; ++to) {
      for (int from = 0; from < ranks; ++from) {
        for (size_t k = 0; k < sizes[from][to].size(); ++k) {
          REQUIRE(got[to][tables[to].begin[1][from] + k] ==
                  sent[from][tables[from].begin[0][to] + k]);
        }
      }
    }
  }
}
