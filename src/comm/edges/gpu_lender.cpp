#include "comm/edges/gpu_lender.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/exceptions.hpp"
#include "base/random.hpp"
#include "base/thread.hpp"
#include "comm/edges/edge_handshake.hpp"
#include "comm/edges/loan_message.hpp"
#include "comm/edges/memory_exchange.hpp"
#include "comm/rank_results.hpp"
#include "comm/state.hpp"
#include "gpu/devices.hpp"
#include "gpu/memory.hpp"

namespace ccl::detail {

namespace {
constexpr int edge_number = 0;                    // proofs have nonces of their own
constexpr unsigned of_pages = 0, of_dma_buf = 1;  // descriptors of a loan
constexpr const char* transport = "loan of GPU memory";
constexpr std::ptrdiff_t max_waiting = 4;  // requests of one rank

/// The rank of this host on the GPU with this bus id, which runs in another process.
std::optional<int> lender_of(const CommState& state, std::int64_t bus_id) {
  const auto& peers = state.identity.peers();
  const PeerInfo& me = peers[std::size_t(state.identity.rank())];
  const auto found = std::find_if(peers.begin(), peers.end(), [&](const PeerInfo& peer) {
    return peer.device >= 0 && peer.bus_id == bus_id && peer.host_hash == me.host_hash &&
           peer.memory_domain == me.memory_domain && peer.pid_hash != me.pid_hash;
  });
  if (found == peers.end()) return {};
  return found->rank;
}

/// Gets memory of another rank's GPU. `number`: of this request.
Result<GpuLoan> take_loan(CommState& state, std::uint64_t number, std::int64_t bus_id,
                          std::size_t bytes) {
  const auto refuse = [&](int peer, const Error& error) {
    Error said = error;
    said.peer = peer;
    return fail(state.annotate(std::move(said)));
  };
  const auto from = lender_of(state, bus_id);
  if (!from) {
    return refuse(-1, {Errc::not_supported,
                       fmt::format("no rank lends {} bytes of GPU {}, which this process does not "
                                   "see (none of this host is on it); name it in "
                                   "CUDA_VISIBLE_DEVICES",
                                   bytes, bus_id_text(bus_id))});
  }
  const LoanRequest request{number, bytes};
  Bootstrap* const bootstrap = state.rendezvous.bootstrap();
  CCL_CHECK(bootstrap->send(*from, loan_tag, &request, Index{sizeof request}));
  CCL_TRY(const auto text, bootstrap->recv(*from, loan_tag + number, state.limits.init_timeout_s,
                                           "CCL_INIT_TIMEOUT"));
  std::string why;
  const auto answer = read_loan_answer(text, bytes, why);
  if (!answer) {
    const auto broken = state.rendezvous.break_off(*from, why);
    return fail(broken.error());
  }
  if (answer->result.code != 0) {
    return refuse(*from, {Errc(answer->result.code),
                          fmt::format("rank {} lends no {} bytes of GPU {}, which this process "
                                      "does not see ({}); CUDA_VISIBLE_DEVICES with both GPUs "
                                      "needs no loan, nor do CCL_PXN_DISABLE=1 and "
                                      "CCL_NVB_DISABLE=1",
                                      *from, bytes, bus_id_text(bus_id), answer->result.what)});
  }
  const TransportContext context = transport_context(state, nullptr);
  const Edge edge = even_edge(state, edge_number, *from);
  const auto fetch = [&](unsigned which) {
    return fetch_fd(context, edge, transport, answer->at,
                    proof_of(context, answer->nonce, edge.id, which));
  };
  GpuLoan loan;
  loan.bytes = answer->bytes;
  loan.no_dma_buf = answer->no_dma_buf;
  CCL_TRY(loan.pages, fetch(of_pages));
  if (answer->dma_buf != 0) {
    CCL_TRY(loan.dma_buf, fetch(of_dma_buf));
  }
  log_info(LogPart::net, "rank {} lends {} bytes of GPU {}, which this process does not see", *from,
           loan.bytes, bus_id_text(bus_id));
  return loan;
}

}  // namespace

Result<void> GpuLender::start(CommState& state) {
  if (state.gpu_lender) return {};
  auto made = std::make_shared<GpuLender>(state);
  GpuLender* const at = made.get();
  CCL_TRY(made->thread_, own_thread("loans of GPU memory", [at] { at->serve(); }));
  // The communicator ends the lender, and with it the listener, before the bootstrap.
  state.rendezvous.bootstrap()->set_message_listener(
      loan_tag, [at](int peer, std::span<const std::byte> text) { at->add(peer, text); });
  state.gpu_lender = std::move(made);
  return {};
}

void GpuLender::add(int peer, std::span<const std::byte> text) {
  // A rank asks for its next loan after it has the last one. Requests far beyond that are dropped,
  // so that they take no memory; of a longer text as much is kept as tells that it is none.
  text = text.first(std::min(text.size(), sizeof(LoanRequest) + 1));
  const std::lock_guard lock{mutex_};
  const auto from = [&](const Message& message) { return message.first == peer; };
  if (std::count_if(messages_.begin(), messages_.end(), from) >= max_waiting) return;
  messages_.emplace_back(peer, std::vector<std::byte>(text.begin(), text.end()));
  changed_.notify_one();
}

GpuLender::~GpuLender() {
  if (!thread_.joinable()) return;
  state_.rendezvous.bootstrap()->set_message_listener(loan_tag, {});
  {
    const std::lock_guard lock{mutex_};
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void GpuLender::serve() noexcept {
  const LogRank named{state_.identity.rank()};
  const auto served = completion_of([this] { serve_until_stopped(); });
  if (!served) state_.status.set(served.error());  // ranks that wait for an answer end by it
}

void GpuLender::serve_until_stopped() {
  std::unique_lock lock{mutex_};
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !messages_.empty(); });
    if (stop_) return;
    const Message message = std::move(messages_.front());
    messages_.pop_front();
    lock.unlock();
    take(message);
    lock.lock();
  }
}

void GpuLender::take(const Message& message) {
  const auto& [peer, text] = message;
  std::string why;
  const auto request = read_loan_request(text, why);
  const auto& peers = state_.identity.peers();
  const auto host = [&](int rank) { return peers[std::size_t(rank)].host_hash; };
  if (request && host(peer) != host(state_.identity.rank())) {
    why = "a rank of another host asks for GPU memory on loan";
  }
  if (!why.empty()) {
    (void)state_.rendezvous.break_off(peer, why);
    return;
  }
  LoanAnswer answer;
  answer.result = result_of(without_exceptions([&] { return lend(peer, request->bytes, answer); }));
  if (answer.result.code != 0) offers_.erase(peer);
  // If it fails, the communicator has failed or ends: the other rank sees that.
  (void)state_.rendezvous.bootstrap()->send(peer, loan_tag + request->number, &answer,
                                            Index{sizeof answer});
}

Result<void> GpuLender::lend(int peer, Word bytes, LoanAnswer& answer) {
  CCL_TRY(const auto memory, GpuMemory::allocate(state_.device.gpu, bytes));
  if (memory->name().handles == 0) {
    return fail(Errc::not_supported, "its GPU memory has no cuMem handle; set CCL_CUMEM_ENABLE=1");
  }
  CCL_TRY(Fd pages, memory->share());
  answer.bytes = memory->name().bytes;
  CCL_TRY(const bool wanted, setting_flag("DMABUF_ENABLE"));
  Result<Fd> dma_buf =
      wanted ? memory->dma_buf() : Result<Fd>{fail(Errc::not_supported, "CCL_DMABUF_ENABLE is 0")};
  if (!dma_buf) dma_buf.error().what.copy(answer.no_dma_buf, sizeof answer.no_dma_buf - 1);
  CCL_CHECK(fill_random(&answer.nonce, sizeof answer.nonce));
  const TransportContext context = transport_context(state_, nullptr);
  const Edge edge = even_edge(state_, edge_number, peer);
  const auto offer = [&](unsigned which, Fd fd) {
    return FdOffer::make(proof_of(context, answer.nonce, edge.id, which), edge.shape,
                         std::move(fd));
  };
  Loan& loan = offers_[peer] = {};  // a rank fetches one loan before it asks for the next
  CCL_TRY(loan.pages, offer(of_pages, std::move(pages)));
  answer.at = loan.pages.name();
  if (dma_buf) {
    CCL_TRY(loan.dma_buf, offer(of_dma_buf, *std::move(dma_buf)));
    answer.dma_buf = 1;
  }
  return {};
}

Result<void> lend_gpus(CommState& state) {
  if (!state.device.gpu || state.rendezvous.bootstrap() == nullptr) return {};
  state.device.gpu->set_loans([&state, last = std::make_shared<std::atomic<std::uint64_t>>(0)](
                                  std::int64_t bus_id, std::size_t bytes) {
    return take_loan(state, ++*last, bus_id, bytes);
  });
  return state.device.lends ? GpuLender::start(state) : Result<void>{};
}

}  // namespace ccl::detail
