#pragma once

// Calls of collectives on played GPUs, and what they must leave. Include <ccl/collective.cuh>
// first.
#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "support/played/ranks.hpp"

namespace ccl::test::played {

using Ranks = std::vector<Result<Communicator>>;

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

/// Each rank sends to the rank that is `distance` ahead.
template <class Algo, class Proto, class T>
void send_recvs(Ranks& comms, Index count, std::optional<Plan> plan = {}, int calls = 3,
                int distance = 1) {
  INFO(Algo::name << ", " << Proto::name << ", " << comms.size() << " ranks, " << count);
  on_each(comms, [&](const Rank& rank) -> std::string {
    const auto made = Collective<SendRecv, Algo, Proto, T>::create(rank.comm, plan);
    if (!made) return made.error().message();
    const int next = (rank.rank + distance) % rank.ranks;
    const int last = (rank.rank + rank.ranks - distance) % rank.ranks;
    Buffers buffers{rank.rank, calls, count, count};
    for (int call = 0; call < calls; ++call) {
      auto &in = buffers.in[std::size_t(call)], &out = buffers.out[std::size_t(call)];
      const auto done = (*made)(in.data(), count, next, out.data(), count, last, rank.stream);
      if (!done) return done.error().message();
    }
    rank.synchronize();
    return buffers.wrong([&](int call, Index i) { return element(last, call, i); });
  });
}

}  // namespace ccl::test::played
