// Messages of any size between all ranks, over every protocol, on GPU lanes.
#include <random>

#include "wires.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {
struct Table {
  std::vector<detail::Message> messages[2];
  std::vector<int> begin[2];
};

template <class Op, class Proto, class Group, int Align>
bool exchange(World& world, const std::vector<Table>& tables) {
  std::vector<DeviceArray> device;
  for (int r = 0; r < world.ranks(); ++r) {
    for (int side = 0; side < 2; ++side) {
      device.emplace_back(world.gpu(r),
                          sizeof(detail::Message) * (tables[r].messages[side].size() + 1));
      device.back().put(tables[r].messages[side].data(),
                        sizeof(detail::Message) * tables[r].messages[side].size());
      device.emplace_back(world.gpu(r), sizeof(int) * tables[r].begin[side].size());
      device.back().put(tables[r].begin[side].data(), sizeof(int) * tables[r].begin[side].size());
    }
  }
  return world.run<Op, Pairwise, Proto, Group, Align>(
      detail::Bytes{}, 1, 1, 0, [&](int r, auto& w) {
        w.sends.message = device[4 * r].template as<detail::Message>();
        w.sends.begin = device[4 * r + 1].template as<int>();
        w.recvs.message = device[4 * r + 2].template as<detail::Message>();
        w.recvs.begin = device[4 * r + 3].template as<int>();
      });
}

template <class Proto, class Group>
void run(Tally& tally, int ranks) {
  World world{ranks, 2, 8, 4096, 2};
  std::mt19937 random{7};
  for (int round = 0; round < 8; ++round) {
    const bool all_to_all = round % 4 == 3;
    const bool aligned = round % 2 == 1;
    const Index step = aligned ? 16 : 1;
    // sizes[from][to]: the messages between two ranks
    std::vector<std::vector<std::vector<Index>>> sizes(ranks,
                                                       std::vector<std::vector<Index>>(ranks));
    for (auto& row : sizes) {
      for (auto& list : row) {
        if (all_to_all) list.push_back(50000 + round);
        for (unsigned n = all_to_all ? 0 : random() % 4; n > 0; --n) {
          list.push_back(Index(random() % (round % 4 == 0 ? 300 : 70000)));
        }
      }
    }
    std::vector<Table> tables(ranks);
    std::vector<DeviceArray> memory;
    std::vector<std::vector<char>> sent(ranks);
    std::vector<size_t> recv_bytes;
    for (int r = 0; r < ranks; ++r) {
      for (int side = 0; side < 2; ++side) {
        std::vector<std::pair<Index, Index>> runs;
        Index at = aligned ? 0 : 3;
        for (int p = 0; p < ranks; ++p) {
          tables[r].begin[side].push_back(int(runs.size()));
          for (const Index n : side == 0 ? sizes[r][p] : sizes[p][r]) {
            runs.emplace_back(at, n);
            at = div_up<Index>(at + n + (side == 1 ? 1 : 0), step) * step;
          }
        }
        tables[r].begin[side].push_back(int(runs.size()));
        memory.emplace_back(world.gpu(r), size_t(at + 64));
        if (side == 0) {
          sent[r].resize(size_t(at + 64));
          for (char& c : sent[r]) c = char(random());
          memory.back().put(sent[r].data(), sent[r].size());
        } else {
          MUST(cudaMemset(memory.back().data(), 0x5a, memory.back().bytes()));
        }
        for (const auto& [begin, n] : runs) {
          tables[r].messages[side].push_back({memory.back().data() + begin, n});
        }
      }
    }
    const bool ok = all_to_all ? aligned ? exchange<AllToAll, Proto, Group, 16>(world, tables)
                                         : exchange<AllToAll, Proto, Group, 1>(world, tables)
                    : aligned ? exchange<SendRecv, Proto, Group, 16>(world, tables)
                               : exchange<SendRecv, Proto, Group, 1>(world, tables);
    if (!ok) {
      std::printf("%s: a lane gave up: peer %d, step %d\n", Proto::name,
                  int(world.failed().peer) - 1, int(world.failed().step));
      std::exit(1);
    }
    for (int to = 0; to < ranks; ++to) {
      std::vector<char> want(memory[2 * to + 1].bytes(), 0x5a), got(want.size());
      memory[2 * to + 1].get(got.data(), got.size());
      for (int from = 0; from < ranks; ++from) {
        for (size_t k = 0; k < sizes[from][to].size(); ++k) {
          const detail::Message& in = tables[to].messages[1][tables[to].begin[1][from] + k];
          const detail::Message& out = tables[from].messages[0][tables[from].begin[0][to] + k];
          std::memcpy(&want[in.data - memory[2 * to + 1].data()],
                      &sent[from][out.data - memory[2 * from].data()], size_t(in.bytes));
        }
      }
      tally.check(want == got, "%s round %d rank %d of %d", Proto::name, round, to, ranks);
    }
  }
}
}  // namespace

int main() {
  Tally tally;
  for (const int ranks : {std::max(2, gpus()), 5}) {
    run<LL, detail::WarpLanes>(tally, ranks);
    run<LL128, detail::WarpLanes>(tally, ranks);
    run<Simple, detail::BlockLanes<128>>(tally, ranks);
  }
  return tally.result("Pairwise");
}
