#pragma once

// Calls of collectives on played GPUs, and what they must leave. Include <ccl/collective.cuh>
// first.
#include <fmt/format.h>

#include <atomic>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "comm/state.hpp"
#include "support/played/ranks.hpp"
#include "support/processes.hpp"

namespace ccl::test::played {

/// Element `i` of the input of rank r in call c: whole numbers, whose sums are exact.
inline float element(int rank, int call, Index i) {
  return float((rank + 1) * (1 + i % 7) + call);
}
inline float sum_of_elements(int ranks, int call, Index i) {
  return float(ranks * (ranks + 1) / 2) * float(1 + i % 7) + float(ranks * call);
}

/// Messages of a rank and what comes back, for some calls that are queued one after the other.
struct Buffers {
  std::vector<std::vector<float>> in, out;
  Buffers(int rank, int calls, Index count_in, Index count_out) {
    for (int call = 0; call < calls; ++call) {
      auto& given = in.emplace_back(std::size_t(count_in), 0.f);
      for (Index i = 0; i < count_in; ++i) given[std::size_t(i)] = element(rank, call, i);
      out.emplace_back(std::size_t(count_out), -1.f);
    }
  }
  /// Says what is not `wanted(call, i)`.
  template <class F>
  std::string wrong(F wanted) const {
    for (std::size_t call = 0; call < out.size(); ++call) {
      for (std::size_t i = 0; i < out[call].size(); ++i) {
        const float is = out[call][i], is_wanted = wanted(int(call), Index(i));
        if (is != is_wanted) {
          return fmt::format("element {} of call {} is {} and not {}", i, call, is, is_wanted);
        }
      }
    }
    return {};
  }
};

/// One rank's calls of an all-reduce that exists.
template <class C>
std::string all_reduce(const Rank& rank, const C& collective, Index count, int calls) {
  Buffers buffers{rank.rank, calls, count, count};
  for (int call = 0; call < calls; ++call) {
    auto &in = buffers.in[std::size_t(call)], &out = buffers.out[std::size_t(call)];
    const auto done = collective(in.data(), out.data(), count, Sum{}, rank.stream);
    if (!done) return done.error().message();
  }
  rank.synchronize();
  return buffers.wrong([&](int call, Index i) { return sum_of_elements(rank.ranks, call, i); });
}

template <class Algo, class Proto, class T>
void all_reduces(Ranks& comms, Index count, std::optional<Plan> plan = {}, int calls = 3) {
  INFO(Algo::name << ", " << Proto::name << ", " << comms.size() << " ranks, " << count);
  on_each(comms, [&](const Rank& rank) -> std::string {
    const auto made = Collective<AllReduce, Algo, Proto, T>::create(rank.comm, plan);
    return made ? all_reduce(rank, *made, count, calls) : made.error().message();
  });
}

/// Rank p gets the sum of block p of all messages.
template <class Algo, class Proto, class T>
void reduce_scatters(Ranks& comms, Index count, std::optional<Plan> plan = {}, int calls = 3) {
  INFO(Algo::name << ", " << Proto::name << ", " << comms.size() << " ranks, " << count);
  on_each(comms, [&](const Rank& rank) -> std::string {
    const auto made = Collective<ReduceScatter, Algo, Proto, T>::create(rank.comm, plan);
    if (!made) return made.error().message();
    Buffers buffers{rank.rank, calls, count * rank.ranks, count};
    for (int call = 0; call < calls; ++call) {
      auto &in = buffers.in[std::size_t(call)], &out = buffers.out[std::size_t(call)];
      const auto done = (*made)(in.data(), out.data(), count, Sum{}, rank.stream);
      if (!done) return done.error().message();
    }
    rank.synchronize();
    return buffers.wrong([&](int call, Index i) {
      return sum_of_elements(rank.ranks, call, rank.rank * count + i);
    });
  });
}

/// Rank p gets block p of each rank's message.
template <class Algo, class Proto, class T>
void all_to_alls(Ranks& comms, Index count, std::optional<Plan> plan = {}, int calls = 3) {
  INFO(Algo::name << ", " << Proto::name << ", " << comms.size() << " ranks, " << count);
  on_each(comms, [&](const Rank& rank) -> std::string {
    const auto made = Collective<AllToAll, Algo, Proto, T>::create(rank.comm, plan);
    if (!made) return made.error().message();
    Buffers buffers{rank.rank, calls, count * rank.ranks, count * rank.ranks};
    for (int call = 0; call < calls; ++call) {
      auto &in = buffers.in[std::size_t(call)], &out = buffers.out[std::size_t(call)];
      const auto done = (*made)(in.data(), out.data(), count, rank.stream);
      if (!done) return done.error().message();
    }
    rank.synchronize();
    return buffers.wrong([&](int call, Index i) {
      return element(int(i / count), call, rank.rank * count + i % count);
    });
  });
}

/// All ranks get the messages of all.
template <class Algo, class Proto, class T>
void all_gathers(Ranks& comms, Index count, std::optional<Plan> plan = {}, int calls = 3) {
  INFO(Algo::name << ", " << Proto::name << ", " << comms.size() << " ranks, " << count);
  on_each(comms, [&](const Rank& rank) -> std::string {
    const auto made = Collective<AllGather, Algo, Proto, T>::create(rank.comm, plan);
    if (!made) return made.error().message();
    Buffers buffers{rank.rank, calls, count, count * rank.ranks};
    for (int call = 0; call < calls; ++call) {
      auto &in = buffers.in[std::size_t(call)], &out = buffers.out[std::size_t(call)];
      const auto done = (*made)(in.data(), out.data(), count, rank.stream);
      if (!done) return done.error().message();
    }
    rank.synchronize();
    return buffers.wrong(
        [&](int call, Index i) { return element(int(i / count), call, i % count); });
  });
}

/// Rank p gets p % 3 + 1 elements of each rank's message.
template <class Algo, class Proto, class T>
void all_to_all_vs(Ranks& comms, std::optional<Plan> plan = {}, int calls = 3) {
  INFO(Algo::name << ", " << Proto::name << ", " << comms.size() << " ranks");
  on_each(comms, [&](const Rank& rank) -> std::string {
    const auto made = Collective<AllToAllV, Algo, Proto, T>::create(rank.comm, plan);
    if (!made) return made.error().message();
    const auto ranks = std::size_t(rank.ranks);
    const Index own = rank.rank % 3 + 1;
    std::vector<Index> sent(ranks), sent_at(ranks), got(ranks, own), got_at(ranks);
    Index all = 0;
    for (std::size_t p = 0; p < ranks; ++p) {
      sent[p] = Index(p) % 3 + 1;
      sent_at[p] = std::exchange(all, all + sent[p]);
      got_at[p] = Index(p) * own;
    }
    Buffers buffers{rank.rank, calls, all, own * rank.ranks};
    for (int call = 0; call < calls; ++call) {
      auto &in = buffers.in[std::size_t(call)], &out = buffers.out[std::size_t(call)];
      const auto done = (*made)(in.data(), sent, sent_at, out.data(), got, got_at, rank.stream);
      if (!done) return done.error().message();
    }
    rank.synchronize();
    const Index at = sent_at[std::size_t(rank.rank)];  // in every rank's message
    return buffers.wrong(
        [&](int call, Index i) { return element(int(i / own), call, at + i % own); });
  });
}

/// Rank r has (r + p + call) % 3 rows of `row` elements for rank p. Only memory holds the counts.
template <class Algo, class Proto, class T>
void counted_all_to_alls(Ranks& comms, Index row, std::optional<Plan> plan = {}, int calls = 3) {
  INFO(Algo::name << ", " << Proto::name << ", " << comms.size() << " ranks, rows of " << row);
  constexpr int stride = 3;
  const auto rows_for = [](int from, int to, int call) { return (from + to + call) % stride; };
  on_each(comms, [&](const Rank& rank) -> std::string {
    const auto made = Collective<AllToAllV, Algo, Proto, T>::create(rank.comm, plan);
    if (!made) return made.error().message();
    const auto ranks = std::size_t(rank.ranks);
    const Index all = rank.ranks * stride * row;
    Buffers buffers{rank.rank, calls, all, all};
    const std::vector<int> none(ranks, -1);
    std::vector<std::vector<int>> counts(std::size_t(calls), none), got(std::size_t(calls), none);
    for (int call = 0; call < calls; ++call) {
      for (int p = 0; p < rank.ranks; ++p) {
        counts[std::size_t(call)][std::size_t(p)] = rows_for(rank.rank, p, call);
      }
      CountedRows rows;
      rows.row = row;
      rows.send_counts = counts[std::size_t(call)].data();
      rows.recv_counts = got[std::size_t(call)].data();
      rows.send_stride = rows.recv_stride = stride;
      auto &in = buffers.in[std::size_t(call)], &out = buffers.out[std::size_t(call)];
      const auto done = made->counted(in.data(), out.data(), rows, rank.stream);
      if (!done) return done.error().message();
    }
    rank.synchronize();
    for (int call = 0; call < calls; ++call) {
      for (int p = 0; p < rank.ranks; ++p) {
        const int is = got[std::size_t(call)][std::size_t(p)];
        if (is != rows_for(p, rank.rank, call)) return fmt::format("{} rows from {}", is, p);
      }
    }
    return buffers.wrong([&](int call, Index i) {
      const int p = int(i / (stride * row));
      const Index at = i % (stride * row);
      if (at / row >= rows_for(p, rank.rank, call)) return -1.f;
      return element(p, call, rank.rank * stride * row + at);
    });
  });
}

/// Rooted operations. The buffers of ranks that give or get nothing have no elements.
template <class Op, class Algo, class Proto, class T, class Wanted>
void rooted(Ranks& comms, Index count_in, Index count_out, Index count, int root,
            std::optional<Plan> plan, int calls, Wanted wanted) {
  INFO(Op::name << ", " << Algo::name << ", " << Proto::name << ", " << comms.size() << " ranks");
  on_each(comms, [&](const Rank& rank) -> std::string {
    const auto made = Collective<Op, Algo, Proto, T>::create(rank.comm, plan);
    if (!made) return made.error().message();
    constexpr bool all_get = std::is_same_v<Op, Broadcast> || std::is_same_v<Op, Scatter>;
    const bool gets = all_get || rank.rank == root;
    Buffers buffers{rank.rank, calls, count_in, gets ? count_out : 0};
    for (int call = 0; call < calls; ++call) {
      auto &in = buffers.in[std::size_t(call)], &out = buffers.out[std::size_t(call)];
      float* const to = gets ? out.data() : nullptr;
      const auto done = [&] {
        if constexpr (Op::reduces) {
          return (*made)(in.data(), to, count, Sum{}, root, rank.stream);
        } else {
          return (*made)(in.data(), to, count, root, rank.stream);
        }
      }();
      if (!done) return done.error().message();
    }
    rank.synchronize();
    return buffers.wrong([&](int call, Index i) { return wanted(rank, call, i); });
  });
}
template <class Algo, class Proto, class T>
void broadcasts(Ranks& comms, Index count, int root, std::optional<Plan> plan = {}, int calls = 3) {
  rooted<Broadcast, Algo, Proto, T>(
      comms, count, count, count, root, plan, calls,
      [&](const Rank&, int call, Index i) { return element(root, call, i); });
}
template <class Algo, class Proto, class T>
void reduces(Ranks& comms, Index count, int root, std::optional<Plan> plan = {}, int calls = 3) {
  rooted<Reduce, Algo, Proto, T>(
      comms, count, count, count, root, plan, calls,
      [&](const Rank& rank, int call, Index i) { return sum_of_elements(rank.ranks, call, i); });
}
template <class Algo, class Proto, class T>
void gathers(Ranks& comms, Index count, int root, std::optional<Plan> plan = {}, int calls = 3) {
  rooted<Gather, Algo, Proto, T>(
      comms, count, count * Index(comms.size()), count, root, plan, calls,
      [&](const Rank&, int call, Index i) { return element(int(i / count), call, i % count); });
}
template <class Algo, class Proto, class T>
void scatters(Ranks& comms, Index count, int root, std::optional<Plan> plan = {}, int calls = 3) {
  rooted<Scatter, Algo, Proto, T>(comms, count * Index(comms.size()), count, count, root, plan,
                                  calls, [&](const Rank& rank, int call, Index i) {
                                    return element(root, call, rank.rank * count + i);
                                  });
}

/// One rank's calls of a send and receive that exists, to the rank that is `distance` ahead.
template <class C>
std::string send_recv(const Rank& rank, const C& collective, Index count, int calls, int distance) {
  const int next = (rank.rank + distance) % rank.ranks;
  const int last = (rank.rank + rank.ranks - distance) % rank.ranks;
  Buffers buffers{rank.rank, calls, count, count};
  for (int call = 0; call < calls; ++call) {
    auto &in = buffers.in[std::size_t(call)], &out = buffers.out[std::size_t(call)];
    const auto done = collective(in.data(), count, next, out.data(), count, last, rank.stream);
    if (!done) return done.error().message();
  }
  rank.synchronize();
  return buffers.wrong([&](int call, Index i) { return element(last, call, i); });
}

/// Each rank sends to the rank that is `distance` ahead.
template <class Algo, class Proto, class T>
void send_recvs(Ranks& comms, Index count, std::optional<Plan> plan = {}, int calls = 3,
                int distance = 1) {
  INFO(Algo::name << ", " << Proto::name << ", " << comms.size() << " ranks, " << count);
  on_each(comms, [&](const Rank& rank) -> std::string {
    const auto made = Collective<SendRecv, Algo, Proto, T>::create(rank.comm, plan);
    return made ? send_recv(rank, *made, count, calls, distance) : made.error().message();
  });
}

/// Checks that rank 0 waits for rank 1 under the ticket of its call, the first and the second of a
/// composition. `call(collective, rank)` makes one.
template <class C, class Call>
void wait_in_own_calls(Ranks& comms, std::optional<Plan> plan, Call call) {
  std::atomic<int> looked{0};
  on_each(comms, [&](const Rank& rank) -> std::string {
    const auto made = C::create(rank.comm, plan);
    if (!made) return made.error().message();
    const detail::CommState& state = *detail::Access::state(rank.comm);
    const detail::WaitRecord& waits = state.device.gpu->watched().waits;
    const auto waiting = [&] { return detail::HostMemory::load_acquire(&waits.peer) != 0; };
    for (int n = 1; n <= 2; ++n) {
      if (rank.rank == 1) (void)wait_until([&] { return looked == n; }, 60);
      const auto done = call(*made, rank);
      if (!done) return done.error().message();
      bool waited = true;
      Word ticket = state.observers.recorder()->latest_ticket();
      const Word own = ticket;
      if (rank.rank == 0) {
        waited = wait_until(waiting, 30);
        ticket = detail::HostMemory::load_relaxed(&waits.ticket);
        looked = n;
      }
      rank.synchronize();
      if (!waited) return "no lane has waited";
      if (ticket != own) return fmt::format("operation {} waits as operation {}", own, ticket);
    }
    return {};
  });
}

}  // namespace ccl::test::played
