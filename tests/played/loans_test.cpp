// Processes that each see one GPU of a host (CUDA_VISIBLE_DEVICES), where the way to the NIC leads
// over a GPU of another process: they have memory there on loan.
#define CCL_PLAYED_WARP 2  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/collective.cuh>
#include <ccl/proto/ll128.hpp>
#include <ccl/transport/socket.hpp>

#include <fmt/ranges.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "comm/edges/loan_message.hpp"
#include "gpu/devices.hpp"
#include "gpu/memory.hpp"
#include "support/driver.hpp"
#include "support/error_matchers.hpp"
#include "support/id_between.hpp"
#include "support/played/calls.hpp"
#include "support/room/room.hpp"
#include "support/room/traffic.hpp"
#include "topo/graph/p2p_path.hpp"

using namespace ccl;
using namespace ccl::test;
using room::small;

namespace {

constexpr int hosts = 2, per_host = 2, ranks = hosts * per_host;

/// 2 GPUs, of which the second has the only NIC at its switch.
room::Shape one_nic() {
  room::Shape shape{"one-nic", per_host, 1, 90, 18, 400000, room::intel, "32.0 GT/s PCIe", {}};
  shape.switches = {{0, {0}, {}}, {1, {1}, {0}}};
  return shape;
}

/// RDMA within a process, since the devices of these tests copy within one.
struct NearIb : IbTransport {
  static constexpr const char* name = "near_ib";
  static Result<void> can_connect(const PeerInfo& from, const PeerInfo& to) {
    if (from.rank % per_host == to.rank % per_host) return IbTransport::can_connect(from, to);
    return fail(Errc::no_transport, "they are two processes");
  }
};
using Ways = AnyOf<P2pTransport, NearIb, SocketTransport>;

/// A process with GPU `number` of each host, and no other: what leaves by a NIC does not leave this
/// process.
struct Process {
  Process(int process, int to_other)
      : number{process}, fd{to_other}, room{one_nic(), hosts}, id{id_between(process, to_other)} {
    ::unsetenv("CCL_NET");  // the other process is reached by TCP
    FakeGpus& all = fake::gpus();
    all.seen = {number, per_host + number};
    all.exports = all.dma_bufs = true;
    all.imports = 0;
  }

  void create() {
    comms = played::create_some(id, {number, per_host + number}, ranks,
                                [](int rank) { return rank / per_host; });
  }
  bool sees_nics() const { return number == 1; }
  /// Waits for the other process.
  std::string join() const {
    char here = 1, there = 0;
    return swap_bytes(fd, &here, &there, 1) ? "" : "no other process";
  }
  std::string each(const std::function<std::string(const played::Rank&)>& f) {
    for (const auto& problem : played::problems_on(comms, f)) {
      if (!problem.empty()) return problem;
    }
    return {};
  }
  const detail::CommState& state(int n) const {
    return *detail::Access::state(*comms[std::size_t(n)]);
  }

  /// GPUs from whose memory this process has sent by the NIC of a host; -1: memory of the host.
  std::set<int> sources(int host) {
    std::set<int> found;
    for (const void* const from : room.verbs().sources(host)) {
      const std::lock_guard lock{fake::gpus().mutex};
      const FakeGpus::Region* const region = fake::gpus().region(from);
      found.insert(region == nullptr ? -1 : region->device);
    }
    return found;
  }
  /// Sends by the NICs, from memory of GPU `gpu` of each host; -1: memory of the host.
  std::string send(int gpu) {
    return each([&](const played::Rank& rank) -> std::string {
      const auto made = Collective<SendRecv, Pairwise, Simple, Ways>::create(rank.comm, small(1));
      if (!made) return made.error().message();
      if (auto wrong = played::send_recv(rank, *made, 4096, 3, per_host); !wrong.empty()) {
        return wrong;
      }
      const int host = rank.rank / per_host;
      const std::set<int> found = sources(host), wanted{gpu < 0 ? -1 : host * per_host + gpu};
      if (found == wanted) return {};
      return fmt::format("rank {} sends from memory of {}", rank.rank, fmt::join(found, ", "));
    });
  }

  const int number, fd;
  room::Room room;
  const UniqueId id;
  played::Ranks comms;
};

/// Runs `body` in two children. Returns what went wrong.
std::string in_two_processes(const std::function<std::string(Process&)>& body) {
  const auto play = [&](int number, int fd) {
    Process process{number, fd};
    std::string wrong = body(process);
    (void)process.join();  // who leaves too early is missed by the other
    return wrong;
  };
  const auto both = [&](int) {
    return with_child([&](int fd) { return play(1, fd); },
                      [&](int fd, pid_t) { return play(0, fd); });
  };
  // This process gets no threads, so that it may fork again.
  return with_child(both, [](int, pid_t) { return std::string{}; });
}

/// Memory on the GPU of rank 1, which process 0 does not see, for its rank 0.
Result<std::shared_ptr<detail::GpuMemory>> borrow(const Process& process, std::size_t bytes) {
  return detail::GpuMemory::allocate_on(process.comms[0]->peer(1).bus_id,
                                        process.state(0).device.gpu, bytes);
}

}  // namespace

TEST_CASE("a process sends over a GPU that it does not see, next to the NIC") {
  const auto body = [](Process& process) -> std::string {
    process.create();
    // Process 1 has the GPUs next to the NICs.
    if (auto wrong = process.send(1); !wrong.empty()) return wrong;
    for (int n = 0; n < hosts; ++n) {
      const bool lends = process.state(n).gpu_lender != nullptr;
      if (lends != process.sees_nics()) return lends ? "a needless lender" : "no lender";
    }
    return process.each([](const played::Rank& rank) -> std::string {
      const auto made = Collective<AllReduce, Tree, Simple, Ways>::create(rank.comm, small(2));
      return made ? played::all_reduce(rank, *made, 3000, 2) : made.error().message();
    });
  };
  CHECK(in_two_processes(body) == "");
}

TEST_CASE("NVLink between GPUs of two processes, which see their own only, carries LL128") {
  const auto body = [](Process& process) -> std::string {
    process.create();
    for (int first = 0; first < ranks; first += per_host) {
      const PeerInfo &a = process.comms[0]->peer(first), &b = process.comms[0]->peer(first + 1);
      if (detail::gpu_path(a, b) != topo::PathType::nvl) return "no NVLink";
      if (P2pTransport::edge_transport(a, b).line_bytes != 128) return "no whole lines";
    }
    return process.each([](const played::Rank& rank) -> std::string {
      const auto made = Collective<AllReduce, Tree, LL128, Ways>::create(rank.comm, small(2));
      return made ? played::all_reduce(rank, *made, 3000, 2) : made.error().message();
    });
  };
  CHECK(in_two_processes(body) == "");
}

TEST_CASE("without a DMA-BUF of the lender, what a process sends is staged in memory of the host") {
  const auto body = [](Process& process) -> std::string {
    fake::gpus().dma_bufs = false;
    process.create();
    return process.send(-1);
  };
  CHECK(in_two_processes(body) == "");
}

TEST_CASE("where GPU memory cannot be given to another process, no path leads over its GPU") {
  const auto body = [](Process& process) -> std::string {
    ::setenv("CCL_P2P_CHECK", "1", 1);  // P2P does without these GPUs, too
    fake::gpus().exports = !process.sees_nics();
    process.create();
    for (int n = 0; n < hosts; ++n) {
      if (process.state(n).gpu_lender != nullptr) return "a lender";
      for (const topo::HostNic& nic : process.state(n).identity.nics()) {
        if (nic.relay >= 0) return "a relay";
      }
    }
    return process.send(process.sees_nics() ? 1 : -1);
  };
  CHECK(in_two_processes(body) == "");
}

TEST_CASE("a loan is zeroed memory of the lender's GPU, which other processes may map") {
  const auto body = [](Process& process) -> std::string {
    process.create();
    if (auto wrong = process.join(); !wrong.empty() || process.sees_nics()) return wrong;
    const int before = fake::gpus().imports;
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{3} << 20}) {
      const auto memory = borrow(process, bytes);
      if (!memory) return memory.error().message();
      const detail::GpuMemory& loan = **memory;
      if (loan.name().bytes < bytes || loan.name().handles != 1) return "another name";
      if (loan.can_rest()) return "it may rest";
      for (std::size_t n = 0; n < bytes; ++n) {
        if (loan.base()[n] != std::byte{0}) return "not zeroed";
      }
      const auto pages = loan.share(), dma_buf = loan.dma_buf();
      if (!pages || !dma_buf) return "no descriptors";
      if (fake::device_of(pages->get()) != 1 || fake::device_of(dma_buf->get()) != 1) {
        return "of another GPU";
      }
    }
    return fake::gpus().imports == before + 2 ? "" : "not imported";
  };
  CHECK(in_two_processes(body) == "");
}

TEST_CASE("a rank that lends nothing says why, and what works without it") {
  const auto body = [](Process& process) -> std::string {
    process.create();
    struct Case {
      void (*change)(FakeGpus&);
      Errc code;
      const char* why;
    };
    const Case cases[] = {
        {[](FakeGpus& all) { all.exports = false; }, Errc::cuda, "cannot share memory"},
        {[](FakeGpus& all) { all.exports = true, all.full = 1; }, Errc::out_of_memory,
         "on device 1"},
    };
    for (const auto& [change, code, why] : cases) {
      if (process.sees_nics()) change(fake::gpus());
      if (auto wrong = process.join(); !wrong.empty()) return wrong;
      if (!process.sees_nics()) {
        const auto memory = borrow(process, 4096);
        if (memory) return "a loan";
        const Error& error = memory.error();
        const std::string what =
            fmt::format("rank 1 lends no 4096 bytes of GPU {}, which this process does not see (",
                        detail::bus_id_text(process.comms[0]->peer(1).bus_id));
        if (error.code != code || error.rank != 0 || error.peer != 1) return error.message();
        if (!mentions(error.what, what.c_str()) || !mentions(error.what, why) ||
            !mentions(error.what, "CUDA_VISIBLE_DEVICES")) {
          return error.message();
        }
      }
      if (auto wrong = process.join(); !wrong.empty()) return wrong;
    }
    if (process.sees_nics()) return {};
    const auto nowhere = detail::GpuMemory::allocate_on(0x99000, process.state(0).device.gpu, 1);
    if (nowhere || nowhere.error().code != Errc::not_supported) return "memory of no rank's GPU";
    return mentions(nowhere.error().what, "none of this host is on it") ? "" : nowhere.error().what;
  };
  CHECK(in_two_processes(body) == "");
}

TEST_CASE("a rank that does not answer a request for memory is named when the limit has passed") {
  const auto body = [](Process& process) -> std::string {
    process.create();
    if (!process.sees_nics()) return {};
    detail::CommState& state = *detail::Access::state(*process.comms[0]);
    state.limits.init_timeout_s = 0.5;
    // Rank 0 lends nothing, as no way leads over its GPU.
    const auto memory =
        detail::GpuMemory::allocate_on(process.comms[0]->peer(0).bus_id, state.device.gpu, 4096);
    if (memory) return "a loan";
    const Error& error = memory.error();
    return error.code == Errc::timed_out && error.peer == 0 ? "" : error.message();
  };
  CHECK(in_two_processes(body) == "");
}

TEST_CASE("a request for memory that does not fit fails all ranks by name") {
  const auto fails_all = [](Process& process, int sender, const detail::LoanRequest& request,
                            const char* why) -> std::string {
    process.create();
    if (auto wrong = process.join(); !wrong.empty()) return wrong;
    for (int n = 0; n < hosts; ++n) {
      const Communicator& comm = *process.comms[std::size_t(n)];
      auto& bootstrap = *process.state(n).rendezvous.bootstrap();
      if (comm.rank() == sender) {
        if (auto sent = bootstrap.send(1, detail::loan_tag, &request, sizeof request); !sent) {
          return sent.error().message();
        }
      }
    }
    for (int n = 0; n < hosts; ++n) {
      const Communicator& comm = *process.comms[std::size_t(n)];
      if (!test::wait_until([&] { return !comm.status().has_value(); }, 60)) return "no failure";
      const Error error = comm.status().error();
      const std::string name = fmt::format("rank {}", sender);
      if (error.code != Errc::mismatch || !mentions(error.what, name.c_str()) ||
          !mentions(error.what, why)) {
        return error.message();
      }
    }
    return {};
  };
  CHECK(in_two_processes([=](Process& process) {
          return fails_all(process, 0, {1, 0}, "number of bytes is 0");
        }) == "");
  CHECK(in_two_processes([=](Process& process) {
          return fails_all(process, 2, {1, 4096}, "a rank of another host asks");
        }) == "");
}
