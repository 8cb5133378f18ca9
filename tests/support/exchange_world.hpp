#pragma once

// Ranks as threads that exchange messages over each other's scratch, without a communicator.
#include <ccl/algo/direct.hpp>
#include <ccl/algo/one_shot.hpp>
#include <ccl/detail/exchange/body.hpp>
#include <ccl/detail/exchange/direct.hpp>
#include <ccl/detail/exchange/packet.hpp>
#include <ccl/detail/exec/host_executor.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace ccl::test {

/// bytes[from][to] of one launch of every rank.
using Sizes = std::vector<std::vector<Index>>;

class ExchangeWorld {
 public:
  static constexpr int max_channels = 6;
  bool one_peer = false;  // as where each rank sends to one other
  bool in_turns = false;  // messages to several peers take turns
  bool mappable = true;   // buffers have places that peers can map

  ExchangeWorld(int ranks, Index half_packets) : ranks_{ranks}, half_packets_{half_packets} {
    const std::size_t bytes = std::size_t(2 * half_packets) * sizeof(Packet) +
                              detail::PeerExchangeWork::max_ranks * sizeof(detail::Mailbox);
    for (int r = 0; r < ranks; ++r) {
      scratch_.push_back(aligned(bytes));
      states_.emplace_back(max_channels * detail::PeerExchangeWork::state_words, 0);
      tables_.emplace_back(std::size_t(ranks) * detail::RemoteBuffer::slots, 0);
    }
  }

  /// Launches with buffers of their own, `offset` bytes from an aligned address. `mapped(from,
  /// to)`: whether `from` has mapped the buffer of `to`. True if every message arrived, and nothing
  /// else.
  template <class Body, class Group, class Mapped>
  bool run(const Sizes& sizes, int offset, Mapped mapped, const std::vector<int>& channels) {
    ++launches_;
    std::vector<std::vector<Memory>> out(ranks_), in(ranks_);
    std::mt19937 random{launches_};
    for (int r = 0; r < ranks_; ++r) {
      for (int p = 0; p < ranks_; ++p) {
        out[r].push_back(aligned(std::size_t(sizes[r][p] + offset + 1)));
        in[r].push_back(aligned(std::size_t(sizes[p][r] + offset + 1)));
        for (Index i = 0; i < sizes[r][p]; ++i) out[r][p][offset + i] = char(random());
        std::memset(in[r][p].get(), 0x5a, std::size_t(sizes[p][r] + offset + 1));
      }
    }
    std::vector<std::thread> threads;
    std::vector<char> ok(ranks_, 0);
    for (int r = 0; r < ranks_; ++r) {
      if (channels[r] == 0) {
        ok[r] = 1;
        continue;
      }
      threads.emplace_back([&, r] {
        detail::LaneFailure lane_failure;
        const Word stop = 0;
        detail::PeerExchangeWork work;
        for (int p = 0; p < ranks_; ++p) {
          work.peers.scratch[p] = reinterpret_cast<Packet*>(scratch_[p].get());
          work.out[p] = {out[r][p].get() + offset, sizes[r][p]};
          work.in[p] = {in[r][p].get() + offset, sizes[p][r]};
          if (mappable) work.where[p] = detail::RemoteBuffer::where(launches_, Word(offset));
          if (p != r && mapped(r, p)) {
            const Word where = detail::RemoteBuffer::where(launches_, 0);
            tables_[r][std::size_t(p * detail::RemoteBuffer::slots +
                                   detail::RemoteBuffer::slot(where))] =
                detail::RemoteBuffer::entry(launches_, reinterpret_cast<Word>(in[p][r].get()));
          }
        }
        work.peers.half_packets = half_packets_;
        work.peers.rank = r;
        work.peers.ranks = ranks_;
        work.table = tables_[r].data();
        work.state = {states_[r].data(), max_channels};
        work.channels = work.blocks = channels[r];
        work.in_turns = in_turns;
        work.rings = detail::Rings::limit(ranks_, one_peer, in_turns ? 32 : 128, in_turns);
        work.rings.long_bytes = 10'000;
        work.watch = {&stop, &lane_failure, Word{60} * 1'000'000'000};
        Body::template prepare<Group>(work);
        detail::HostExecutor::run<Group>(channels[r], Body{work});
        ok[r] = lane_failure.peer == 0;
      });
    }
    for (auto& t : threads) t.join();
    bool right = std::all_of(ok.begin(), ok.end(), [](char o) { return o != 0; });
    for (int r = 0; r < ranks_; ++r) {
      for (int p = 0; p < ranks_; ++p) {
        const char* const got = in[r][p].get();
        for (int i = 0; i < offset; ++i) right &= got[i] == 0x5a;
        right &= std::memcmp(got + offset, out[p][r].get() + offset, std::size_t(sizes[p][r])) == 0;
        right &= got[offset + sizes[p][r]] == 0x5a;
      }
    }
    return right;
  }

 private:
  struct Free {
    void operator()(char* p) const { ::operator delete[](p, std::align_val_t{256}); }
  };
  using Memory = std::unique_ptr<char[], Free>;
  static Memory aligned(std::size_t bytes) {
    Memory m{new (std::align_val_t{256}) char[bytes]};
    std::memset(m.get(), 0, bytes);
    return m;
  }
  int ranks_;
  Index half_packets_;
  unsigned launches_ = 0;
  std::vector<Memory> scratch_;
  std::vector<std::vector<Word>> states_, tables_;
};

/// Messages of one launch: some pairs have none, each other one a size of its own.
inline Sizes random_sizes(int ranks, std::mt19937& random, Index most) {
  Sizes sizes(ranks, std::vector<Index>(ranks));
  for (auto& row : sizes) {
    for (Index& n : row) n = random() % 4 == 0 ? 0 : Index(random() % unsigned(most));
  }
  return sizes;
}

}  // namespace ccl::test
