// Parts that ranks gather: descriptions, results, calls, GPUs and shares of machines, and offers.
// Messages about idle connections and about GPU memory on loan, too, and the parts of NCCL's
// communicators.
#include "comm/edges/edge_handshake.hpp"
#include "comm/edges/loan_message.hpp"
#include "comm/edges/woken_memory.hpp"
#include "comm/part_rules.hpp"
#include "connect/idle_message.hpp"
#include "fuzz/fuzz.hpp"
#include "nccl/abi/part_rules.hpp"
#include "topo/search/place_ranks.hpp"

namespace ccl::fuzz {

using namespace detail;

namespace {
constexpr int ranks = 4;

void read_shares(Source& source) {
  std::vector<topo::MachineShare> all(ranks);
  for (auto& share : all) {
    share = source.take<topo::MachineShare>();
    if (!topo::wrong_share(share, ranks).empty() || share.machine < 0) return;
  }
  std::string wrong;
  const auto made = topo::Arrangement::of(topo::machines_of(all, wrong), ranks);
  if (!made) return;
  for (int rank = 0; rank < ranks; ++rank) {
    for (int root = -1; root < ranks; ++root) {
      const TreePosition position = made->tree(rank, root, 0);
      demand(position.up < ranks, "a parent that is no rank");
    }
  }
  for (const int rank : made->ring(0)) demand(rank >= 0 && rank < ranks, "no rank in a ring");
}

void read_nccl_parts(Source& source) {
  constexpr int entries = 6;
  switch (source.take<std::uint8_t>() % 5) {
    case 0: {
      const auto answer = source.take<nccl::TunerPart>();
      const bool fits = answer >= -1 && answer < entries;
      demand(nccl::wrong_tuner_answer(answer, entries).empty() == fits, "an answer");
      break;
    }
    case 1: {
      const auto present = source.take<nccl::TunerPart>();
      demand(nccl::wrong_tuner_presence(present).empty() == (present == 0 || present == 1),
             "a presence");
      break;
    }
    case 2: {
      const auto part = source.take<nccl::GrowPart>();
      if (!nccl::wrong_grow_part(part, ranks).empty()) break;
      demand(part.ranks > ranks, "fewer ranks");
      (void)part.id.to_string();
      break;
    }
    case 3:
      (void)nccl::wrong_settings_part(source.take<nccl::SettingsPart>());
      break;
    default:
      (void)nccl::wrong_fallback_part(source.take<nccl::FallbackPart>());
  }
}
}  // namespace

void prepare() {}
void read(Input input) {
  Source source{input};
  switch (source.take<std::uint8_t>() % 11) {
    case 0: {
      std::byte bytes[sizeof(PeerInfo)];
      const auto copy = source.take_bytes(sizeof bytes);
      PeerInfo info;
      std::memcpy(bytes, &info, sizeof info);
      if (!copy.empty()) std::memcpy(bytes, copy.data(), copy.size());
      std::memcpy(static_cast<void*>(&info), bytes, sizeof info);
      info.way = {};
      (void)wrong_peer_info(info, 2);
      break;
    }
    case 1:
      (void)wrong_rank_result(source.take<RankResult>());
      break;
    case 2:
      (void)wrong_call(source.take<CallInfo>(), ranks);
      break;
    case 3:
      (void)topo::wrong_report(source.take<topo::GpuReport>());
      break;
    case 4:
      read_shares(source);
      break;
    case 5: {
      std::string why;
      const auto message = read_idle_message(source.rest(), 2, 1, why);
      demand(message.has_value() == why.empty(), "a reason for each refusal");
      break;
    }
    case 6: {
      std::string why;
      const auto request = read_loan_request(source.rest(), why);
      demand(request.has_value() == why.empty(), "a reason for each refusal");
      break;
    }
    case 7: {
      std::string why;
      const auto answer = read_loan_answer(source.rest(), 4096, why);
      demand(answer.has_value() == why.empty(), "a reason for each refusal");
      if (answer && answer->result.code == 0) demand(answer->bytes >= 4096, "too few bytes");
      break;
    }
    case 9: {
      std::string why;
      const auto all = read_array<WokenMemory>(source.rest(), why);
      demand(all.has_value() == why.empty(), "a reason for each refusal");
      for (std::size_t n = 0; all && n < all->size(); ++n) (void)wrong_woken_memory((*all)[n]);
      break;
    }
    case 8:
      read_nccl_parts(source);
      break;
    default: {
      Offer offer;
      if (read_offer(offer, source.rest()).empty()) {
        (void)check_same_transport(offer, 2, "shm", 1);
      }
    }
  }
}

std::vector<std::string> seeds() {
  const std::string info{'\0'}, result{'\1'}, call{'\2'}, report{'\3'}, shares{'\4'}, idle{'\5'},
      request{'\6'}, answer{'\7'}, of_nccl{'\10'}, woken{'\11'}, offer{'\12'};
  PeerInfo peer;
  peer.rank = 2;
  const topo::Arrangement order = topo::Arrangement::in_order(ranks);
  topo::MachineShare share;
  share.machine = 0;
  share.ring_count = share.tree_count = 1;
  share.tree_pattern = int(topo::Pattern::tree);
  std::string all;
  for (int r = 0; r < ranks; ++r) {
    share.ring[0] = share.tree[0] = order.ring(0)[std::size_t(r)];
    all += bytes_of(share);
  }
  return {info + bytes_of(peer),
          result + bytes_of(result_of({})),
          call + bytes_of(CallInfo{}),
          report + bytes_of(topo::GpuReport{}),
          shares + all,
          idle + bytes_of(IdleMessage{IdleMessage::Kind::closed, 3, 1, IdleMessage::up, 0, 0}),
          request + bytes_of(LoanRequest{1, 4096}),
          answer + bytes_of(LoanAnswer{}),
          of_nccl + '\0' + bytes_of(nccl::TunerPart{5}),
          of_nccl + '\1' + bytes_of(nccl::TunerPart{1}),
          of_nccl + '\2' + bytes_of(nccl::GrowPart{ranks + 1, 1, {}}),
          of_nccl + '\3' + bytes_of(nccl::SettingsPart{2, 1, 1}),
          of_nccl + '\4' + bytes_of(nccl::FallbackPart{22903, {}}),
          woken + bytes_of(WokenMemory{}, WokenMemory{}),
          offer + bytes_of(Offer{{}, "shm"})};
}

}  // namespace ccl::fuzz
